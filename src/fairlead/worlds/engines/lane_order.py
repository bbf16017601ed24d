"""`LaneOrder`: the order in which lanes keep the parameters of a model that convolves."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fairlead.parameters import FlatModule


class LaneOrder:
    """The model's flat vector with the kernels of convolutions turned, channels last: (O, H, W, I) for (O, I, H, W).

    So they lie in memory as do the images they meet. Otherwise every step would turn each kernel on its way in, and
    its gradient on its way out, which for large kernels costs a third as much as the convolutions.
    """

    def __init__(self, model: FlatModule) -> None:
        self._model, self._turned = model, _kernels(model.module)

    def arranged(self, vectors: Tensor) -> Tensor:
        """Vectors (..., d) of the model as lanes keep them."""
        pieces = []
        for name, shape, piece in self._pieces(vectors):
            if name in self._turned:
                piece = piece.view(*piece.shape[:-1], *shape).movedim(-3, -1).flatten(-4)
            pieces.append(piece)
        return torch.cat(pieces, -1)

    def restored(self, vectors: Tensor) -> Tensor:
        """Vectors (..., d) of lanes as the model has them."""
        return torch.cat([values.flatten(vectors.ndim - 1) for values in self.named(vectors).values()], -1)

    def named(self, vectors: Tensor) -> dict[str, Tensor]:
        """Parameters by name that share memory with vectors (..., d) of lanes."""
        named: dict[str, Tensor] = {}
        for name, shape, piece in self._pieces(vectors):
            if name in self._turned:
                outputs, inputs, height, width = shape
                turned = piece.view(*piece.shape[:-1], outputs, height, width, inputs)
                named[name] = turned.movedim(-1, -3)
            else:
                named[name] = piece.view(*piece.shape[:-1], *shape)
        return named

    def _pieces(self, vectors: Tensor) -> zip[tuple[str, torch.Size, Tensor]]:
        model = self._model
        return zip(model.names, model.shapes, torch.split(vectors, model.sizes, -1), strict=True)


def _kernels(module: nn.Module) -> frozenset[str]:
    """Names of the weights of plain convolutions of images."""
    return frozenset(
        f"{name}.weight".lstrip(".")
        for name, part in module.named_modules()
        if type(part) is nn.Conv2d and "weight" in part._parameters
    )
