"""Layers of many clients' networks at once inside `vmap`: convolutions joined with ReLU and pooling.

cuDNN runs a convolution over groups, which is what `vmap` makes of clients side by side, one group after another.
`convolution_triton` computes all of them at once.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from fairlead.worlds.engines.convolution_triton import ConvolutionSizes, convolve, gradients
from fairlead.worlds.engines.lanes import pixels_of
from fairlead.worlds.engines.relu_pool import halves, is_plain


class LaneKernels(TorchFunctionMode):
    """Runs convolutions inside `vmap` for all lanes at once."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.conv2d and (border := _border(*args, **kwargs)) is not None:
            images, weight, bias = (*args, kwargs.get("bias"))[:3]
            return _Convolution.apply(images, weight, bias, border, 0)  # type: ignore[no-untyped-call]
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


def joined_convolution(layers: Sequence[nn.Module]) -> tuple[nn.Module, int] | None:
    """One layer for a convolution and the ReLU and 2 x 2 pooling after it, and for how many it stands."""
    if len(layers) < 2 or not is_plain(layers[0], nn.Conv2d) or not is_plain(layers[1], nn.ReLU):
        return None
    convolution = layers[0]
    assert isinstance(convolution, nn.Conv2d)
    if convolution.padding_mode != "zeros":
        return None
    pool = 2 if len(layers) > 2 and halves(layers[2]) else 1
    return _JoinedConvolution(convolution, pool), pool + 1


class _JoinedConvolution(nn.Module):
    """max(0, convolution), and with `pool` 2 the largest of every 2 x 2 of them."""

    def __init__(self, convolution: nn.Conv2d, pool: int) -> None:
        super().__init__()
        self.weight, self.bias, self._pool = convolution.weight, convolution.bias, pool
        parts = (convolution.stride, convolution.padding, convolution.dilation, convolution.groups)
        self._windows: tuple[Any, ...] = parts

    def forward(self, images: Tensor) -> Tensor:
        border, side = _border(images, self.weight, self.bias, *self._windows), self.weight.shape[-1]
        if border is None or min(images.shape[-2:]) + 2 * border - side + 1 < self._pool:
            return _pooled(F.conv2d(images, self.weight, self.bias, *self._windows), self._pool)
        pooled: Tensor = _Convolution.apply(images, self.weight, self.bias, border, self._pool)  # type: ignore[no-untyped-call]
        return pooled


def _pooled(images: Tensor, pool: int) -> Tensor:
    return F.max_pool2d(F.relu(images), 2) if pool == 2 else F.relu(images) if pool else images


class _Convolution(Function):
    """A convolution of one client's images (B, C, H, W), which `vmap` runs for all lanes at once."""

    @staticmethod
    def forward(images: Tensor, weight: Tensor, bias: Tensor | None, border: int, pool: int) -> Tensor:
        result, *_ = _convolved(
            images[None], weight[None], None if bias is None else bias[None], border, pool
        )
        return result[0].movedim(-1, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Lanes have their own."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> tuple[Tensor, int]:
        lanes = [
            value
            if not isinstance(value, Tensor)
            else value.expand(info.batch_size, *value.shape)
            if dim is None
            else value.movedim(dim, 0)
            for value, dim in zip(arguments, in_dims, strict=True)
        ]
        return _LaneConvolution.apply(*lanes), 0  # type: ignore[no-untyped-call]


class _LaneConvolution(Function):
    """y[l, b, o] = Σ_c x[l, b, c] ⋆ w[l, o, c] + bias[l, o], for images (L, B, C, H, W).

    `pool` is 0 for that alone, 1 for max(0, y), 2 for the largest max(0, y) of every 2 x 2.
    """

    @staticmethod
    def forward(
        ctx: Any, images: Tensor, weight: Tensor, bias: Tensor | None, border: int, pool: int
    ) -> Tensor:
        result, last, source, layer = _convolved(images, weight, bias, border, pool)
        ctx.save_for_backward(last, source, weight)
        ctx.layer, ctx.biased = layer, bias is not None
        return result.movedim(-1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (images, source, weight), wanted = ctx.saved_tensors, ctx.needs_input_grad[0]
        last = gradient.movedim(2, -1).contiguous()
        by_images, by_weight, by_bias = gradients(images, last, source, weight, ctx.layer, by_images=wanted)
        by_images = None if by_images is None else by_images.movedim(-1, 2)
        return by_images, by_weight, by_bias if ctx.biased else None, None, None


def _convolved(
    images: Tensor, weight: Tensor, bias: Tensor | None, border: int, pool: int
) -> tuple[Tensor, Tensor, Tensor, ConvolutionSizes]:
    """Outputs (L, B, H', W', O) of images (L, B, C, H, W), and all that their gradient needs beside the weights."""
    last = _channels_last(images)
    height, width, pitch = last.shape[2:]
    outputs, channels, side = weight.shape[1:4]
    step = max(pool, 1)
    rows, columns = ((size + 2 * border - side + 1) // step for size in (height, width))
    precision = "tf32" if torch.backends.cudnn.allow_tf32 else "tf32x3"
    sizes = (height, width, pitch, channels, rows, columns, outputs, side, border, pool, step)
    layer = ConvolutionSizes(*sizes, precision)
    result, source = convolve(last, weight, bias, layer)
    return result, last, source, layer


def _channels_last(images: Tensor) -> Tensor:
    """Images (L, B, C, H, W) as (L, B, H, W, C) in memory, with a zero after three channels: four are read at once."""
    channels = images.shape[2]
    pixels = pixels_of(images.flatten(0, 1))
    if pixels is not None and pixels.shape[-1] == (4 if channels == 3 else channels):
        return pixels.view(*images.shape[:2], *pixels.shape[1:])
    last = images.movedim(2, -1)
    return F.pad(last, (0, 1)) if channels == 3 else last.contiguous()
