"""Convolutions of many clients at once, each client with its own kernels, and ReLU with pooling: Triton kernels.

cuDNN runs a convolution over groups, which is what `vmap` makes of clients side by side, one group after another. Here
a block of pixels of one client is multiplied with that client's weights, and the blocks of all clients run at once.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_PIXELS, _SUMMED, _CHANNELS, _SPREAD = 128, 32, 64, 1024
"""A block of a product: pixels, numbers that are summed at once, and channels at most; and numbers that are pooled."""
_PROGRAMS = 1024
"""Programs that keep a device busy: sums over pixels are split until there are as many."""


class LaneKernels(TorchFunctionMode):
    """Runs convolutions inside `vmap` for all lanes at once."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.conv2d and (border := _border(*args, **kwargs)) is not None:
            images, weight, bias = (*args, kwargs.get("bias"))[:3]
            return _Convolution.apply(images, weight, bias, border)  # type: ignore[no-untyped-call]
        if func is F.linear and args[0].ndim == 2:
            # `vmap` would multiply the bias by one, and its gradient again.
            inputs, weight, bias = (*args, kwargs.get("bias"))[:3]
            return inputs @ weight.mT if bias is None else inputs @ weight.mT + bias
        return func(*args, **kwargs)


def _border(
    images: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> int | None:
    """Zeros around the images of a convolution with odd, square windows in steps of one pixel; None for any other."""
    height, width = weight.shape[-2:]
    borders = (
        {"same": (width // 2,), "valid": (0,)}.get(padding, padding) if isinstance(padding, str) else padding
    )
    border, *others = {borders} if isinstance(borders, int) else set(borders)
    plain = all(value in (1, (1, 1)) for value in (stride, dilation, groups)) and height == width
    fits = plain and not others and width % 2 and border < width and images.ndim == 4
    return int(border) if fits and images.dtype == weight.dtype == torch.float32 else None


class _Convolution(Function):
    """A convolution of one client's images (B, C, H, W), which `vmap` runs for all lanes at once."""

    @staticmethod
    def forward(images: Tensor, weight: Tensor, bias: Tensor | None, border: int) -> Tensor:
        return F.conv2d(images, weight, bias, padding=border)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Lanes have their own."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> tuple[Tensor, int]:
        return _LaneConvolution.apply(*_lanes(info, in_dims, arguments)), 0  # type: ignore[no-untyped-call]


class LaneReluPool(nn.Module):
    """max(0, x) over every 2 x 2 numbers of images, inside `vmap` for all lanes at once."""

    def forward(self, images: Tensor) -> Tensor:
        pooled: Tensor = _ReluPooling.apply(images)  # type: ignore[no-untyped-call]
        return pooled


class _ReluPooling(Function):
    @staticmethod
    def forward(images: Tensor) -> Tensor:
        return F.max_pool2d(F.relu(images), 2)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Lanes have their own."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> tuple[Tensor, int]:
        return _LaneReluPooling.apply(*_lanes(info, in_dims, arguments)), 0  # type: ignore[no-untyped-call]


def _lanes(info: Any, in_dims: Any, arguments: tuple[Any, ...]) -> list[Any]:
    """Arguments with their lanes first."""
    return [
        value
        if not isinstance(value, Tensor)
        else value.expand(info.batch_size, *value.shape)
        if dim is None
        else value.movedim(dim, 0)
        for value, dim in zip(arguments, in_dims, strict=True)
    ]


class _LaneConvolution(Function):
    """y[l, b, o] = Σ_c x[l, b, c] ⋆ w[l, o, c] + bias[l, o], for images (L, B, C, H, W)."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, bias: Tensor | None, border: int) -> Tensor:
        last = images.movedim(2, -1).contiguous()
        ctx.save_for_backward(last, weight)
        ctx.border, ctx.biased = border, bias is not None
        return _convolve(last, weight.permute(0, 1, 3, 4, 2), bias, border)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (images, weight), side = ctx.saved_tensors, ctx.saved_tensors[1].shape[-1]
        last, by_images = gradient.movedim(2, -1).contiguous(), None
        if ctx.needs_input_grad[0]:
            turned = weight.permute(0, 2, 3, 4, 1)
            by_images = _convolve(last, turned, None, side - 1 - ctx.border, mirrored=True)
        by_weight, by_bias = _weight_gradient(images, last, side, ctx.border)
        return by_images, by_weight, by_bias if ctx.biased else None, None


def _precision() -> str:
    return "tf32" if torch.backends.cudnn.allow_tf32 else "tf32x3"


def _block(number: int) -> int:
    """The next power of two, 16 at least, as block products need."""
    return min(max(1 << (number - 1).bit_length(), 16), _CHANNELS)


def _convolve(
    images: Tensor, weight: Tensor, bias: Tensor | None, border: int, *, mirrored: bool = False
) -> Tensor:
    """(L, B, O, H', W') in memory channels last, of images (L, B, H, W, C) and weights (L, O, h, w, C)."""
    lanes, batch, height, width, channels = images.shape
    outputs, side = weight.shape[1:3]
    rows, columns = height + 2 * border - side + 1, width + 2 * border - side + 1
    result = images.new_empty((lanes, batch, rows, columns, outputs))
    weight = weight if weight[0].is_contiguous() else weight.contiguous()
    pixels, chosen = batch * rows * columns, _block(outputs)
    _products[(triton.cdiv(pixels, _PIXELS), triton.cdiv(outputs, chosen), lanes)](
        *(images, weight, weight.stride(0), bias, 0 if bias is None else bias.stride(0), result, pixels),
        *(height, width, channels, rows, columns, outputs),
        SIDE=side,
        BORDER=border,
        MIRRORED=mirrored,
        OUTPUTS=chosen,
        PRECISION=_precision(),
    )
    return result.movedim(-1, 2)


def _weight_gradient(images: Tensor, gradient: Tensor, side: int, border: int) -> tuple[Tensor, Tensor]:
    """By weights (L, O, C, h, w) and biases (L, O), from images (L, B, H, W, C) and gradients (L, B, H', W', O)."""
    lanes, batch, height, width, channels = images.shape
    rows, columns, outputs = gradient.shape[2:]
    summed, pixels = side * side * channels, batch * rows * columns
    chosen, across = _block(outputs), _block(summed)
    blocks = triton.cdiv(outputs, chosen) * triton.cdiv(summed, across)
    parts = min(max(_PROGRAMS // (blocks * lanes), 1), triton.cdiv(pixels, 8 * _CHANNELS))
    partial = images.new_empty((parts, lanes, outputs * (summed + 1)))
    _weight_products[(blocks, parts, lanes)](
        *(images, gradient, partial, pixels, height, width, channels, rows, columns, outputs),
        SIDE=side,
        BORDER=border,
        OUTPUTS=chosen,
        ACROSS=across,
        PRECISION=_precision(),
    )
    whole = partial.sum(0) if parts > 1 else partial[0]
    by_weight, by_bias = torch.split(whole, [outputs * summed, outputs], 1)
    return by_weight.view(lanes, outputs, side, side, channels).permute(0, 1, 4, 2, 3), by_bias


class _LaneReluPooling(Function):
    """max(0, x) over every 2 x 2 numbers; the first of equal ones gets the gradient."""

    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        last = images.movedim(2, -1).contiguous()
        lanes, batch, height, width, channels = last.shape
        pooled = last.new_empty((lanes, batch, height // 2, width // 2, channels))
        source = torch.empty(pooled.shape, dtype=torch.int8, device=last.device)
        size = pooled.numel()
        _pool[(triton.cdiv(size, _SPREAD),)](last, pooled, source, size, height, width, channels)
        ctx.save_for_backward(source)
        ctx.shape = last.shape
        return pooled.movedim(-1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (source,), (*_, height, width, channels) = ctx.saved_tensors, ctx.shape
        last = gradient.movedim(2, -1).contiguous()
        # An odd row or column at the end is in no block.
        spread = (last.new_zeros if height % 2 or width % 2 else last.new_empty)(ctx.shape)
        size = last.numel()
        _spread[(triton.cdiv(size, _SPREAD),)](last, spread, source, size, height, width, channels)
        return spread.movedim(-1, 2)


@triton.jit  # type: ignore[untyped-decorator]
def _products(
    images: tl.tensor,
    weights: tl.tensor,
    weight_stride: tl.tensor,
    bias: tl.tensor,
    bias_stride: tl.tensor,
    result: tl.tensor,
    pixels: tl.tensor,
    height: tl.constexpr,
    width: tl.constexpr,
    channels: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    outputs: tl.constexpr,
    SIDE: tl.constexpr,
    BORDER: tl.constexpr,
    MIRRORED: tl.constexpr,
    OUTPUTS: tl.constexpr,
    PRECISION: tl.constexpr,
    PIXELS: tl.constexpr = _PIXELS,
    SUMMED: tl.constexpr = _SUMMED,
) -> None:
    """Outputs at a block of pixels, whose windows are gathered where the images lie."""
    lane, size = tl.program_id(2).to(tl.int64), SIDE * SIDE * channels
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    output = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    real, used = pixel < pixels, output < outputs
    image, inside = pixel // (rows * columns), pixel % (rows * columns)
    y, x = inside // columns - BORDER, inside % columns - BORDER
    corner = ((image * height + y) * width + x) * channels
    images += lane * (pixels // (rows * columns)) * height * width * channels
    weights += lane * weight_stride
    total = tl.zeros((PIXELS, OUTPUTS), tl.float32)
    for begin in range(0, size, SUMMED):
        at = begin + tl.arange(0, SUMMED)
        tap, channel = at // channels, at % channels
        down, right, filled = tap // SIDE, tap % SIDE, at < size
        known = real[:, None] & filled[None, :]
        if BORDER > 0:
            known &= (y[:, None] + down[None, :] >= 0) & (y[:, None] + down[None, :] < height)
            known &= (x[:, None] + right[None, :] >= 0) & (x[:, None] + right[None, :] < width)
        shift = (down * width + right) * channels + channel
        values = tl.load(images + corner[:, None] + shift[None, :], mask=known, other=0.0)
        if MIRRORED:
            at = (SIDE * SIDE - 1 - tap) * channels + channel
        factors = tl.load(
            weights + output[None, :] * size + at[:, None], mask=used[None, :] & filled[:, None], other=0.0
        )
        total = tl.dot(values, factors, total, input_precision=PRECISION)
    if bias is not None:
        total += tl.load(bias + lane * bias_stride + output, mask=used, other=0.0)[None, :]
    result += lane * pixels * outputs
    tl.store(result + pixel[:, None] * outputs + output[None, :], total, mask=real[:, None] & used[None, :])


@triton.jit  # type: ignore[untyped-decorator]
def _weight_products(
    images: tl.tensor,
    gradient: tl.tensor,
    partial: tl.tensor,
    pixels: tl.tensor,
    height: tl.constexpr,
    width: tl.constexpr,
    channels: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    outputs: tl.constexpr,
    SIDE: tl.constexpr,
    BORDER: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ACROSS: tl.constexpr,
    PRECISION: tl.constexpr,
    PIXELS: tl.constexpr = _CHANNELS,
) -> None:
    """A block of a client's gradient by weights (O, h · w · C), then by biases (O,), over a part of the pixels."""
    lane, part, size = tl.program_id(2).to(tl.int64), tl.program_id(1), SIDE * SIDE * channels
    across = tl.cdiv(size, ACROSS)
    output = tl.program_id(0) // across * OUTPUTS + tl.arange(0, OUTPUTS)
    at = tl.program_id(0) % across * ACROSS + tl.arange(0, ACROSS)
    used, filled, tap = output < outputs, at < size, at // channels
    down, right = tap // SIDE, tap % SIDE
    shift = (down * width + right) * channels + at % channels
    images += lane * (pixels // (rows * columns)) * height * width * channels
    gradient += lane * pixels * outputs
    share = tl.cdiv(tl.cdiv(pixels, PIXELS), tl.num_programs(1)) * PIXELS
    total = tl.zeros((OUTPUTS, ACROSS), tl.float32)
    bias_total = tl.zeros((OUTPUTS,), tl.float32)
    for begin in range(part * share, min((part + 1) * share, pixels), PIXELS):
        pixel = begin + tl.arange(0, PIXELS)
        real = pixel < pixels
        image, inside = pixel // (rows * columns), pixel % (rows * columns)
        y, x = inside // columns - BORDER, inside % columns - BORDER
        corner = ((image * height + y) * width + x) * channels
        known = real[:, None] & filled[None, :]
        if BORDER > 0:
            known &= (y[:, None] + down[None, :] >= 0) & (y[:, None] + down[None, :] < height)
            known &= (x[:, None] + right[None, :] >= 0) & (x[:, None] + right[None, :] < width)
        values = tl.load(images + corner[:, None] + shift[None, :], mask=known, other=0.0)
        errors = tl.load(
            gradient + pixel[None, :] * outputs + output[:, None],
            mask=real[None, :] & used[:, None],
            other=0.0,
        )
        total = tl.dot(errors, values, total, input_precision=PRECISION)
        bias_total += tl.sum(errors, 1)
    partial += (part * tl.num_programs(2) + lane) * outputs * (size + 1)
    tl.store(partial + output[:, None] * size + at[None, :], total, mask=used[:, None] & filled[None, :])
    leads = used & (tl.program_id(0) % across == 0)
    tl.store(partial + outputs * size + output, bias_total, mask=leads)


@triton.jit  # type: ignore[untyped-decorator]
def _window(place: tl.tensor, height: tl.constexpr, width: tl.constexpr, channels: tl.constexpr) -> tl.tensor:
    """Where the 2 x 2 numbers of pooled ones begin."""
    channel, pixel = place % channels, place // channels
    column, line = pixel % (width // 2), pixel // (width // 2)
    row, image = line % (height // 2), (line // (height // 2)).to(tl.int64)
    return ((image * height + 2 * row) * width + 2 * column) * channels + channel


@triton.jit  # type: ignore[untyped-decorator]
def _pool(
    images: tl.tensor,
    pooled: tl.tensor,
    source: tl.tensor,
    size: tl.tensor,
    height: tl.constexpr,
    width: tl.constexpr,
    channels: tl.constexpr,
    SIZE: tl.constexpr = _SPREAD,
) -> None:
    place = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    real, at = place < size, images + _window(place, height, width, channels)
    best, chosen = tl.load(at, mask=real, other=0.0), tl.zeros((SIZE,), tl.int8)
    for corner in tl.static_range(1, 4):
        other = tl.load(at + (corner // 2 * width + corner % 2) * channels, mask=real, other=0.0)
        # As torch's, which lets NaN pass.
        wins = (other > best) | (other != other)
        best, chosen = tl.where(wins, other, best), tl.where(wins, corner, chosen).to(tl.int8)
    tl.store(pooled + place, tl.where(best < 0, 0.0, best), mask=real)
    tl.store(source + place, tl.where(best <= 0, 4, chosen).to(tl.int8), mask=real)


@triton.jit  # type: ignore[untyped-decorator]
def _spread(
    gradient: tl.tensor,
    spread: tl.tensor,
    source: tl.tensor,
    size: tl.tensor,
    height: tl.constexpr,
    width: tl.constexpr,
    channels: tl.constexpr,
    SIZE: tl.constexpr = _SPREAD,
) -> None:
    """Each number of the gradient where its source was, and zero around it."""
    place = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    real, at = place < size, spread + _window(place, height, width, channels)
    values = tl.load(gradient + place, mask=real, other=0.0)
    chosen = tl.load(source + place, mask=real, other=4)
    for corner in tl.static_range(4):
        here = at + (corner // 2 * width + corner % 2) * channels
        tl.store(here, tl.where(chosen == corner, values, 0.0), mask=real)
