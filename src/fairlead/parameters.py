"""`FlatModule`: any `torch.nn.Module` as a function of one flat vector of parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from fairlead.errors import EngineError, FieldError, short
from fairlead.models.augmentation import InputPipeline
from fairlead.randomness import keyed_uniform

_FEATURE_DROPOUTS = {F.dropout1d: 2, F.dropout2d: 2, F.dropout3d: 2}
_DROPOUTS = {F.dropout, *_FEATURE_DROPOUTS, F.alpha_dropout, F.feature_alpha_dropout}
_UNKEYED = {
    *(torch.rand, torch.randn, torch.randint, torch.randperm, torch.rand_like, torch.randn_like),
    *(torch.randint_like, torch.bernoulli, torch.multinomial, torch.normal, torch.poisson),
    *(F.alpha_dropout, F.feature_alpha_dropout, F.rrelu, F.gumbel_softmax),
    *(Tensor.bernoulli_, Tensor.normal_, Tensor.uniform_, Tensor.exponential_),
}
_NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


class FlatModule:
    """A module together with the order in which its trainable parameters stand in a flat vector.

    `torch.split` divides the vector, never slices: the backward pass of a slice allocates a whole
    vector per parameter. Floating-point buffers (running statistics) form a second flat vector. Frozen parameters
    (`requires_grad=False`) and buffers that no `state_dict` holds are constants, in neither vector; frozen parameters
    are shared with the given module, not copied. Inputs go through the `pipeline` first.
    """

    def __init__(self, module: nn.Module, pipeline: InputPipeline | None = None) -> None:
        self.module = copy.deepcopy(module, {id(p): p for p in module.parameters() if not p.requires_grad})
        self.pipeline = pipeline or InputPipeline()
        named = {n: p for n, p in self.module.named_parameters() if p.requires_grad}
        if not named:
            raise EngineError(f"{type(module).__name__} has no trainable parameters.")
        for name, part in self.module.named_modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.momentum is None:
                raise EngineError(
                    f"{type(part).__name__} {name!r} has momentum=None, whose running average depends on how "
                    "many batches all clients have seen before: give it a momentum, such as 0.1."
                )
        self.names = tuple(named)
        self.shapes = tuple(p.shape for p in named.values())
        self.sizes = [p.numel() for p in named.values()]
        constants = {
            f"{prefix}.{name}".lstrip(".")
            for prefix, part in self.module.named_modules()
            for name, values in part._buffers.items()
            if values is not None
            and (name in part._non_persistent_buffers_set or not values.is_floating_point())
        }
        buffers = {n: b for n, b in self.module.named_buffers() if n not in constants}
        self._aliases = _other_names(self.module, {**named, **buffers})
        self._constant_names, self._digests = tuple(constants), dict[torch.dtype, str]()
        self._buffer_names = tuple(buffers)
        self._buffer_shapes = tuple(b.shape for b in buffers.values())
        self._buffer_sizes = [b.numel() for b in buffers.values()]

    @property
    def layout(self) -> dict[str, int]:
        """Names of the parameters and how many numbers each has, in order."""
        return dict(zip(self.names, self.sizes, strict=True))

    def frozen_digest(self, dtype: torch.dtype) -> str:
        """A hash of the frozen parameters in a floating-point type; empty if all are trained."""
        if dtype not in self._digests:
            frozen = {n: p.detach() for n, p in self.module.named_parameters() if not p.requires_grad}
            digest = sha256(" ".join(frozen).encode())
            for values in frozen.values():
                numbers = values.to("cpu", dtype) if values.is_floating_point() else values.cpu()
                digest.update(numbers.contiguous().reshape(-1).view(torch.uint8).numpy().data)
            self._digests[dtype] = digest.hexdigest()[:16] if frozen else ""
        return self._digests[dtype]

    def own(self, patterns: Sequence[str]) -> tuple[Tensor, Tensor | None]:
        """1 at the parameters (d,) and running statistics (b,) that clients keep, 0 elsewhere; None if no statistic is.

        A pattern is a name with wildcards, "head" or "normalization"; one that fits no parameter is refused.
        """
        like, modules = self.initial_params(), dict(self.module.named_modules())

        def normalizes(name: str) -> bool:
            return isinstance(modules[name.rpartition(".")[0]], _NORMS)

        def fits(name: str, pattern: str) -> bool:
            if pattern == "head":
                return name.rpartition(".")[0] == self.names[-1].rpartition(".")[0]
            return normalizes(name) if pattern == "normalization" else fnmatchcase(name, pattern)

        for pattern in patterns:
            if not any(fits(name, pattern) for name in self.names):
                lacking = ", of which this model has none" if pattern == "normalization" else ""
                known = f"{', '.join(self.names[:8])}{', ...' if len(self.names) > 8 else ''}"
                raise FieldError(
                    "OwnParameters.parameters must be 'head', 'normalization' or names of the model's parameters "
                    f"({known}), got {short(pattern)}{lacking}."
                )
            if pattern == "head" and all(fits(name, pattern) for name in self.names):
                raise FieldError(
                    "OwnParameters.parameters must leave something to share, and 'head' is all of a model with one "
                    "layer: use a model with more layers, or '*' for training without sharing."
                )

        def is_own(name: str) -> bool:
            return any(fits(name, pattern) for pattern in patterns)

        def mask(chosen: list[bool], sizes: list[int]) -> Tensor:
            return torch.tensor(chosen).repeat_interleave(torch.tensor(sizes)).to(like)

        # Other buffers are constants, which all clients share.
        kept = [is_own(name) and normalizes(name) for name in self._buffer_names]
        params = mask([is_own(name) for name in self.names], self.sizes)
        return params, mask(kept, self._buffer_sizes) if any(kept) else None

    def to(self, device: torch.device, dtype: torch.dtype) -> FlatModule:
        """A copy on another device and in another floating-point type."""
        return FlatModule(copy.deepcopy(self.module).to(device, dtype), self.pipeline)

    def initial_params(self) -> Tensor:
        """The module's own parameters as a flat vector."""
        named = dict(self.module.named_parameters())
        return torch.cat([named[name].detach().reshape(-1) for name in self.names])

    def initial_buffers(self) -> Tensor:
        """The module's own floating-point buffers as a flat vector; empty if it has none."""
        named = dict(self.module.named_buffers())
        parts = [named[name].detach().reshape(-1) for name in self._buffer_names]
        return torch.cat(parts) if parts else self.initial_params().new_zeros(0)

    def filled(self, params: Tensor, buffers: Tensor) -> nn.Module:
        """A copy of the module with the given parameters and running statistics, in evaluation mode."""
        module = copy.deepcopy(self.module)
        module.load_state_dict({**self.unflatten(params), **self.unflatten_buffers(buffers)}, strict=False)
        return module.eval()

    def unflatten(self, params: Tensor) -> dict[str, Tensor]:
        """Named tensors that share memory with a `(d,)` vector."""
        return _divide(params, self.names, self.sizes, self.shapes)

    def unflatten_buffers(self, buffers: Tensor) -> dict[str, Tensor]:
        """Named buffers that share memory with a flat vector: modules update them in place."""
        return _divide(buffers, self._buffer_names, self._buffer_sizes, self._buffer_shapes)

    def call(
        self,
        params: Tensor | Mapping[str, Tensor],
        buffers: Tensor | None,
        inputs: Tensor,
        noise: Tensor | None,
        *,
        channels_last: bool = False,
    ) -> Any:
        """The module's outputs for parameters in a vector or by name.

        `noise` is the int64 key of augmentation and dropout, None for neither.
        """
        named = self.unflatten(params) if isinstance(params, Tensor) else dict(params)
        inputs = self.pipeline.apply(inputs, noise, named[self.names[0]].dtype)
        if channels_last:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        # Counters and constants are copied: what a module writes in one call must not reach another client.
        if self._constant_names:
            own = self.module.named_buffers()
            named.update({n: b.clone() for n, b in own if n in self._constant_names})
        running = {} if buffers is None else self.unflatten_buffers(buffers)
        named.update(running)
        named.update({alias: named[name] for alias, name in self._aliases.items() if name in named})
        with nullcontext() if noise is None else _KeyedDropout(noise):
            # By itself torch swaps a layer that has two names twice, and puts it back in the wrong order.
            outputs = functional_call(self.module, named, (inputs,), tie_weights=False)
        for name, values in running.items():
            # A module may assign a buffer instead of changing it in place.
            if named[name] is not values:
                _keep_buffer(name, values, named[name].detach())
        return outputs

    def draws_noise(self, inputs: Tensor) -> bool:
        """Whether training draws augmentations or dropout masks; refuses models that draw anything else.

        It runs a forward pass instead of reading the list of modules, since many models call
        `torch.nn.functional.dropout` themselves; and it watches torch's generator, since some functions draw
        where no override applies (`nn.MultiheadAttention`, `nn.LSTM`, `torch.dropout`).
        """
        watch = _RandomnessWatch()
        self.module.train()
        with (
            torch.no_grad(),
            torch.random.fork_rng(devices=[inputs.device] if inputs.device.type == "cuda" else []),
            _generator_watch(self.module, inputs.device) as culprits,
            watch,
        ):
            self.call(self.initial_params(), self.initial_buffers(), inputs, None)
        if culprits:
            raise _unkeyed(culprits[0])
        return watch.seen_dropout or self.pipeline.draws_noise


