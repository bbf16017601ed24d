"""Crops, flips and normalization of images, those of a whole round by one Triton kernel."""

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from fairlead.models.augmentation import (
    HorizontalFlip,
    InputPipeline,
    Normalize,
    RandomCrop,
    salt_of,
    sent_once,
)
from fairlead.numerics.kernels_triton import keyed_word

_ORDER = (RandomCrop, HorizontalFlip, Normalize)
_PIXELS = 1024


def augments_images(pipeline: InputPipeline, inputs: Tensor, dtype: torch.dtype) -> bool:
    """Whether `augment_images` computes what a pipeline makes of such inputs."""
    kinds = [type(step) for step in pipeline.steps]
    known = kinds == [kind for kind in _ORDER if kind in kinds] and dtype == torch.float32
    return known and inputs.ndim == 4 and inputs.dtype in (torch.uint8, dtype) and inputs.is_contiguous()


def augment_images(pipeline: InputPipeline, inputs: Tensor, table: Tensor, out: Tensor) -> None:
    """Write images (n, C, H, W) as the model sees them into `out` (m, H, W, P), of which the last P − C stay zero.

    Columns of `table` (3, m) int64 are an image's row, the key of its step, and its place in the step's batch.
    """
    _, channels, height, width = inputs.shape
    steps = {type(step): (step, salt_of(place)) for place, step in enumerate(pipeline.steps, start=1)}
    crop, crop_salt = steps.get(RandomCrop, (None, 0))
    flip, flip_salt = steps.get(HorizontalFlip, (None, 0))
    normalize, _ = steps.get(Normalize, (Normalize(0.0, 1.0), 0))
    assert isinstance(normalize, Normalize)
    reach = 2 * crop.padding + 1 if isinstance(crop, RandomCrop) else 0
    # A number in [0, 1) is a word of 32 bits over 2³², and so are the bounds it meets.
    below = int(np.ceil(flip.probability * 2**32)) if isinstance(flip, HorizontalFlip) else 0
    constants = sent_once(normalize.constants(channels), inputs.device, torch.float32)
    # As torch divides bytes by 255 on a device.
    scale = float(np.float32(1) / np.float32(255)) if inputs.dtype == torch.uint8 else 1.0
    _change[(table.shape[1], triton.cdiv(height * width, _PIXELS))](
        *(inputs, table, out, constants, table.shape[1], scale, crop_salt, flip_salt, below),
        HEIGHT=height,
        WIDTH=width,
        CHANNELS=channels,
        PITCH=out.shape[-1],
        REACH=reach,
        FLIPS=below > 0,
        PIXELS=_PIXELS,
        NUMBERS=triton.next_power_of_2(out.shape[-1]),
    )


@triton.jit  # type: ignore[untyped-decorator]
def _change(
    inputs: tl.tensor, table: tl.tensor, out: tl.tensor, constants: tl.tensor, count: tl.tensor, scale: tl.tensor,
    crop_salt: tl.tensor, flip_salt: tl.tensor, flip_below: tl.tensor,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, PITCH: tl.constexpr,
    REACH: tl.constexpr, FLIPS: tl.constexpr, PIXELS: tl.constexpr, NUMBERS: tl.constexpr,
) -> None:  # fmt: skip
    """Some pixels of one image; `constants` are a mean and a deviation for each channel."""
    image = tl.program_id(0).to(tl.int64)
    row, key = tl.load(table + image), tl.load(table + count + image)
    position = tl.load(table + 2 * count + image)
    pixel, channel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS), tl.arange(0, NUMBERS)
    y, x = pixel // WIDTH, pixel % WIDTH
    if FLIPS:
        x = tl.where(keyed_word(key ^ flip_salt, position).to(tl.int64) < flip_below, WIDTH - 1 - x, x)
    if REACH > 0:
        down = keyed_word(key ^ crop_salt, 2 * position).to(tl.int64) * REACH >> 32
        right = keyed_word(key ^ crop_salt, 2 * position + 1).to(tl.int64) * REACH >> 32
        y, x = y + down.to(tl.int32) - REACH // 2, x + right.to(tl.int32) - REACH // 2
    real, used = pixel < HEIGHT * WIDTH, channel < CHANNELS
    inside = (real & (y >= 0) & (y < HEIGHT) & (x >= 0) & (x < WIDTH))[:, None] & used[None, :]
    at = (row * CHANNELS + channel)[None, :] * (HEIGHT * WIDTH) + (y * WIDTH + x)[:, None]
    values = tl.load(inputs + at, mask=inside, other=0).to(tl.float32) * scale
    mean = tl.load(constants + channel, mask=used, other=0.0)[None, :]
    deviation = tl.load(constants + CHANNELS + channel, mask=used, other=1.0)[None, :]
    values = tl.div_rn(tl.where(inside, values, 0.0) - mean, deviation + tl.zeros_like(values))
    place = image * (HEIGHT * WIDTH * PITCH) + pixel[:, None] * PITCH + channel[None, :]
    tl.store(out + place, values, mask=real[:, None] & (channel < PITCH)[None, :])
