"""Inputs of a round's batches, augmented once before its steps."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor
from torch.func import vmap

from fairlead.clients.data import ClientData
from fairlead.memory.budget import available_bytes
from fairlead.parameters import FlatModule
from fairlead.worlds.engines.base import LocalJobs, LocalSteps, Objective
from fairlead.worlds.engines.lanes import pixels_of

_ROOM, _SHARE, _AT_ONCE = 1.5, 0.25, 2**24
"""Room beyond the first rounds' need; the share of a device's free memory that may be used; numbers changed at once."""


class AugmentedInputs:
    """Room on the device for the examples of a round as the model sees them, batch by batch.

    The augmentations of a step are dozens of small operations, as many as the steps of a small model have themselves.
    They depend on the examples and the keys of a round alone, so all steps' can run together before the first. The
    numbers are the same.
    """

    def __init__(self, objective: Objective, *, by_kernel: bool = False) -> None:
        self._source = objective
        self._by_kernel = by_kernel and _kernel_takes(objective)
        self._renumbered: tuple[LocalSteps, LocalSteps] | None = None
        model = FlatModule(objective.model.module)
        draws_noise = objective.draws_noise and model.draws_noise(self._changed(slice(0, 2), None))
        self.room = replace(objective, model=model, data=self._allocate(0), draws_noise=draws_noise)

    def steps(self, steps: LocalSteps) -> LocalSteps:
        """The same steps, whose batches are numbered in the order of the room."""
        if self._renumbered is None or self._renumbered[0] is not steps:
            first, batches = 0, []
            for rows in steps.batches:
                places = torch.arange(first, first + rows.numel()).view(rows.shape)
                batches.append(torch.where(rows < 0, -1, places))
                first += rows.numel()
            self._renumbered = steps, replace(steps, batches=batches)
        return self._renumbered[1]

    def load(self, jobs: LocalJobs) -> tuple[Objective, LocalJobs]:
        """The objective over the changed examples of a round, and its jobs on them."""
        needed = sum(rows.numel() for rows in jobs.steps.batches)
        if needed > len(self.room.data.inputs):
            self.room = replace(self.room, data=self._allocate(int(needed * _ROOM)))
        room, first = self.room.data, 0
        if self._by_kernel:
            self._fill(jobs.steps)
        for rows, noise in () if self._by_kernel else self._pieces(jobs.steps):
            place = slice(first, first + rows.numel())
            on_device = rows.flatten().clamp(min=0).to(room.inputs.device, non_blocking=True)
            room.inputs[place] = self._changed(on_device, noise.to(room.inputs.device, non_blocking=True))
            room.targets[place] = self._source.data.targets.index_select(0, on_device)
            first = place.stop
        return self.room, replace(jobs, steps=self.steps(jobs.steps))

    def _fill(self, steps: LocalSteps) -> None:
        """The examples of all batches at once."""
        from fairlead.worlds.engines.augmentation_triton import augment_images

        source, room = self._source, self.room.data
        columns = [
            (rows, noise[: len(rows), None].expand_as(rows), torch.arange(rows.shape[1]).expand_as(rows))
            for rows, noise in zip(steps.batches, steps.noise, strict=True)
        ]
        table = torch.stack(
            [torch.cat([part.flatten() for part in parts]) for parts in zip(*columns, strict=True)]
        )
        table[0].clamp_(min=0)
        table = table.to(room.inputs.device, non_blocking=True)
        pixels = pixels_of(room.inputs)
        assert pixels is not None
        augment_images(source.model.pipeline, source.data.inputs, table, pixels)
        room.targets[: table.shape[1]] = source.data.targets.index_select(0, table[0])

    def fits(self, steps: LocalSteps) -> bool:
        """Whether the device has room for the examples of a round, each as often as the round uses it."""
        needed = sum(rows.numel() for rows in steps.batches)
        numbers = self._source.data.inputs.shape[1:].numel()
        size = int(_ROOM * needed) * numbers * self.room.data.inputs.element_size()
        return needed <= len(self.room.data.inputs) or size < _SHARE * available_bytes(self._source.device)

    def _pieces(self, steps: LocalSteps) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches (S, B) of one size and their keys (S,), in the order of the room, as many as are changed at once."""
        keys = [noise[: len(rows)] for rows, noise in zip(steps.batches, steps.noise, strict=True)]
        batches = list(steps.batches)
        if len({rows.shape[1] for rows in batches}) == 1:
            batches, keys = [torch.cat(batches)], [torch.cat(keys)]
        numbers = self._source.data.inputs.shape[1:].numel()
        for rows, key in zip(batches, keys, strict=True):
            most = max(_AT_ONCE // (rows.shape[1] * numbers), 1)
            yield from zip(torch.split(rows, most), torch.split(key, most), strict=True)

    def _changed(self, rows: Tensor | slice, noise: Tensor | None) -> Tensor:
        """Examples as the model sees them, in one batch, or in a batch for each of several keys."""
        model, inputs = self._source.model, self._source.data.inputs[rows]
        dtype = next(model.module.parameters()).dtype
        if noise is None or not model.pipeline.draws_noise:
            return model.pipeline.apply(inputs, None, dtype)
        batches = inputs.view(len(noise), -1, *inputs.shape[1:])
        changed: Tensor = vmap(lambda batch, key: model.pipeline.apply(batch, key, dtype))(batches, noise)
        return changed.flatten(0, 1)

    def _allocate(self, rows: int) -> ClientData:
        example = self._changed(slice(0, 1), None)
        shape = example.shape[1:]
        if self._by_kernel:
            channels, height, width = shape
            # As convolutions of lanes read them.
            room = example.new_zeros((rows, height, width, 4 if channels == 3 else channels))
            inputs = room[..., :channels].permute(0, 3, 1, 2)
        else:
            inputs = example.new_zeros((rows, *shape))
        targets = self._source.data.targets
        blank = targets.new_zeros((rows, *targets.shape[1:]), device=example.device)
        return ClientData(inputs, blank, torch.tensor([0, rows]))


def _kernel_takes(objective: Objective) -> bool:
    from fairlead.worlds.engines.augmentation_triton import augments_images

    dtype = next(objective.model.module.parameters()).dtype
    return augments_images(objective.model.pipeline, objective.data.inputs, dtype)
