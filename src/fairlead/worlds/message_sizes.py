"""How many bytes a round sends to a client and back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairlead.conditions.devices import Payload
from fairlead.corrections.base import LocalOutcome
from fairlead.local_solver import LocalSolver


@dataclass(frozen=True)
class MessageSizes:
    """The size of a model, which goes both ways."""

    num_parameters: int
    num_buffers: int
    dtype: torch.dtype

    def payload(self, solver: LocalSolver) -> Payload:
        """Bytes that each client receives and sends in a round, with what corrections add."""
        dim, item = self.num_parameters, self.dtype.itemsize
        # Tensors without content: only how large the corrections' vectors are matters.
        params = torch.zeros(dim, dtype=self.dtype, device="meta")
        shared: dict[str, Tensor] = {}
        for correction in solver.corrections:
            shared.update(correction.initial_shared(params))
        memory = {name: params.new_zeros((1, solver.memory_dim(name, dim))) for name in solver.memory_names}
        row, one = params.expand(1, dim), params.new_ones((1, 1))
        outcome = LocalOutcome(0, params, row, one, one if solver.is_linear else None, 1.0, row)
        messages = solver.settle(outcome, memory, shared).message
        model = dim + self.num_buffers
        return Payload(
            down=item * (model + sum(vector.numel() for vector in shared.values())),
            up=item * (model + sum(message.numel() for message in messages.values())),
        )
