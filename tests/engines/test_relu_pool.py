"""ReLU and pooling as one layer: torch's numbers, there and back, wherever the layer takes their place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fairlead as fl
from fairlead.worlds.engines import relu_pool
from fairlead.worlds.engines.loop import LoopEngine
from fairlead.worlds.engines.relu_pool import ReluPool, joined_pooling

DTYPES = (torch.bfloat16, torch.float32, torch.float64)


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops take images of any size, however few."""
    pytest.importorskip("numba")
    monkeypatch.setattr(relu_pool, "_FEWEST", 1)


def plain(images: Tensor) -> Tensor:
    return F.max_pool2d(F.relu(images), 2)


def there_and_back(layer: Callable[[Tensor], Tensor], images: Tensor) -> tuple[Tensor, Tensor]:
    """What a layer makes of images, and the gradient of a weighted sum of it."""
    leaf = images.clone(memory_format=torch.preserve_format).requires_grad_()
    pooled = layer(leaf)
    weights = torch.arange(1.0, pooled.numel() + 1).view(pooled.shape).to(pooled.dtype)
    return pooled.detach(), torch.autograd.grad(pooled, leaf, weights)[0]


def drawn(*shape: int, dtype: torch.dtype) -> Tensor:
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return numbers.to(dtype).contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 5, 8, 6), (2, 33, 7, 9), (1, 1, 2, 2), (4, 16, 3, 2)])
def test_numbers_and_gradients_are_those_of_torch(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    images = drawn(*shape, dtype=dtype)
    for found, wanted in zip(there_and_back(ReluPool(), images), there_and_back(plain, images), strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
def test_of_equal_numbers_the_first_counts(dtype: torch.dtype) -> None:
    """Halves from -1 to 1: most blocks have ties, some of them at zero, of either sign."""
    images = (drawn(8, 6, 10, 10, dtype=torch.float64) * 2).round().clamp(-1, 1).to(dtype) / 2
    assert bool((images.view(relu_pool._BITS[dtype]) != images.abs().view(relu_pool._BITS[dtype])).any())
    for found, wanted in zip(there_and_back(ReluPool(), images), there_and_back(plain, images), strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0])
def test_what_is_not_finite_passes_as_in_torch(
    dtype: torch.dtype, place: int, sign: int, value: float
) -> None:
    """NaN too, whichever its sign: processors make negative ones."""
    images = drawn(2, 3, 4, 4, dtype=dtype)
    images[0, 1, place // 2, place % 2] = value
    if sign < 0:
        bits = images.view(relu_pool._BITS[dtype])
        bits[0, 1, place // 2, place % 2] |= torch.iinfo(bits.dtype).min
    for found, wanted in zip(there_and_back(ReluPool(), images), there_and_back(plain, images), strict=True):
        assert torch.equal(found.isnan(), wanted.isnan())
        assert torch.equal(found.nan_to_num(nan=0.0), wanted.nan_to_num(nan=0.0))


@pytest.mark.parametrize(("channels", "fewest"), [(3, 1000), (1, 1)])
def test_few_numbers_and_other_layouts_are_left_to_torch(
    channels: int, fewest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the loops, which would give the same: a single channel among larger strides is no layout of theirs."""
    monkeypatch.setattr(relu_pool, "compiled", None)
    monkeypatch.setattr(relu_pool, "_FEWEST", fewest)
    images = drawn(2, 3, 4, 4, dtype=torch.float32)[:, :channels]
    assert torch.equal(ReluPool()(images), plain(images))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(2, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.BatchNorm2d(8)),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d((2, 2), stride=2),
        nn.Flatten(),
        nn.ReLU(),
        nn.LazyLinear(3),
    )


def test_layers_keep_their_names() -> None:
    module = network()
    module(torch.zeros(2, 2, 14, 14))
    joined = joined_pooling(module)
    assert isinstance(joined, nn.Sequential)
    assert list(joined.state_dict()) == list(module.state_dict())
    assert [type(joined[2]), type(joined[3]), type(joined[5])] == [ReluPool, nn.Identity, nn.ReLU]
    within = joined[0]
    assert isinstance(within, nn.Sequential)
    assert [type(layer) for layer in within] == [nn.Conv2d, ReluPool, nn.Identity, nn.BatchNorm2d]
    assert type(module[2]) is nn.ReLU
    images = drawn(4, 2, 14, 14, dtype=torch.float32)
    assert torch.equal(joined.eval()(images), module.eval()(images))


def shared() -> nn.Sequential:
    relu = nn.ReLU()
    return nn.Sequential(nn.Conv2d(1, 2, 3), relu, nn.MaxPool2d(2), relu)


def watched(place: int | None, register: str) -> nn.Sequential:
    """A sequence in which somebody looks at what goes through one of its layers, or through all of it."""
    module = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))
    getattr(module if place is None else module[place], register)(lambda *_: None)
    return module


def called_otherwise() -> nn.Sequential:
    module = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))
    module[0].forward = torch.tanh
    return module


class Doubling(nn.Sequential):
    """A sequence that does something of its own."""

    def forward(self, images: Tensor) -> Tensor:
        return 2 * plain(images)


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.ReLU(), nn.MaxPool2d(3)),
        nn.Sequential(nn.ReLU(), nn.MaxPool2d(2, stride=1)),
        nn.Sequential(nn.ReLU(), nn.MaxPool2d(2, padding=1)),
        nn.Sequential(nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)),
        nn.Sequential(nn.ReLU(), nn.MaxPool2d(2, return_indices=True)),
        nn.Sequential(nn.ReLU(), nn.AvgPool2d(2)),
        nn.Sequential(nn.MaxPool2d(2), nn.ReLU()),
        nn.Sequential(nn.ReLU6(), nn.MaxPool2d(2)),
        shared(),
        watched(0, "register_forward_hook"),
        watched(0, "register_full_backward_pre_hook"),
        watched(1, "register_forward_pre_hook"),
        watched(None, "register_full_backward_hook"),
        called_otherwise(),
        Doubling(nn.ReLU(), nn.MaxPool2d(2)),
    ],
)
def test_what_does_something_else_stays(module: nn.Sequential) -> None:
    assert not any(isinstance(layer, ReluPool) for layer in joined_pooling(module).modules())


def test_nothing_changes_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relu_pool, "has_numba", lambda: False)
    module = network()
    assert joined_pooling(module) is module


@pytest.mark.parametrize("precision", ["full", "bfloat16"])
def test_cores_train_as_the_loop_does(
    precision: Literal["full", "bfloat16"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, and through the joined layer."""
    calls: list[torch.dtype] = []
    apply = relu_pool._ReluPoolFunction.apply

    def noting(images: Tensor) -> Tensor:
        calls.append(images.dtype)
        pooled: Tensor = apply(images)  # type: ignore[no-untyped-call]
        return pooled

    monkeypatch.setattr(relu_pool._ReluPoolFunction, "apply", noting)
    examples, classes = drawn(40, 3, 12, 12, dtype=torch.float32), torch.arange(40) % 10
    data = fl.ClientData(examples, classes, torch.tensor([0, 10, 25, 40]))
    trained, so_far = [], []
    for engine in (LoopEngine(), LoopEngine(per_core=True)):
        world = fl.SimulatedWorld(fl.Task(fl.FedAvgCNN()), data, precision=precision, engine="loop")
        world.executor.engine = engine
        run = fl.Federation(fl.presets.fedavg(lr=0.1, steps=3, batch_size=8, cohort_size=3), world, seed=0)
        list(run.train(2))
        trained.append(run.params)
        so_far.append(len(calls))
    assert so_far == [0, 2 * 2 * 3 * 3]
    assert set(calls) == {torch.float32 if precision == "full" else torch.bfloat16}
    assert torch.equal(*trained)
