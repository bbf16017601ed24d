"""Training on Apple's `mps` device, on machines without one.

`MpsTensor` has its numbers on the CPU and claims to be on mps. It refuses what the real device refuses: numbers in
float64, and operations between the device and the host. Apple's kernels are not tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import fairlead as fl
from fairlead.diagnostics import client_gradients, consensus_test, near_optimum, objective_value
from fairlead.errors import ClashError, FieldError
from fairlead.experiments.diagnose import diagnose
from fairlead.presets.table import needed_arguments

MPS, META = torch.device("mps", 0), torch.device("meta")
TAKE_BOTH = ("aten::index", "aten::index_put", "aten::copy_", "aten::_to_copy")
"""Operations that take tensors of a device beside those of the host."""


class MpsTensor(Tensor):
    """Numbers on the pretended device. Torch's own code sees a "meta" tensor, whose kernels never run."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> MpsTensor:
        _refuse_float64(held.dtype)
        made = Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=META,
        )
        made.held = held
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return MPS

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return self.detach().clone().requires_grad_(self.requires_grad)

    def tolist(self) -> Any:
        return self.held.tolist()

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        stays = not kwargs and args in ((MPS,), (MPS, self.dtype))
        return self if stays else super().to(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given, name = tree_leaves((args, kwargs or {})), func._schema.name
        tensors = [each for each in given if isinstance(each, Tensor)]
        if name not in TAKE_BOTH and len({type(each) for each in tensors if each.ndim}) > 1:
            raise RuntimeError(f"{name} got tensors on mps and on the CPU")
        place = (kwargs or {}).get("device")
        here = _is_there(place) if place else any(isinstance(each, MpsTensor) for each in tensors)
        if any(isinstance(each, MpsTensor) for each in tensors):
            # Casts are computed where the numbers come from.
            _refuse_float64((kwargs or {}).get("dtype"))
        args, held = tree_map(
            lambda each: each.held if isinstance(each, MpsTensor) else each, (args, kwargs or {})
        )
        found = func(*args, **{**held, "device": torch.device("cpu")} if place else held)
        written = func._schema.arguments[0].alias_info
        if "out" in held or (written is not None and written.is_write):
            return (kwargs or {}).get("out", tensors[0])
        return tree_map(lambda each: MpsTensor(each) if here and isinstance(each, Tensor) else each, found)


def _is_there(place: Any) -> bool:
    return isinstance(place, torch.device) and place in (MPS, META)


def _refuse_float64(dtype: torch.dtype | None) -> None:
    if dtype == torch.float64:
        raise TypeError("mps has no float64")


class Pretending(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, tensors may be made on mps and sent there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tree_leaves((args, kwargs or {}))
        if any(isinstance(each, MpsTensor) or _is_there(each) for each in given):
            return MpsTensor.__torch_dispatch__(func, types, args, kwargs)
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def pretending(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: torch.zeros(1))
    with Pretending():  # type: ignore[no-untyped-call]
        yield


def test_the_pretended_device_refuses_what_mps_refuses() -> None:
    there = torch.ones(3).to(MPS)
    for wrong in (
        there.double,
        lambda: torch.zeros(2, dtype=torch.float64, device=MPS),
        lambda: there.sum(dtype=torch.float64),
        lambda: there.to("cpu", torch.float64),
        lambda: torch.ones(3, dtype=torch.float64).to(MPS),
    ):
        with pytest.raises(TypeError, match="no float64"):
            wrong()
    with pytest.raises(RuntimeError, match="on mps and on the CPU"):
        there + torch.ones(3)
    assert there.device == (there * there).device == MPS
    assert type(there.cpu()) is type(there.cpu() + torch.ones(3)) is Tensor


class Normalized(nn.Module):
    """Everything that draws or keeps something: dropout, and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        layers = (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3))
        self.body, self.head = nn.Sequential(*layers), nn.Linear(144, 10)

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.body(images[:, None]))
        return outputs


def federation(method: str, device: str) -> fl.Federation:
    torch.manual_seed(0)
    model: nn.Module | fl.MLP = Normalized() if method == "fedbn" else fl.MLP(hidden=(8,))
    augment = (fl.RandomCrop(padding=1),) if method == "fedbn" else ()
    build = fl.presets.METHODS[method].build
    arguments: dict[str, Any] = {"lr": 0.1, "cohort_size": 3, "mu": 0.1, "alpha": 0.1}
    needed = {"lr", "cohort_size", *needed_arguments(build)}
    clip = {"clip": 1.0} if method == "fedbn" else {}
    algorithm = build(batch_size=32, **{name: arguments[name] for name in needed}, **clip)
    skew = fl.DirichletPartitioner(alpha=0.5)
    data = fl.Digits(num_clients=5, partition=skew, holdout=0.2).load(fl.Key.from_seed(0))
    world = fl.SimulatedWorld(
        fl.Task(model, metrics=("accuracy", "f1_macro", fl.TopK(k=2)), augment=augment),
        data.train,
        test=data.test,
        held_out=data.held_out,
        work=fl.RandomEpochs(1, 2),
        link=fl.BernoulliLink(0.2),
        devices=fl.LogNormalDevices(),
        engine="loop",
        device=device,
    )
    return fl.Federation(algorithm, world)


def records(run: fl.Federation) -> list[fl.RoundRecord]:
    return [replace(each, seconds=0.0) for each in run.train(rounds=2, evaluate_every=1, per_client=True)]


METHODS = """fedavg scaffold fedavg_compressed power_of_choice fedbuff fedaware krum apfl ditto fedbn"""
"""One of each way to use memory, messages, the clients' losses, or models of their own."""


@pytest.mark.parametrize("method", METHODS.split())
def test_methods_train_there(method: str) -> None:
    """The numbers are those of the CPU, whose kernels the pretended device has."""
    here, there = federation(method, "cpu"), federation(method, "mps:0")
    ours, theirs = records(here), records(there)
    if method == "fedbn":
        # Where gradients are clipped, their lengths are taken in float32.
        assert [each.train_loss for each in ours] == pytest.approx([each.train_loss for each in theirs])
        torch.testing.assert_close(here.params, there.params)
    else:
        assert ours == theirs
        assert torch.equal(here.params, there.params)
    assert there.world.workings.device == MPS
    assert there.params.device.type == "cpu"


def test_vectors_of_the_server_could_not_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.worlds.simulated.home_of", lambda device: device)
    with pytest.raises(TypeError, match="no float64"):
        records(federation("fedavg", "mps:0"))


def test_a_run_resumes_there(tmp_path: Path) -> None:
    whole, head, tail = (federation("scaffold", "mps:0") for _ in range(3))
    expected = records(whole)
    found = [replace(next(iter(head.train(1, evaluate_every=1, per_client=True))), seconds=0.0)]
    head.save(tmp_path / "checkpoint")
    tail.resume(tmp_path / "checkpoint")
    found += [replace(next(iter(tail.train(1, evaluate_every=1, per_client=True))), seconds=0.0)]
    assert found == expected


def test_measurements_at_a_model() -> None:
    """Full gradients, an optimum and the consensus test agree with the CPU's."""
    found = []
    for device in ("cpu", "mps:0"):
        world = federation("fedavg", device).world.simulation
        assert world is not None
        params, _ = world.initial_model(fl.Key.from_seed(0))
        optimum = near_optimum(world, iterations=3)
        report = consensus_test(world, params, lr=0.1, steps=(1, 3))
        found.append(
            (
                client_gradients(world, params).tolist(),
                objective_value(world, params),
                optimum.loss,
                optimum.params.tolist(),
                repr(report),
            )
        )
    assert found[0] == found[1]


def test_an_experiment_and_its_diagnosis_run_there() -> None:
    source = fl.Digits(num_clients=6, partition=fl.DirichletPartitioner(alpha=0.3), holdout=0.2)
    experiment = fl.Experiment(source, fl.presets.fedavg(lr=0.1), rounds=3, work=fl.RandomEpochs(1, 3))
    here, there = (diagnose(replace(experiment, device=device), rounds=3) for device in ("cpu", "mps:0"))
    assert here.advice == there.advice
    assert [each.statement for each in here.findings] == [each.statement for each in there.findings]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("dtype", torch.float64, "computes in float32 alone"),
        ("precision", "bfloat16", "computes in float32 alone"),
        ("reproducible", True, "computes in float32 alone"),
        ("engine", "batched", "needs engine='loop' or 'auto', got 'batched'"),
        ("engine", "branches", "needs engine='loop' or 'auto', got 'branches'"),
        ("compile", True, "SimulatedWorld.device is 'mps'"),
    ],
)
def test_clashes(field: str, value: object, message: str) -> None:
    data = fl.Digits(num_clients=2).load(fl.Key.from_seed(0))
    with pytest.raises(ClashError, match=message):
        fl.SimulatedWorld(fl.Task(fl.LogisticRegression()), data.train, device="mps:0", **{field: value})  # type: ignore[arg-type]


def test_only_one_device_of_that_kind_exists() -> None:
    data = fl.Digits(num_clients=2).load(fl.Key.from_seed(0))
    with pytest.raises(FieldError, match="must be 'cpu', 'mps' or a CUDA device of this machine, which has "):
        fl.SimulatedWorld(fl.Task(fl.LogisticRegression()), data.train, device="mps:1")
    world = fl.SimulatedWorld(fl.Task(fl.LogisticRegression()), data.train, device="mps:0")
    assert world.engine_reason == "the only engine for mps"
