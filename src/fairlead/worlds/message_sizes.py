"""How large the messages of a round are: the model, and the vectors that corrections add to it."""

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

    def shared_shapes(self, solver: LocalSolver) -> dict[str, tuple[int, ...]]:
        """Shapes of the vectors that a solver's corrections broadcast."""
        return {name: tuple(vector.shape) for name, vector in self._shared(solver).items()}

    def upload_lengths(self, solver: LocalSolver) -> dict[str, int]:
        """Lengths of the vectors that a client uploads beside its update."""
        params, shared = self._params(), self._shared(solver)
        dims = {name: solver.memory_dim(name, self.num_parameters) for name in solver.memory_names}
        memory = {name: params.new_zeros((1, dim)) for name, dim in dims.items()}
        row, one = params[None], params.new_ones((1, 1))
        outcome = LocalOutcome(0, params, row, one, one if solver.is_linear else None, 1.0, row)
        messages = solver.after_steps(outcome, memory, shared).message
        return {name: message.shape[1] for name, message in messages.items()}

    def payload(self, solver: LocalSolver) -> Payload:
        """Bytes that each client receives and sends in a round."""
        model, item = self.num_parameters + self.num_buffers, self.dtype.itemsize
        shared = sum(vector.numel() for vector in self._shared(solver).values())
        uploads = sum(self.upload_lengths(solver).values())
        return Payload(down=item * (model + shared), up=item * (model + uploads))

    def _params(self) -> Tensor:
        # Without content: only shapes matter.
        return torch.zeros(self.num_parameters, dtype=self.dtype, device="meta")

    def _shared(self, solver: LocalSolver) -> dict[str, Tensor]:
        return {n: v for c in solver.corrections for n, v in c.initial_shared(self._params()).items()}
