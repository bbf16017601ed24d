"""ReLU and 2 x 2 max-pooling as one layer on a CPU, by loops that Numba compiles: the same numbers in less time.

Both only choose among numbers. Those above zero are ordered as the integers that their bits are, NaN above them all, so
that loops over integers serve every type, half precision included, at the full width of the machine. Of several NaN in
a block torch may choose another to pass a gradient to.
"""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from fairlead.numerics.native import compiled, has_numba

_BITS = {torch.bfloat16: torch.int16, torch.float32: torch.int32, torch.float64: torch.int64}
_FEWEST = 2**16
"""Below so many numbers, calling the loops costs more than they save."""
_UNSIGNED = {torch.int16: np.uint16, torch.int32: np.uint32, torch.int64: np.uint64}


Join = Callable[[Sequence[nn.Module]], "tuple[nn.Module, int] | None"]
"""The layer that stands for the first of some layers, and for how many; None if the first stays."""


def joined_pooling(module: nn.Module, join: Join | None = None) -> nn.Module:
    """A sequence of layers in which every ReLU that pooling follows does both, or any other module as it is.

    Layers keep their names and parameters; where they have hooks, nothing changes. `join` makes other layers than
    `ReluPool`, which needs Numba.
    """
    joined = join or (_relu_pool if has_numba() else None)
    if joined is None or type(module) is not nn.Sequential or _hooked(module):
        return module
    layers = {name: joined_pooling(layer, joined) for name, layer in module.named_children()}
    if len(layers) < len(module._modules):
        # A layer that is used twice has one name here.
        return module
    names = list(layers)
    for place, name in enumerate(names):
        if found := joined([layers[other] for other in names[place:]]):
            layers[name], number = found
            layers.update({other: nn.Identity() for other in names[place + 1 : place + number]})
    sequence = copy(module)
    sequence._modules = dict(layers)
    return sequence


def _relu_pool(layers: Sequence[nn.Module]) -> tuple[nn.Module, int] | None:
    return (ReluPool(), 2) if is_plain(layers[0], nn.ReLU) and len(layers) > 1 and halves(layers[1]) else None


def is_plain(layer: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a layer is of exactly this kind, and nobody else sees what goes through it."""
    return type(layer) is kind and not _hooked(layer)


def _hooked(module: nn.Module) -> bool:
    """Whether somebody else sees what goes through a module, or changed how it is called."""
    kinds = ("forward", "forward_pre", "backward", "backward_pre")
    return any(vars(module)[f"_{kind}_hooks"] for kind in kinds) or "forward" in vars(module)


def halves(layer: nn.Module) -> bool:
    """Whether a layer takes the largest of every 2 x 2 numbers and nothing else."""
    if not is_plain(layer, nn.MaxPool2d) or layer.ceil_mode or layer.return_indices:
        return False
    sizes = (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    return all(size in (wanted, (wanted, wanted)) for size, wanted in zip(sizes, (2, 2, 0, 1), strict=True))


class ReluPool(nn.Module):
    """max(0, x) over every 2 x 2 numbers of images."""

    def forward(self, images: Tensor) -> Tensor:
        fits = images.device.type == "cpu" and images.dtype in _BITS and images.numel() >= _FEWEST
        if not fits or not images.is_contiguous(memory_format=torch.channels_last):
            return F.max_pool2d(F.relu(images), 2)
        pooled: Tensor = _ReluPoolFunction.apply(images)  # type: ignore[no-untyped-call]
        return pooled


class _ReluPoolFunction(Function):
    """The step there, which remembers where each number came from, and the step back."""

    @staticmethod
    def forward(ctx: Any, images: Tensor) -> Tensor:
        num, channels, height, width = images.shape
        pooled = torch.empty((num, height // 2, width // 2, channels), dtype=images.dtype)
        source = torch.empty(pooled.shape, dtype=_BITS[images.dtype])
        negative = _bits(torch.tensor([-0.0, -torch.inf], dtype=images.dtype))
        compiled(_pool)(_bits(images.permute(0, 2, 3, 1)), *negative, _bits(pooled), source.numpy())
        ctx.save_for_backward(source)
        ctx.shape = images.shape
        return pooled.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (source,) = ctx.saved_tensors
        num, channels, height, width = ctx.shape
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        # An odd row or column at the end is in no block.
        create = torch.zeros if height % 2 or width % 2 else torch.empty
        spread = create((num, height, width, channels), dtype=gradient.dtype)
        compiled(_spread)(_bits(gradient.permute(0, 2, 3, 1)), source.numpy(), _bits(spread))
        return spread.permute(0, 3, 1, 2)


def _bits(numbers: Tensor) -> NDArray[Any]:
    """The same memory as unsigned integers."""
    bits = _BITS[numbers.dtype]
    return numbers.detach().view(bits).numpy().view(_UNSIGNED[bits])


def _pool(images: NDArray[Any], least: int, lowest: int, pooled: NDArray[Any], source: NDArray[Any]) -> None:
    """The largest of four numbers, the first of equal ones, and which it was; 0 and no source if none is positive.

    Bits from `least` to `lowest` are those of negative numbers, from −0 to −∞; beyond them NaN may have a sign.
    """
    zero = least ^ least
    for image in range(len(pooled)):
        for row in range(pooled.shape[1]):
            for column in range(pooled.shape[2]):
                a, b = images[image, 2 * row, 2 * column], images[image, 2 * row, 2 * column + 1]
                c, d = images[image, 2 * row + 1, 2 * column], images[image, 2 * row + 1, 2 * column + 1]
                best, place = pooled[image, row, column], source[image, row, column]
                for k in range(len(best)):
                    first = a[k] if a[k] < least or a[k] > lowest else zero
                    second = b[k] if b[k] < least or b[k] > lowest else zero
                    third = c[k] if c[k] < least or c[k] > lowest else zero
                    fourth = d[k] if d[k] < least or d[k] > lowest else zero
                    upper, lower = max(first, second), max(third, fourth)
                    largest = max(upper, lower)
                    best[k] = largest
                    above = 0 if first >= second else 1
                    below = 2 if third >= fourth else 3
                    place[k] = 4 if largest == zero else above if upper >= lower else below


def _spread(gradient: NDArray[Any], source: NDArray[Any], spread: NDArray[Any]) -> None:
    """Each number of the gradient where its source was, and zero around it."""
    zero = gradient.dtype.type(0)
    for image in range(len(gradient)):
        for row in range(gradient.shape[1]):
            for column in range(gradient.shape[2]):
                values, place = gradient[image, row, column], source[image, row, column]
                # One after another: a loop that writes to four places at once is not vectorized.
                for position in range(4):
                    here = spread[image, 2 * row + position // 2, 2 * column + position % 2]
                    for k in range(len(values)):
                        here[k] = values[k] if place[k] == position else zero
