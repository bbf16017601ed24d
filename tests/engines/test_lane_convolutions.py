"""Convolutions of several clients at once by Triton kernels: the gradients of a pass for each client."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

import fairlead as fl
from fairlead.parameters import FlatModule
from fairlead.task import cross_entropy
from fairlead.worlds.device import Arithmetic
from fairlead.worlds.engines.base import LaneBatch, LanePath, Objective
from fairlead.worlds.engines.lane_gradients import Branches, LaneConvolutions, Vmap

LANES, BATCH, CLASSES = 3, 5, 4
MODELS = {
    "padded and pooled": (
        nn.Sequential(
            *(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(8, 20, 5, padding="same"), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(20, 16, 3, bias=False), nn.Flatten(), nn.Linear(16, CLASSES)),
        ),
        (3, 13, 13),
    ),
    "rectified": (
        nn.Sequential(
            *(nn.Conv2d(3, 17, 3, bias=False), nn.ReLU(), nn.Conv2d(17, 6, 5, padding=2), nn.ReLU()),
            *(nn.Conv2d(6, 70, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(280, CLASSES)),
        ),
        (3, 7, 6),
    ),
    "gray, unpooled and dropped": (
        nn.Sequential(
            nn.Conv2d(1, 70, 3), nn.Tanh(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(70 * 16, CLASSES)
        ),
        (1, 6, 6),
    ),
    "windows that no kernel takes": (
        nn.Sequential(
            *(nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, groups=2)),
            *(
                nn.Conv2d(4, 6, (1, 3), padding=(0, 1)),
                nn.Conv2d(6, 5, 2),
                nn.Flatten(),
                nn.Linear(5, CLASSES),
            ),
        ),
        (2, 8, 8),
    ),
}


def problem(model: nn.Module, shape: tuple[int, ...], device: torch.device) -> Objective:
    draw = torch.Generator().manual_seed(0)
    data = fl.ClientData(
        torch.randn(30, *shape, generator=draw),
        torch.randint(0, CLASSES, (30,), generator=draw),
        torch.tensor([0, 30]),
    )
    return Objective.build(
        FlatModule(model).to(device, torch.float32), cross_entropy, data.to(device, torch.float32)
    )


def gradients(path: LanePath, objective: Objective) -> tuple[torch.Tensor, torch.Tensor]:
    """Losses and gradients of three clients with their own parameters, one of them with a short batch."""
    draw, device = torch.Generator().manual_seed(1), objective.device
    initial = objective.model.initial_params()
    params = initial + 0.1 * torch.randn(LANES, len(initial), generator=draw).to(device)
    rows = torch.randint(0, 30, (LANES, BATCH), generator=draw).to(device)
    weight = torch.full((LANES, BATCH), 1 / BATCH, device=device)
    weight[1] = torch.tensor([0.5, 0.5, 0, 0, 0])
    noise = torch.tensor([3, 5, 7], device=device) if objective.draws_noise else None
    batch = LaneBatch(objective.data.inputs[rows], objective.data.targets[rows], weight, noise)
    objective.model.module.train()
    gradient = path.gradient(objective, objective.model.initial_buffers())
    order = gradient.order
    out = torch.zeros_like(params)
    losses = gradient(params if order is None else order.arranged(params), batch, out)
    return losses, out if order is None else order.restored(out)


def need_kernels(device: torch.device) -> None:
    """On a GPU, or on a CPU where `TRITON_INTERPRET=1` lets Triton interpret its kernels."""
    pytest.importorskip("triton")
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1")


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_clients_at_once_have_the_gradients_of_clients_alone(
    name: str, channels_last: bool, device: torch.device
) -> None:
    need_kernels(device)
    objective = replace(problem(*MODELS[name], device), channels_last=channels_last)
    with Arithmetic().on(device):
        ours, expected = gradients(LaneConvolutions(), objective), gradients(Branches(), objective)
    for left, right in zip(ours, expected, strict=True):
        assert torch.allclose(left, right, rtol=1e-4, atol=1e-5 * float(right.abs().max()))


def joined_and_plain(
    images: torch.Tensor, pool: int, border: int, device: torch.device
) -> list[list[torch.Tensor]]:
    """Outputs and gradients of two clients' convolutions of whole numbers, by the joined layer and by torch's."""
    need_kernels(device)
    from fairlead.worlds.engines.lane_convolutions import joined_convolution

    draw = torch.Generator().manual_seed(2)
    plain = nn.Sequential(
        nn.Conv2d(images.shape[2], 5, 3, padding=border), nn.ReLU(), *[nn.MaxPool2d(2)] * (pool == 2)
    ).to(device)
    found = joined_convolution(list(plain))
    assert found is not None
    assert found[1] == len(plain)
    weight = torch.randint(-2, 3, (2, 5, images.shape[2], 3, 3), generator=draw).float().to(device)
    bias = torch.randint(-2, 3, (2, 5), generator=draw).float().to(device)
    results = []
    for layer, names in ((found[0], ("weight", "bias")), (plain, ("0.weight", "0.bias"))):
        leaves = [part.clone().to(device).requires_grad_() for part in (images, weight, bias)]

        def one(
            *parts: torch.Tensor, layer: nn.Module = layer, names: tuple[str, ...] = names
        ) -> torch.Tensor:
            outputs: torch.Tensor = functional_call(
                layer, dict(zip(names, parts[1:], strict=True)), (parts[0],)
            )
            return outputs

        outputs = vmap(one)(*leaves) if layer is found[0] else torch.stack([*map(one, *leaves)])
        draw.manual_seed(3)
        errors = torch.randint(-3, 4, outputs.shape, generator=draw).float().to(device)
        results.append([outputs.detach(), *torch.autograd.grad(outputs, leaves, errors)])
    return results


@pytest.mark.parametrize("border", [0, 1])
@pytest.mark.parametrize("pool", [1, 2])
@pytest.mark.parametrize("shape", [(3, 9, 12), (16, 5, 6), (1, 8, 8)])
def test_ties_zeros_and_odd_borders_are_as_torch_has_them(
    shape: tuple[int, ...], pool: int, border: int, device: torch.device
) -> None:
    """Whole numbers are exact in every precision, and full of ties."""
    images = torch.randint(-1, 2, (2, 3, *shape), generator=torch.Generator().manual_seed(4)).float()
    for ours, expected in zip(*joined_and_plain(images, pool, border, device), strict=True):
        assert torch.equal(ours, expected)


@pytest.mark.parametrize("pool", [1, 2])
def test_not_a_number_passes(pool: int, device: torch.device) -> None:
    images = torch.ones(2, 2, 3, 8, 8)
    images[0, 1, 2, 3, 3] = torch.nan
    for ours, expected in zip(*joined_and_plain(images, pool, 0, device), strict=True):
        assert torch.equal(ours.isnan(), expected.isnan())
        assert torch.equal(ours.nan_to_num(), expected.nan_to_num())


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_every_way_to_a_gradient_gives_the_same_numbers(
    spread: bool, turned: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_kernels(device)
    from fairlead.worlds.engines import convolution_triton

    sizes = (16, 32, 16, 1, 2)
    blocks = convolution_triton.Blocks(*sizes, spread=spread, turned=turned)
    monkeypatch.setattr(convolution_triton, "blocks_of", lambda *_: blocks)
    images = torch.randint(-1, 2, (2, 5, 3, 9, 9), generator=torch.Generator().manual_seed(5)).float()
    for pool in (1, 2):
        for ours, expected in zip(*joined_and_plain(images, pool, 1, device), strict=True):
            assert torch.equal(ours, expected)


@pytest.mark.parametrize("name", MODELS)
def test_one_model_without_gradients(name: str, device: torch.device) -> None:
    need_kernels(device)
    objective = problem(*MODELS[name], device)
    joined, plain = LaneConvolutions().joined(objective), objective.model
    joined.module.eval()
    plain.module.eval()
    with torch.no_grad(), Arithmetic().on(device):
        ours, expected = (
            model.call(plain.initial_params(), plain.initial_buffers(), objective.data.inputs, None)
            for model in (joined, plain)
        )
    assert torch.allclose(ours, expected, rtol=1e-4, atol=1e-5)


def test_what_lane_convolutions_take(device: torch.device) -> None:
    convolving = problem(*MODELS["padded and pooled"], device)
    dense = problem(nn.Sequential(nn.Flatten(), nn.Linear(12, CLASSES)), (3, 2, 2), device)
    path = LaneConvolutions()
    assert path.refusal(dense) == "the model has no convolution"
    on_gpu = "the model is not on a CUDA device" if device.type == "cpu" else None
    assert path.refusal(convolving) == on_gpu
    assert Vmap().refusal(convolving) is None
