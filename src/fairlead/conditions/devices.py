"""The role `DeviceModel`: speed of clients and their connections, and the virtual clock."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from fairlead.component import NaturalNumber, NotNegative, WholeRange
from fairlead.conditions.base import AMOUNT, Amounts, Condition, FigureRange, Figures, figures_of
from fairlead.errors import LARGEST, FieldError, did_you_mean
from fairlead.plain_data import LARGEST_INTEGER
from fairlead.randomness import Key
from fairlead.records import RoundRecord

_SLACK = 1e-9


class Payload(NamedTuple):
    """Bytes that a client receives and sends in a round."""

    down: int
    up: int


class DeviceProfile(NamedTuple):
    """Speed of some clients in one round, (c,) float64 each."""

    step_seconds: Tensor
    example_seconds: Tensor
    latency: Tensor
    """Seconds of delay, both ways together."""
    download: Tensor
    """Bytes per second, infinite where transmission takes no time."""
    upload: Tensor

    def compute_seconds(self, num_steps: Tensor, batch_sizes: Tensor, sizes: Tensor) -> Tensor:
        """Seconds of local work, the short last batch of an epoch counted by its examples."""
        per_epoch = _batches_per_epoch(batch_sizes, sizes)
        epochs = torch.div(num_steps, per_epoch, rounding_mode="floor")
        examples = epochs * sizes + torch.minimum(num_steps % per_epoch * batch_sizes, sizes)
        return num_steps * self.step_seconds + examples * self.example_seconds

    def transfer_seconds(self, payload: Payload) -> Tensor:
        """Seconds of latency, download and upload."""
        return self.latency + payload.down / self.download + payload.up / self.upload

    def steps_within(self, seconds: float, batch_sizes: Tensor, sizes: Tensor) -> Tensor:
        """The most steps that fit into `seconds` of local work, (c,) float64; infinite if they take none."""
        per_epoch = _batches_per_epoch(batch_sizes, sizes)
        epoch = per_epoch * self.step_seconds + sizes * self.example_seconds
        # The slack keeps 0.3 s at 0.1 s a step from being two steps.
        epochs = (seconds / epoch * (1 + _SLACK)).floor()
        left = torch.where(epoch > 0, seconds - epochs * epoch, 0.0)
        step = self.step_seconds + batch_sizes * self.example_seconds
        more = (left / step * (1 + _SLACK) + _SLACK).floor().clamp(min=0)
        return torch.where(epoch > 0, epochs * per_epoch + torch.minimum(more, per_epoch - 1), torch.inf)


def _batches_per_epoch(batch_sizes: Tensor, sizes: Tensor) -> Tensor:
    batches = torch.div(sizes + batch_sizes - 1, batch_sizes.clamp(min=1), rounding_mode="floor")
    return batches.clamp(min=1)


_RATE = FigureRange(f"numbers from {1 / LARGEST:g} to {LARGEST:g}, or None", low=1 / LARGEST)
"""Rates divide: seconds must be finite."""


class DeviceModel(Condition, ABC):
    """Defines the speed of any set of clients in a round.

    Hardware is a property of the population, not of a run: draws use the model's own seed, so runs with different
    seeds meet the same devices.
    """

    @abstractmethod
    def profile(self, clients: Tensor, round: int) -> DeviceProfile:
        """Speeds of the given clients."""


@dataclass(frozen=True)
class FixedDevices(DeviceModel):
    """Devices of given speed: one number for all clients, or one per client.

        seconds of a round = latency + bytes down/download + steps·step_seconds
                             + examples·example_seconds + bytes up/upload

    `download` and `upload` are bytes per second; None: transmission takes no time.
    """

    step_seconds: Amounts = 0.0
    example_seconds: Amounts = 0.0
    latency: Amounts = 0.0
    download: Annotated[Figures, _RATE] | None = None
    upload: Annotated[Figures, _RATE] | None = None

    per_client = DeviceProfile._fields

    def profile(self, clients: Tensor, round: int) -> DeviceProfile:
        return _stated_profile(self, clients)


@dataclass(frozen=True)
class LogNormalDevices(DeviceModel):
    """Devices whose speeds are spread log-normally around given medians.

        client i in round t:  compute seconds × exp(σ_s z_i + σ_t z_it),   bytes per second × exp(σ_r z'_i)

    Symbols: σ_s `speed_sigma`, σ_r `rate_sigma`, σ_t `jitter` (what else the device does in that round), all
    z independent N(0, 1) from `seed`; the other fields are medians, as in `FixedDevices`. Reduces to
    `FixedDevices` when all three are 0.
    """

    step_seconds: Annotated[float, AMOUNT] = 0.0
    example_seconds: Annotated[float, AMOUNT] = 0.0
    latency: Annotated[float, AMOUNT] = 0.0
    download: Annotated[float, _RATE] | None = None
    upload: Annotated[float, _RATE] | None = None
    speed_sigma: NotNegative = 1.0
    rate_sigma: NotNegative = 1.0
    jitter: NotNegative = 0.0
    seed: Annotated[int, WholeRange(0, LARGEST_INTEGER)] = 0

    def profile(self, clients: Tensor, round: int) -> DeviceProfile:
        key = Key.from_seed(self.seed).fold("devices")
        slowness = self.speed_sigma * key.fold("speed").normal(clients)
        if self.jitter:
            slowness = slowness + self.jitter * key.fold("jitter", round).normal(clients)
        slowness = _factor(slowness)
        rate = _factor(self.rate_sigma * key.fold("rate").normal(clients))
        medians = _stated_profile(self, clients)
        return medians._replace(
            step_seconds=medians.step_seconds * slowness,
            example_seconds=medians.example_seconds * slowness,
            download=medians.download * rate,
            upload=medians.upload * rate,
        )


@dataclass(frozen=True)
class TwoGroupDevices(DeviceModel):
    """Clients below `boundary` have devices of the `first` kind, the others of the `second`."""

    boundary: NaturalNumber
    first: DeviceModel
    second: DeviceModel

    def profile(self, clients: Tensor, round: int) -> DeviceProfile:
        is_first = clients < self.boundary
        first, second = self.first.profile(clients, round), self.second.profile(clients, round)
        return DeviceProfile(*(torch.where(is_first, a, b) for a, b in zip(first, second, strict=True)))


def _factor(exponent: Tensor) -> Tensor:
    """exp, neither 0 nor infinite: 0 seconds times infinity are none."""
    return exponent.clamp(-math.log(LARGEST), math.log(LARGEST)).exp()


def _stated_profile(devices: FixedDevices | LogNormalDevices, clients: Tensor) -> DeviceProfile:
    """The fields' values for the given clients."""
    instantly = torch.full((len(clients),), torch.inf, dtype=torch.float64)
    return DeviceProfile(
        *(
            instantly if getattr(devices, field) is None else figures_of(devices, field, clients)
            for field in DeviceProfile._fields
        )
    )


def elapsed(records: Sequence[RoundRecord]) -> tuple[float, ...]:
    """Virtual seconds from the start of the run to the end of each round.

    >>> elapsed([])
    ()
    """
    seconds = [record.virtual_seconds for record in records]
    if None in seconds:
        raise FieldError(
            "The records have no virtual seconds: give the world devices, for instance "
            "devices=FixedDevices(step_seconds=0.1)."
        )
    return tuple(accumulate(s for s in seconds if s is not None))


def time_to(records: Sequence[RoundRecord], level: float, metric: str = "accuracy") -> float | None:
    """Virtual seconds until `metric` was first measured at `level` or above; None if it never was."""
    for record, time in zip(records, elapsed(records), strict=True):
        if record.evaluation is None:
            continue
        measured = record.evaluation.metrics
        if metric not in measured:
            raise FieldError(f"{metric!r} was not measured." + did_you_mean(metric, measured))
        if measured[metric] >= level:
            return time
    return None
