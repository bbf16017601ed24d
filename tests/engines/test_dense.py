"""The closed-form gradient is the one that autograd finds, and is offered for plain dense stacks alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import fairlead as fl
from fairlead.models.augmentation import Augmentation, InputPipeline
from fairlead.parameters import FlatModule
from fairlead.task import PerExample, cross_entropy, squared_error
from fairlead.worlds.engines.base import LaneBatch, Objective
from fairlead.worlds.engines.dense import ClosedForm
from fairlead.worlds.engines.lane_gradients import stacked_path

ACTIVATIONS: tuple[Callable[[], nn.Module], ...] = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Identity)


def objective(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    loss: PerExample = cross_entropy,
    augment: tuple[Augmentation, ...] = (),
    dtype: torch.dtype = torch.float64,
) -> Objective:
    data = fl.ClientData(inputs, targets, torch.tensor([0, len(inputs)]))
    device = inputs.device
    return Objective.build(
        FlatModule(model, InputPipeline(augment)).to(device, dtype), loss, data.to(device, dtype)
    )


def classes(width: int = 4, num_classes: int = 3) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    return torch.randn(12, width, generator=draw), torch.randint(0, num_classes, (12,), generator=draw)


def by_autograd(problem: Objective, params: Tensor, batch: LaneBatch) -> tuple[Tensor, Tensor]:
    leaf = params.detach().requires_grad_()
    losses = stacked_path(problem).losses(problem, params.new_zeros(0))(
        leaf, batch.inputs, batch.targets, None
    )
    loss = (losses * batch.weight).sum(1)
    return loss.detach(), torch.autograd.grad(loss.sum(), leaf)[0]


def assert_same_gradient(
    problem: Objective, lanes: int, batch_size: int, device: torch.device, tolerance: float = 1e-12
) -> None:
    """At random parameters and rows, with batches that are partly and wholly padding."""
    closed = ClosedForm().gradient(problem, torch.zeros(0))
    assert ClosedForm().refusal(problem) is None
    draw = torch.Generator().manual_seed(lanes * 31 + batch_size)
    like = problem.model.initial_params()
    params = torch.randn(lanes, len(like), generator=draw).to(like)
    rows = torch.randint(0, len(problem.data.inputs), (lanes, batch_size), generator=draw).to(device)
    sizes = torch.randint(0, batch_size + 1, (lanes, 1), generator=draw)
    weight = ((torch.arange(batch_size) < sizes) / sizes.clamp(min=1)).to(like)
    batch = LaneBatch(problem.data.inputs[rows], problem.data.targets[rows], weight, None)
    before = [part.clone() for part in (params, batch.inputs, batch.targets, batch.weight)]
    out = torch.full_like(params, torch.nan)
    loss = closed(params, batch, out)
    wanted_loss, wanted = by_autograd(problem, params, batch)
    assert loss.shape == (lanes,)
    assert torch.allclose(loss, wanted_loss, rtol=tolerance, atol=tolerance)
    assert torch.allclose(out, wanted, rtol=tolerance, atol=tolerance)
    for now, then in zip((params, batch.inputs, batch.targets, batch.weight), before, strict=True):
        assert torch.equal(now, then)


@st.composite
def stacks(draw: st.DrawFn) -> nn.Sequential:
    """Linear layers of random widths, each with some activations before or after it, or none."""
    widths = [4, *draw(st.lists(st.integers(1, 7), max_size=3)), 3]
    some = st.lists(st.sampled_from(ACTIVATIONS), max_size=2)
    layers: list[nn.Module] = [kind() for kind in draw(some)]
    for inputs, outputs in pairwise(widths):
        layers.append(nn.Linear(inputs, outputs, bias=draw(st.booleans())))
        layers += [kind() for kind in draw(some)]
    return nn.Sequential(*layers)


@given(stacks(), st.integers(1, 5), st.integers(1, 9), st.booleans())
def test_random_stacks(
    device: torch.device, model: nn.Sequential, lanes: int, batch: int, regression: bool
) -> None:
    inputs, targets = (values.to(device) for values in classes())
    if regression:
        targets = torch.randn(12, 3, generator=torch.Generator().manual_seed(1)).to(device)
    problem = objective(model, inputs, targets, squared_error if regression else cross_entropy)
    assert_same_gradient(problem, lanes, batch, device)


def test_capturable_in_a_graph(device: torch.device) -> None:
    """On a GPU the whole gradient is captured, and a replay with other parameters is right."""
    torch.manual_seed(0)
    inputs, targets = (values.to(device) for values in classes())
    problem = objective(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), inputs, targets)
    closed = ClosedForm().gradient(problem, torch.zeros(0))
    assert ClosedForm().refusal(problem) is None
    params = problem.model.initial_params().repeat(2, 1)
    rows = torch.arange(12, device=device).view(2, 6)
    batch = LaneBatch(
        problem.data.inputs[rows], problem.data.targets[rows], params.new_full((2, 6), 1 / 6), None
    )
    out = torch.full_like(params, torch.nan)
    if device.type == "cuda":
        closed(params, batch, out)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = closed(params, batch, out)
        params.mul_(2)
        graph.replay()
    else:
        params.mul_(2)
        loss = closed(params, batch, out)
    wanted_loss, wanted = by_autograd(problem, params, batch)
    assert torch.allclose(loss, wanted_loss, rtol=1e-12)
    assert torch.allclose(out, wanted, rtol=1e-12, atol=1e-12)


def test_layers_of_every_size(device: torch.device) -> None:
    """Layers above and below the size from which products are written lane by lane on a CPU."""
    torch.manual_seed(0)
    inputs, targets = (values.to(device) for values in classes(width=150))
    model = nn.Sequential(nn.Linear(150, 100), nn.ReLU(), nn.Linear(100, 3))
    assert_same_gradient(objective(model, inputs, targets), 3, 8, device, 1e-11)


def test_float32(device: torch.device) -> None:
    torch.manual_seed(0)
    inputs, targets = (values.to(device) for values in classes())
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    problem = objective(model, inputs, targets, dtype=torch.float32)
    assert_same_gradient(problem, 3, 8, device, 1e-5)


def test_pixels_and_fixed_augmentation(device: torch.device) -> None:
    """Bytes are scaled and normalized on their way in, as the model itself does."""
    pixels = torch.randint(0, 256, (12, 2, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 3))
    problem = objective(
        model, pixels.to(device), classes()[1].to(device), augment=(fl.Normalize((0.3, 0.6), (0.2, 0.4)),)
    )
    assert_same_gradient(problem, 2, 5, device)


def test_one_number_as_target(device: torch.device) -> None:
    """Targets of shape (batch,) against outputs of shape (batch, 1)."""
    inputs, _ = classes()
    problem = objective(nn.Linear(4, 1), inputs.to(device), inputs.sum(1).to(device), squared_error)
    assert_same_gradient(problem, 3, 5, device)


def test_large_scores_stay_finite() -> None:
    """Logits of 1000 and 0 for a target of the second class: loss 1000, p = (1, 0), so dW = x (1, −1)."""
    problem = objective(nn.Linear(1, 2, bias=False), torch.ones(2, 1), torch.tensor([1, 1]))
    closed = ClosedForm().gradient(problem, torch.zeros(0))
    assert ClosedForm().refusal(problem) is None
    params, out = torch.tensor([[1000.0, 0.0]], dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    one = torch.ones(1, 1, dtype=torch.float64)
    loss = closed(params, LaneBatch(one[..., None], torch.tensor([[1]]), one, None), out)
    assert loss.tolist() == [1000.0]
    assert out.tolist() == [[1.0, -1.0]]


class Doubled(nn.Linear):
    """A subclass of a known layer that computes something else."""

    def forward(self, input: Tensor) -> Tensor:
        return 2.0 * super().forward(input)


def own_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none", label_smoothing=0.1)


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 3)),
        nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3)),
        nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), nn.Linear(5, 3)),
        nn.Sequential(nn.Sequential(nn.Linear(4, 5), nn.ReLU()), nn.Linear(5, 3)),
        nn.Sequential(nn.Linear(4, 5).requires_grad_(False), nn.ReLU(), nn.Linear(5, 3)),
        Doubled(4, 3),
    ],
    ids=["other activation", "norm", "dropout", "nested", "frozen", "subclass"],
)
def test_other_models_are_left_to_autograd(model: nn.Module) -> None:
    assert ClosedForm().refusal(objective(model, *classes()))


def test_other_losses_and_targets_are_left_to_autograd() -> None:
    inputs, targets = classes()
    model = nn.Linear(4, 3)
    assert ClosedForm().refusal(objective(model, inputs, targets)) is None
    assert ClosedForm().refusal(objective(model, inputs, targets, own_cross_entropy))
    assert ClosedForm().refusal(objective(model, inputs, F.one_hot(targets, 3).double()))
    without = targets.clone()
    without[5] = -100
    assert ClosedForm().refusal(objective(model, inputs, without))


def test_random_augmentation_and_low_precision_are_left_to_autograd() -> None:
    inputs, targets = classes(width=6)
    images = inputs.reshape(12, 1, 2, 3)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 3))
    assert ClosedForm().refusal(objective(model, images, targets, augment=(fl.HorizontalFlip(),)))
    assert ClosedForm().refusal(objective(model, images, targets, dtype=torch.bfloat16))
    plain = objective(model, images, targets, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert ClosedForm().refusal(plain)
    assert ClosedForm().refusal(plain) is None
