"""Convolutions of many clients at once, each client with its own weights, with ReLU and pooling: Triton kernels.

A block of pixels of one client is multiplied with that client's weights, and the blocks of all clients run at once.
Where ReLU and 2 x 2 max-pooling follow, one kernel does all three: of four numbers only the largest is written, and a
byte that tells which it was. The way back reads the gradient by that byte, so neither the convolution's output nor its
gradient is ever in memory. Channels come last in memory.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fairlead.numerics.kernels_triton import padded

_PROGRAMS, _SPREAD = 1024, 1024
"""Programs that keep a device busy, until which sums over pixels are split; and numbers that are spread at once."""


class ConvolutionSizes(NamedTuple):
    """The sizes of a layer, for which its kernels are compiled."""

    HEIGHT: int
    WIDTH: int
    PITCH: int
    """Numbers of a pixel of the images: its channels, and one that is zero if they are three."""
    CHANNELS: int
    ROWS: int
    COLUMNS: int
    """Of the outputs, pooled."""
    OUTPUTS: int
    SIDE: int
    BORDER: int
    POOL: int
    STEP: int
    """Pixels from one pooled window to the next."""
    PRECISION: str


class Blocks(NamedTuple):
    """The block of a product that a program computes, and how."""

    PIXELS: int
    SUMMED: int
    """Numbers of the sum over windows; of a gradient by weights, the weights of an output."""
    ACROSS: int
    """Channels of the result; of a gradient by weights, outputs."""
    num_stages: int
    """Blocks on their way from memory. One goes through the first cache, in which windows overlap."""
    num_warps: int
    spread: bool = False
    """Whether to read the gradient by outputs before pooling, which is then written."""
    turned: bool = False
    """Whether to multiply windows with errors rather than errors with windows, for a gradient by weights."""

    @property
    def options(self) -> dict[str, int]:
        """For a kernel."""
        return dict(list(self._asdict().items())[:5])


TUNED: dict[tuple[str, int, int, int, int], Blocks] = {
    ("forward", 32, 3, 32, 2): Blocks(128, 16, 32, 1, 4),
    ("by_weights", 32, 3, 32, 2): Blocks(32, 64, 32, 1, 2, turned=True),
    ("forward", 15, 32, 64, 2): Blocks(64, 32, 64, 3, 4),
    ("by_images", 15, 32, 64, 2): Blocks(128, 32, 32, 3, 4, spread=True),
    ("by_weights", 15, 32, 64, 2): Blocks(16, 64, 64, 1, 2, turned=True),
    ("forward", 6, 64, 64, 1): Blocks(64, 32, 64, 3, 4),
    ("by_images", 6, 64, 64, 1): Blocks(64, 32, 64, 3, 4, spread=True),
    ("by_weights", 6, 64, 64, 1): Blocks(32, 64, 64, 1, 2, spread=True, turned=True),
}
"""The fastest on an H200 in TF32, for ten lanes of 64 images: kernel, height, channels, outputs and pooling of a layer.