def _other_names(module: nn.Module, named: Mapping[str, Tensor]) -> dict[str, str]:
    """Further names of shared parameters and buffers, each with the name that represents it."""
    names = {id(values): name for name, values in named.items()}
    return {
        f"{prefix}.{name}".lstrip("."): names[id(values)]
        for prefix, part in module.named_modules()
        for name, values in (*part._parameters.items(), *part._buffers.items())
        if id(values) in names and f"{prefix}.{name}".lstrip(".") != names[id(values)]
    }


def _keep_buffer(name: str, values: Tensor, assigned: Tensor) -> None:
    try:
        values.copy_(assigned)
    except RuntimeError as error:
        raise EngineError(
            f"The batched engine cannot run a model that assigns its buffer {name!r} in training, since the "
            'clients beside each other share it: use engine="loop".'
        ) from error


def _divide(
    vector: Tensor, names: Sequence[str], sizes: list[int], shapes: Sequence[torch.Size]
) -> dict[str, Tensor]:
    if not names:
        return {}
    pieces = torch.split(vector, sizes)
    return {n: p.view(s) for n, p, s in zip(names, pieces, shapes, strict=True)}


class _KeyedDropout(TorchFunctionMode):
    """Replaces every dropout mask by one drawn from a key, so that a replay drops the same units."""

    def __init__(self, key: Tensor) -> None:
        super().__init__()
        self._key = key
        self._calls = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is not F.dropout and func not in _FEATURE_DROPOUTS:
            return func(*args, **kwargs)
        rate, training = _dropout_arguments(args, kwargs)
        inputs = args[0] if args else kwargs["input"]
        if not training or rate == 0.0:
            return inputs
        self._calls += 1
        kept_dims = _FEATURE_DROPOUTS.get(func, inputs.ndim)
        shape = torch.Size([*inputs.shape[:kept_dims], *[1] * (inputs.ndim - kept_dims)])
        draws = keyed_uniform(self._key + self._calls * 0x9E3779B97F4A7C15 % 2**63, shape, inputs.device)
        return inputs * (draws >= rate).to(inputs.dtype) / max(1.0 - rate, 1e-30)


