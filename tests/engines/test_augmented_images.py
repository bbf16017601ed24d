"""Augmentation of a round's images by one kernel: the numbers of the augmentations themselves."""

from __future__ import annotations

import os

import pytest
import torch
from torch import nn

import fairlead as fl
from fairlead.models.augmentation import Augmentation, InputPipeline
from fairlead.parameters import FlatModule
from fairlead.task import cross_entropy
from fairlead.worlds.engines.augmented import AugmentedInputs
from fairlead.worlds.engines.base import LocalJobs, LocalSteps, Objective
from fairlead.worlds.engines.lanes import pixels_of

PIPELINES: dict[str, tuple[Augmentation, ...]] = {
    "all": (fl.RandomCrop(2), fl.HorizontalFlip(0.4), fl.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))),
    "crop": (fl.RandomCrop(1),),
    "flip": (fl.HorizontalFlip(),),
    "flip, then normalize": (fl.HorizontalFlip(1.0), fl.Normalize(0.5, 0.25)),
    "normalize": (fl.Normalize(0.5, (0.2, 0.3, 0.4)),),
}


def problem(
    steps: tuple[Augmentation, ...], shape: tuple[int, ...], pixels: bool, device: torch.device
) -> Objective:
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 256, (40, *shape), generator=draw, dtype=torch.uint8)
    data = fl.ClientData(
        inputs if pixels else inputs.float() / 100,
        torch.randint(0, 4, (40,), generator=draw),
        torch.tensor([0, 40]),
    )
    module = nn.Sequential(nn.Conv2d(shape[0], 2, 3), nn.Flatten(), nn.LazyLinear(4))
    module(torch.zeros(1, *shape))
    model = FlatModule(module, InputPipeline(steps)).to(device, torch.float32)
    return Objective.build(model, cross_entropy, data.to(device, torch.float32))


def work(objective: Objective) -> LocalJobs:
    """Two clients with batches of unequal width, of which some are short."""
    draw = torch.Generator().manual_seed(1)
    batches = [torch.randint(0, 40, (3, 5), generator=draw), torch.randint(0, 40, (2, 4), generator=draw)]
    batches[0][2, 3:] = -1
    noise = [torch.randint(-(2**62), 2**62, (len(rows) + 1,), generator=draw) for rows in batches]
    steps = LocalSteps(fl.LocalSolver(fl.SGD(lr=0.1)), batches, noise, torch.zeros(3, dtype=torch.float64))
    model = objective.model
    return LocalJobs(range(2), steps, model.initial_params(), model.initial_buffers(), {}, {})


@pytest.mark.parametrize("pixels", [False, True])
@pytest.mark.parametrize("name", PIPELINES)
def test_one_kernel_gives_the_numbers_of_the_augmentations(
    name: str, pixels: bool, device: torch.device
) -> None:
    """On a GPU, or on a CPU where `TRITON_INTERPRET=1` lets Triton interpret its kernels."""
    pytest.importorskip("triton")
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1")
    objective = problem(PIPELINES[name], (3, 6, 7), pixels, device)
    rooms = [AugmentedInputs(objective, by_kernel=by_kernel) for by_kernel in (True, False)]
    jobs = work(objective)
    (ours, our_jobs), (expected, _) = (room.load(jobs) for room in rooms)
    used = torch.cat([rows[rows >= 0] for rows in our_jobs.steps.batches])
    assert torch.allclose(ours.data.inputs[used], expected.data.inputs[used], rtol=1e-6, atol=1e-6)
    assert torch.equal(ours.data.targets[used], expected.data.targets[used])
    # A fourth number after three channels is zero.
    room = pixels_of(ours.data.inputs)
    assert room is not None
    assert room.shape[1:] == (6, 7, 4)
    assert not room[..., 3].any()


def test_images_that_lie_otherwise_are_no_pixels() -> None:
    images = torch.zeros(2, 6, 7, 4)
    whole = pixels_of(images.permute(0, 3, 1, 2))
    assert whole is not None
    assert whole.shape == images.shape
    assert pixels_of(torch.zeros(2, 3, 6, 7)) is None
    assert pixels_of(torch.zeros(2, 3, 6)) is None
    # The last pixel would end beyond the memory of the images.
    assert pixels_of(images[..., 1:].permute(0, 3, 1, 2)) is None
    assert pixels_of(images[:1].expand(2, 6, 7, 4).permute(0, 3, 1, 2)) is None