They are those of `FiveLayerCNN` on images of 32 x 32."""


def blocks_of(kernel: str, layer: ConvolutionSizes) -> Blocks:
    """Blocks for a kernel of a layer: measured ones, or such as suit layers of its kind."""
    known = TUNED.get((kernel, layer.HEIGHT, layer.CHANNELS, layer.OUTPUTS, layer.POOL))
    if known is not None and layer.PRECISION == "tf32":
        return known
    if kernel == "forward":
        summed = min(padded(layer.SIDE * layer.PITCH), 32)
        return Blocks(64, summed, min(padded(layer.OUTPUTS), 64), 1 if summed == 16 else 3, 4)
    if kernel == "by_images":
        return Blocks(128, min(padded(layer.OUTPUTS), 32), min(padded(layer.CHANNELS), 64), 3, 4, spread=True)
    summed = min(padded(layer.SIDE**2 * layer.PITCH), 64)
    if layer.PRECISION != "tf32":
        # Three products for one would need more registers than there are.
        return Blocks(16, summed, min(padded(layer.OUTPUTS), 32), 1, 4, turned=True)
    return Blocks(16, summed, min(padded(layer.OUTPUTS), 64), 1, 2, turned=True)


def convolve(
    images: Tensor, weight: Tensor, bias: Tensor | None, layer: ConvolutionSizes
) -> tuple[Tensor, Tensor]:
    """Outputs (L, B, H', W', O) and their sources, of images (L, B, H, W, P), weights (L, O, C, h, w) and biases."""
    lanes, batch, outputs = len(images), images.shape[1], layer.OUTPUTS
    result = images.new_empty((lanes, batch, layer.ROWS, layer.COLUMNS, outputs))
    source = torch.empty(result.shape if layer.POOL else (1,), dtype=torch.int8, device=images.device)
    last = weight.permute(0, 1, 3, 4, 2)
    last = last if last[0].is_contiguous() else last.contiguous()
    pixels, blocks = batch * layer.ROWS * layer.COLUMNS, blocks_of("forward", layer)
    _forward[(triton.cdiv(pixels, blocks.PIXELS), triton.cdiv(outputs, blocks.ACROSS), lanes)](
        *(images, last, last.stride(0), bias, 0 if bias is None else bias.stride(0), result, source, pixels),
        **layer._asdict(),
        **blocks.options,
    )
    return result, source


def gradients(
    images: Tensor,
    gradient: Tensor,
    source: Tensor,
    weight: Tensor,
    layer: ConvolutionSizes,
    *,
    by_images: bool,
) -> tuple[Tensor | None, Tensor, Tensor]:
    """By images (L, B, H, W, C) if asked for, weights (L, O, C, h, w) and biases, from gradients (L, B, H', W', O)."""
    ours, theirs = blocks_of("by_images", layer), blocks_of("by_weights", layer)
    whole, spread = layer, gradient
    if layer.POOL and ((by_images and ours.spread) or theirs.spread):
        rows, columns = layer.ROWS * layer.STEP, layer.COLUMNS * layer.STEP
        whole = layer._replace(ROWS=rows, COLUMNS=columns, POOL=0, STEP=1)
        spread = gradient.new_empty((*gradient.shape[:2], rows, columns, layer.OUTPUTS))
        _spread[(triton.cdiv(gradient.numel(), _SPREAD),)](
            *(gradient, source, spread, gradient.numel(), columns, layer.OUTPUTS, layer.STEP)
        )
    images_gradient = None
    if by_images:
        read = (spread, whole) if ours.spread else (gradient, layer)
        images_gradient = _gradient_by_images(read[0], source, weight, read[1], ours)
    read = (spread, whole) if theirs.spread else (gradient, layer)
    return images_gradient, *_gradient_by_weights(images, *read, gradient, source, layer, theirs)


def _gradient_by_images(
    gradient: Tensor, source: Tensor, weight: Tensor, layer: ConvolutionSizes, blocks: Blocks
) -> Tensor:
    lanes, batch = gradient.shape[:2]
    result = gradient.new_empty((lanes, batch, layer.HEIGHT, layer.WIDTH, layer.CHANNELS))
    pixels = batch * layer.HEIGHT * layer.WIDTH
    _by_images[(triton.cdiv(pixels, blocks.PIXELS), triton.cdiv(layer.CHANNELS, blocks.ACROSS), lanes)](
        *(gradient, source, weight.permute(0, 2, 3, 4, 1).contiguous(), result, pixels),
        **layer._asdict(),
        **blocks.options,
    )
    return result


def _gradient_by_weights(
    images: Tensor,
    gradient: Tensor,
    layer: ConvolutionSizes,
    pooled: Tensor,
    source: Tensor,
    below: ConvolutionSizes,
    blocks: Blocks,
) -> tuple[Tensor, Tensor]:
    """By weights from a gradient that may be spread; by biases from the `pooled` one of the layer `below`."""
    lanes, batch, rows, columns, outputs = gradient.shape
    side, pixels = layer.SIDE, batch * rows * columns
    products = triton.cdiv(outputs, blocks.ACROSS) * triton.cdiv(side * side * layer.PITCH, blocks.SUMMED)
    # A power of two, since a kernel is compiled for each.
    steps = triton.next_power_of_2(triton.cdiv(pixels * products * lanes, blocks.PIXELS * _PROGRAMS))
    parts = triton.cdiv(pixels, blocks.PIXELS * steps)
    summed = side * side * layer.CHANNELS
    partial = images.new_empty((parts, lanes, outputs * (summed + 1)))
    _by_weights[(products + triton.cdiv(outputs, blocks.ACROSS), parts, lanes)](
        *(images, gradient, pooled, source, partial, pixels),
        STEPS=steps,
        FEWER=pixels // (batch * below.ROWS * below.COLUMNS),
        POOLED=below.POOL > 0,
        TURNED=blocks.turned,
        **layer._asdict(),
        **blocks.options,
    )
    whole = partial.sum(0) if parts > 1 else partial[0]
    by_weight, by_bias = torch.split(whole, [outputs * summed, outputs], 1)
    return by_weight.view(lanes, outputs, side, side, layer.CHANNELS).permute(0, 1, 4, 2, 3), by_bias


@triton.jit  # type: ignore[untyped-decorator]
def _forward(
    images: tl.tensor, weights: tl.tensor, weight_stride: tl.tensor, bias: tl.tensor, bias_stride: tl.tensor,
    result: tl.tensor, source: tl.tensor, pixels: tl.tensor,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, PITCH: tl.constexpr, CHANNELS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, OUTPUTS: tl.constexpr, SIDE: tl.constexpr, BORDER: tl.constexpr,
    POOL: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
    PIXELS: tl.constexpr, SUMMED: tl.constexpr, ACROSS: tl.constexpr,
) -> None:  # fmt: skip
    """Outputs at a block of pixels, whose windows are read row by row where the images lie.

    The numbers of a row of a window follow each other in memory. `weights` are (O, h, w, C), `source` is which of four
    numbers is the largest, 4 if none is positive.
    """
    lane, batch = tl.program_id(2).to(tl.int64), pixels // (ROWS * COLUMNS)
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    output = tl.program_id(1) * ACROSS + tl.arange(0, ACROSS)
    real, used = pixel < pixels, output < OUTPUTS
    image, inside = pixel // (ROWS * COLUMNS), pixel % (ROWS * COLUMNS)
    y, x = inside // COLUMNS * STEP - BORDER, inside % COLUMNS * STEP - BORDER
    images += lane * batch * (HEIGHT * WIDTH * PITCH)
    weights += lane * weight_stride
    first = tl.zeros((PIXELS, ACROSS), tl.float32)
    if POOL == 2:
        second, third, fourth = first, first, first
    for step in range(SIDE * tl.cdiv(SIDE * PITCH, SUMMED)):
        down = step // tl.cdiv(SIDE * PITCH, SUMMED)
        run = step % tl.cdiv(SIDE * PITCH, SUMMED) * SUMMED + tl.arange(0, SUMMED)
        at = down * (SIDE * CHANNELS) + run // PITCH * CHANNELS + run % PITCH
        filled = (run < SIDE * PITCH) & (run % PITCH < CHANNELS)
        factors = tl.load(
            weights + output[None, :] * (SIDE * SIDE * CHANNELS) + at[:, None],
            mask=filled[:, None] & used[None, :],
            other=0.0,
        )
        values = _windows(images, image, y, x, real, down, run, HEIGHT, WIDTH, PITCH, SIDE, BORDER)
        first = tl.dot(values, factors, first, input_precision=PRECISION)
        if POOL == 2:
            values = _windows(images, image, y, x + 1, real, down, run, HEIGHT, WIDTH, PITCH, SIDE, BORDER)
            second = tl.dot(values, factors, second, input_precision=PRECISION)
            values = _windows(images, image, y + 1, x, real, down, run, HEIGHT, WIDTH, PITCH, SIDE, BORDER)
            third = tl.dot(values, factors, third, input_precision=PRECISION)
            values = _windows(
                images, image, y + 1, x + 1, real, down, run, HEIGHT, WIDTH, PITCH, SIDE, BORDER
            )
            fourth = tl.dot(values, factors, fourth, input_precision=PRECISION)
    shift = tl.zeros((1, ACROSS), tl.float32)
    if bias is not None:
        shift = tl.load(bias + lane * bias_stride + output, mask=used, other=0.0)[None, :]
    best, chosen = first + shift, tl.zeros((PIXELS, ACROSS), tl.int32)
    if POOL == 2:
        best, chosen = _larger(best, chosen, second + shift, 1)
        best, chosen = _larger(best, chosen, third + shift, 2)
        best, chosen = _larger(best, chosen, fourth + shift, 3)
    place = lane * pixels * OUTPUTS + pixel[:, None] * OUTPUTS + output[None, :]
    written = real[:, None] & used[None, :]
    if POOL > 0:
        tl.store(source + place, tl.where(best <= 0, 4, chosen).to(tl.int8), mask=written)
        best = tl.where(best < 0, 0.0, best)
    tl.store(result + place, best, mask=written)


@triton.jit  # type: ignore[untyped-decorator]
def _windows(
    images: tl.tensor, image: tl.tensor, y: tl.tensor, x: tl.tensor, real: tl.tensor, down: tl.tensor, run: tl.tensor,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, PITCH: tl.constexpr, SIDE: tl.constexpr, BORDER: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Numbers `run` of the row `down` of the windows that begin at some pixels."""
    known = real[:, None] & (run < SIDE * PITCH)[None, :]
    if BORDER > 0:
        column = x[:, None] + (run // PITCH)[None, :]
        known &= ((y + down >= 0) & (y + down < HEIGHT))[:, None] & (column >= 0) & (column < WIDTH)
    begin = ((image * HEIGHT + y + down) * WIDTH + x) * PITCH
    return tl.load(images + begin[:, None] + run[None, :], mask=known, other=0.0)


@triton.jit  # type: ignore[untyped-decorator]
def _larger(best: tl.tensor, chosen: tl.tensor, other: tl.tensor, place: tl.constexpr) -> tl.tensor:
    """The larger of two numbers and its place; as torch's, which lets NaN pass."""
    wins = (other > best) | (other != other)
    return tl.where(wins, other, best), tl.where(wins, place, chosen)


@triton.jit  # type: ignore[untyped-decorator]
def _by_images(
    gradient: tl.tensor, source: tl.tensor, weights: tl.tensor, result: tl.tensor, pixels: tl.tensor,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, PITCH: tl.constexpr, CHANNELS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, OUTPUTS: tl.constexpr, SIDE: tl.constexpr, BORDER: tl.constexpr,
    POOL: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
    PIXELS: tl.constexpr, SUMMED: tl.constexpr, ACROSS: tl.constexpr,
) -> None:  # fmt: skip
    """The gradient by a block of pixels of the images; `weights` are (C, h, w, O)."""
    lane, batch = tl.program_id(2).to(tl.int64), pixels // (HEIGHT * WIDTH)
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    channel = tl.program_id(1) * ACROSS + tl.arange(0, ACROSS)
    real, used = pixel < pixels, channel < CHANNELS
    image, inside = pixel // (HEIGHT * WIDTH), pixel % (HEIGHT * WIDTH)
    y, x = inside // WIDTH + BORDER, inside % WIDTH + BORDER
    gradient += lane * batch * (ROWS * COLUMNS * OUTPUTS)
    source += lane * batch * (ROWS * COLUMNS * OUTPUTS)
    weights += lane * (CHANNELS * SIDE * SIDE * OUTPUTS)
    total = tl.zeros((PIXELS, ACROSS), tl.float32)
    for step in range(SIDE * SIDE * tl.cdiv(OUTPUTS, SUMMED)):
        tap = step // tl.cdiv(OUTPUTS, SUMMED)
        output = step % tl.cdiv(OUTPUTS, SUMMED) * SUMMED + tl.arange(0, SUMMED)
        row, column, filled = y - tap // SIDE, x - tap % SIDE, output < OUTPUTS
        known = real & (row >= 0) & (row < ROWS * STEP) & (column >= 0) & (column < COLUMNS * STEP)
        place = (image * ROWS + row // STEP) * COLUMNS + column // STEP
        place = place[:, None] * OUTPUTS + output[None, :]
        errors = tl.load(gradient + place, mask=known[:, None] & filled[None, :], other=0.0)
        if POOL > 0:
            chosen = tl.load(source + place, mask=known[:, None] & filled[None, :], other=4)
            errors = tl.where(chosen == (row % STEP * STEP + column % STEP)[:, None], errors, 0.0)
        factors = tl.load(
            weights + channel[None, :] * (SIDE * SIDE * OUTPUTS) + (tap * OUTPUTS + output)[:, None],
            mask=used[None, :] & filled[:, None],
            other=0.0,
        )
        total = tl.dot(errors, factors, total, input_precision=PRECISION)
    place = lane * pixels * CHANNELS + pixel[:, None] * CHANNELS + channel[None, :]
    tl.store(result + place, total, mask=real[:, None] & used[None, :])


@triton.jit  # type: ignore[untyped-decorator]
def _by_weights(
    images: tl.tensor, gradient: tl.tensor, pooled: tl.tensor, source: tl.tensor, partial: tl.tensor, pixels: tl.tensor,
    STEPS: tl.constexpr, FEWER: tl.constexpr, POOLED: tl.constexpr, TURNED: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, PITCH: tl.constexpr, CHANNELS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, OUTPUTS: tl.constexpr, SIDE: tl.constexpr, BORDER: tl.constexpr,
    POOL: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
    PIXELS: tl.constexpr, SUMMED: tl.constexpr, ACROSS: tl.constexpr,
) -> None:  # fmt: skip
    """A block of a client's gradient by weights (O, h · w · C) or, last, by biases (O,), over a part of the pixels."""
    lane, part, products = (
        tl.program_id(2).to(tl.int64),
        tl.program_id(1),
        tl.cdiv(SIDE * SIDE * PITCH, SUMMED),
    )
    images += lane * (pixels // (ROWS * COLUMNS)) * (HEIGHT * WIDTH * PITCH)
    gradient += lane * pixels * OUTPUTS
    pooled += lane * (pixels // FEWER) * OUTPUTS
    source += lane * (pixels // FEWER) * OUTPUTS
    partial += (part * tl.num_programs(2) + lane) * (OUTPUTS * (SIDE * SIDE * CHANNELS + 1))
    if tl.program_id(0) < products * tl.cdiv(OUTPUTS, ACROSS):
        output = tl.program_id(0) // products * ACROSS + tl.arange(0, ACROSS)
        at = tl.program_id(0) % products * SUMMED + tl.arange(0, SUMMED)
        filled, down, run = at < SIDE * SIDE * PITCH, at // (SIDE * PITCH), at % (SIDE * PITCH)
        total = tl.zeros((SUMMED, ACROSS) if TURNED else (ACROSS, SUMMED), tl.float32)
        for step in range(STEPS):
            pixel = (part * STEPS + step) * PIXELS + tl.arange(0, PIXELS)
            image, inside = pixel // (ROWS * COLUMNS), pixel % (ROWS * COLUMNS)
            place = pixel[:, None] * OUTPUTS + output[None, :]
            real = (pixel < pixels)[:, None]
            errors = tl.load(gradient + place, mask=real & (output < OUTPUTS)[None, :], other=0.0)
            if POOL > 0:
                chosen = tl.load(source + place, mask=real & (output < OUTPUTS)[None, :], other=4)
            for corner in tl.static_range(STEP * STEP):
                y = inside // COLUMNS * STEP - BORDER + corner // 2
                x = inside % COLUMNS * STEP - BORDER + corner % 2
                known = real & filled[None, :]
                if BORDER > 0:
                    row, column = y[:, None] + down[None, :], x[:, None] + (run // PITCH)[None, :]
                    known &= (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH)
                begin, shift = ((image * HEIGHT + y) * WIDTH + x) * PITCH, down * (WIDTH * PITCH) + run
                values = tl.load(images + begin[:, None] + shift[None, :], mask=known, other=0.0)
                here = errors
                if POOL > 0:
                    here = tl.where(chosen == corner, errors, 0.0)
                if TURNED:
                    total = tl.dot(tl.trans(values), here, total, input_precision=PRECISION)
                else:
                    total = tl.dot(tl.trans(here), values, total, input_precision=PRECISION)
        if TURNED:
            total = tl.trans(total)
        place = output[:, None] * (SIDE * SIDE * CHANNELS) + (at // PITCH * CHANNELS + at % PITCH)[None, :]
        filled &= at % PITCH < CHANNELS
        tl.store(partial + place, total, mask=(output < OUTPUTS)[:, None] & filled[None, :])
    else:
        output = tl.program_id(0) - products * tl.cdiv(OUTPUTS, ACROSS)
        output = output * ACROSS + tl.arange(0, ACROSS)
        sums = tl.zeros((PIXELS, ACROSS), tl.float32)
        for step in range(tl.cdiv(STEPS, FEWER)):
            pixel = (part * tl.cdiv(STEPS, FEWER) + step) * PIXELS + tl.arange(0, PIXELS)
            place = pixel[:, None] * OUTPUTS + output[None, :]
            real = (pixel < pixels // FEWER)[:, None] & (output < OUTPUTS)[None, :]
            errors = tl.load(pooled + place, mask=real, other=0.0)
            if POOLED:
                errors = tl.where(tl.load(source + place, mask=real, other=4) == 4, 0.0, errors)
            sums += errors
        tl.store(
            partial + OUTPUTS * (SIDE * SIDE * CHANNELS) + output, tl.sum(sums, 0), mask=output < OUTPUTS
        )


@triton.jit  # type: ignore[untyped-decorator]
def _spread(
    gradient: tl.tensor, source: tl.tensor, spread: tl.tensor, size: tl.tensor,
    COLUMNS: tl.constexpr, OUTPUTS: tl.constexpr, STEP: tl.constexpr, NUMBERS: tl.constexpr = _SPREAD,
) -> None:  # fmt: skip
    """Each number of the gradient where its source was, and zero around it."""
    place = tl.program_id(0) * NUMBERS + tl.arange(0, NUMBERS)
    values = tl.load(gradient + place, mask=place < size, other=0.0)
    chosen = tl.load(source + place, mask=place < size, other=4)
    output, pixel = place % OUTPUTS, place // OUTPUTS
    line, column = pixel // (COLUMNS // STEP), pixel % (COLUMNS // STEP)
    at = (line.to(tl.int64) * STEP * COLUMNS + column * STEP) * OUTPUTS + output
    for corner in tl.static_range(STEP * STEP):
        here = spread + at + (corner // STEP * COLUMNS + corner % STEP) * OUTPUTS
        tl.store(here, tl.where(chosen == corner, values, 0.0), mask=place < size)
