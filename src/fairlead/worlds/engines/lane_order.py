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

    def __init__(self, model: FlatModule, device: torch.device) -> None:
        self._model, self._turned = model, _kernels(model.module)
        places = torch.arange(sum(model.sizes), device=device)
        pieces = model.unflatten(places)
        self._order = torch.cat(
            [
                (piece.permute(0, 2, 3, 1) if name in self._turned else piece).flatten()
                for name, piece in pieces.items()
            ]
        )
        self._places = torch.empty_like(self._order).index_copy_(0, self._order, places)

    def arranged(self, vectors: Tensor) -> Tensor:
        """Vectors (..., d) of the model as lanes keep them."""
        return vectors[..., self._order]

    def restored(self, vectors: Tensor) -> Tensor:
        """Vectors (..., d) of lanes as the model has them."""
        return vectors[..., self._places]

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """Parameters by name that share memory with the vector (d,) of a lane."""
        pieces = torch.split(vector, self._model.sizes)
        named: dict[str, Tensor] = {}
        for name, shape, piece in zip(self._model.names, self._model.shapes, pieces, strict=True):
            if name in self._turned:
                outputs, inputs, height, width = shape
                named[name] = piece.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
            else:
                named[name] = piece.view(shape)
        return named


def _kernels(module: nn.Module) -> frozenset[str]:
    """Names of the weights of plain convolutions of images: other modules may ask for a kernel in one piece."""
    return frozenset(
        f"{name}.weight".lstrip(".")
        for name, part in module.named_modules()
        if type(part) is nn.Conv2d and "weight" in part._parameters
    )
