"""Models of time windows, as wearable sensors give them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from fairlead.component import freeze_lists
from fairlead.errors import ClashError, field_error, require_integer
from fairlead.models.base import ExampleShape, Model, require_widths


@dataclass(frozen=True)
class WindowCNN(Model):
    """Convolutions over the time axis of (time, sensors) windows, such as 3-axis acceleration.

        (conv(channels, kernel) - relu - pool2)* - mean over time - linear(classes)

    Parameters for 3 sensors and 6 classes: (3·5 + 1)·32 + (32·5 + 1)·64 + 65·6 = 11,206.
    """

    channels: tuple[int, ...] = (32, 64)
    kernel: int = 5

    def __post_init__(self) -> None:
        freeze_lists(self)
        require_widths(self, "channels")
        require_integer(self, "kernel", at_least=1)
        if self.kernel % 2 == 0:
            raise field_error(self, "kernel", "odd, so that a window keeps its length", self.kernel)

    def build(self, shape: ExampleShape) -> nn.Module:
        shortest = 2 ** len(self.channels)
        if len(shape.inputs) != 2 or shape.inputs[0] < shortest:
            raise ClashError(
                f"WindowCNN needs windows of at least {shortest} moments, as (time, sensors), got inputs of "
                f"shape {shape.inputs}."
            )
        width = shape.inputs[1]
        layers: list[nn.Module] = [_TimeLast()]
        for wider in self.channels:
            convolution = nn.Conv1d(width, wider, self.kernel, padding=self.kernel // 2)
            layers += [convolution, nn.ReLU(), nn.MaxPool1d(2)]
            width = wider
        return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, shape.outputs))


class _TimeLast(nn.Module):
    """(batch, time, sensors) to (batch, sensors, time), which is what torch convolves."""

    def forward(self, windows: Tensor) -> Tensor:
        return windows.mT