class _RandomnessWatch(TorchFunctionMode):
    """Notes whether a forward pass uses dropout, and refuses other sources of randomness."""

    seen_dropout = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _DROPOUTS:
            rate, training = _dropout_arguments(args, kwargs)
            if not training or rate == 0.0:
                return func(*args, **kwargs)
            if func not in _UNKEYED:
                self.seen_dropout = True
                return args[0] if args else kwargs["input"]
        attention_rate = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0)
        fused = func is F.scaled_dot_product_attention and attention_rate > 0.0
        if func in _UNKEYED or fused:
            raise _unkeyed(getattr(func, "__name__", str(func)))
        return func(*args, **kwargs)


def _unkeyed(culprit: str) -> EngineError:
    return EngineError(
        f"The model draws random numbers by {culprit}, which cannot be replayed: draw them from "
        "torch.nn.functional.dropout, or set their rate to 0."
    )


@contextmanager
def watched_calls(
    module: nn.Module, enter: Callable[[str], object], leave: Callable[[str], object]
) -> Iterator[None]:
    """Within the block, report the class and name of every module in a module as its call begins and ends."""

    def hook(report: Callable[[str], object], label: str) -> Callable[..., None]:
        # A hook that returns something would change inputs or outputs.
        def call(*_: Any) -> None:
            report(label)

        return call

    hooks = []
    for name, part in module.named_modules():
        label = f"{type(part).__name__} {name!r}" if name else type(part).__name__
        hooks.append(part.register_forward_pre_hook(hook(enter, label)))
        hooks.append(part.register_forward_hook(hook(leave, label)))
    try:
        yield
    finally:
        for each in hooks:
            each.remove()


@contextmanager
def _generator_watch(module: nn.Module, device: torch.device) -> Iterator[list[str]]:
    """Collects the modules whose call advanced torch's generator, innermost first."""

    def state() -> bytes:
        on_device = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
        on_device += [torch.mps.get_rng_state()] if device.type == "mps" else []
        return b"".join(rng.numpy().tobytes() for rng in (torch.get_rng_state(), *on_device))

    culprits: list[str] = []
    entered: list[bytes] = []

    def leave(label: str) -> None:
        if entered.pop() != state():
            culprits.append(label)

    with watched_calls(module, lambda _: entered.append(state()), leave):
        yield culprits


def _dropout_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[float, bool]:
    rate = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
    training = args[2] if len(args) > 2 else kwargs.get("training", True)
    return float(rate), bool(training)
