"""Responses of simulated clients: which sampled clients respond, their local work, its duration and its messages."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fairlead.conditions.devices import DeviceModel, Payload
from fairlead.conditions.links import LinkModel
from fairlead.conditions.work import Workload, WorkModel
from fairlead.corrections.base import OWN_MASK, LocalOutcome
from fairlead.local_solver import LocalSolver, epochs_to_steps
from fairlead.randomness import Key
from fairlead.records import Vectors
from fairlead.worlds.executor import ClientBlock


@dataclass(frozen=True)
class MessageSizes:
    """The size of a model, which goes both ways."""

    num_parameters: int
    num_buffers: int
    dtype: torch.dtype

    def shared_shapes(self, solver: LocalSolver) -> dict[str, tuple[int, ...]]:
        """Shapes of the vectors that a solver's corrections broadcast."""
        return {name: tuple(vector.shape) for name, vector in self._shared(solver).items()}

    def uploads(self, solver: LocalSolver) -> Vectors:
        """The vectors (n,) that a client uploads beside its update, or instead if the solver encodes it; no content."""
        params, dims = self._params(), solver.memory_dims(self.num_parameters, self.num_buffers)
        shared = {**self._shared(solver), OWN_MASK: params}
        memory = {name: params.new_zeros((1, dim)) for name, dim in dims.items()}
        row, one = params[None], params.new_ones((1, 1))
        outcome = LocalOutcome(0, params, row, one, one if solver.is_linear else None, 1.0, row, one.long())
        return {name: part[0] for name, part in solver.after_steps(outcome, memory, shared).message.items()}

    def payload(self, solver: LocalSolver) -> Payload:
        """Bytes that each client receives and sends in a round."""
        model, item = self.num_parameters + self.num_buffers, self.dtype.itemsize
        shared = sum(vector.numel() for vector in self._shared(solver).values())
        uploads = sum(part.nbytes for part in self.uploads(solver).values())
        sent = model if solver.encoder is None else self.num_buffers
        return Payload(down=item * (model + shared), up=item * sent + uploads)

    @property
    def poll_payload(self) -> Payload:
        """Bytes that a client receives and sends if it is asked for its loss."""
        item = self.dtype.itemsize
        return Payload(down=item * (self.num_parameters + self.num_buffers), up=item)

    def _params(self) -> Tensor:
        # Without content: only shapes matter.
        return torch.zeros(self.num_parameters, dtype=self.dtype, device="meta")

    def _shared(self, solver: LocalSolver) -> dict[str, Tensor]:
        return {n: v for c in solver.corrections for n, v in c.initial_shared(self._params()).items()}


class Responders(NamedTuple):
    """The sampled clients whose update will arrive."""

    places: Tensor
    """Their places in the cohort."""
    block: ClientBlock
    """Their local work, without client memory."""
    virtual_seconds: float | None
    device_seconds: float | None


class _Plan(NamedTuple):
    """Local work of some clients in a round, and its duration in seconds; None in a world without devices."""

    work: Workload
    computing: Tensor | None
    durations: Tensor | None
    """From broadcast to upload."""


@dataclass(frozen=True, eq=False)
class ClientBehavior:
    """Behavior of simulated clients in a round: a pure function of clients, solver, round and key."""

    sizes: Tensor
    """Examples of every client."""
    work: WorkModel
    link: LinkModel
    devices: DeviceModel | None
    message_sizes: MessageSizes

    def workload(self, clients: Tensor, solver: LocalSolver, round: int, key: Key) -> Workload:
        """Local work that the given clients would do."""
        return self._plan(clients, solver, round, key).work

    def epochs(self, clients: Tensor, solver: LocalSolver, round: int, key: Key) -> Tensor:
        """Passes over their data that the given clients would make, (c,) float64."""
        work, sizes = self._plan(clients, solver, round, key).work, self.sizes[clients]
        in_one = epochs_to_steps(torch.ones_like(sizes), sizes, work.batch_sizes)
        return work.num_steps / in_one.clamp(min=1).to(torch.float64)

    def expected_arrival(self, clients: Tensor, solver: LocalSolver, round: int, key: Key) -> Tensor | None:
        """Probability that each client's update arrives, if it is known."""
        durations = None if self.devices is None else self._plan(clients, solver, round, key).durations
        return self.link.arrival(clients, round, key.fold("link"), durations)

    def seconds(self, clients: Tensor, solver: LocalSolver, round: int, key: Key) -> Tensor:
        """Duration of the given clients' work with its transmission, (c,); without devices all take equally long."""
        durations = self._plan(clients, solver, round, key).durations
        return torch.ones(len(clients), dtype=torch.float64) if durations is None else durations

    def arrives(self, clients: Tensor, solver: LocalSolver, round: int, key: Key) -> Tensor:
        """Whether an update of work that starts in this round will arrive, (c,) bool."""
        durations = self._plan(clients, solver, round, key).durations
        return self.link.arrives(clients, round, key.fold("link"), durations)

    def device_seconds(self, clients: Tensor, solver: LocalSolver, round: int, key: Key) -> float | None:
        """Total computation time of the given clients' devices."""
        computing = self._plan(clients, solver, round, key).computing
        return None if computing is None else float(computing.sum())

    def responders(self, clients: Tensor, solver: LocalSolver, round: int, key: Key) -> Responders:
        """The sampled clients that respond, their local work, and its duration."""
        plan = self._plan(clients, solver, round, key)
        # Clients without work send nothing, and must not count as the first to arrive.
        able = (plan.work.num_steps > 0).nonzero().flatten()
        durations = None if plan.durations is None else plan.durations[able]
        arrived = self.link.arrives(clients[able], round, key.fold("link"), durations)
        places = able[arrived]
        block = ClientBlock(
            clients[places],
            self.sizes[clients[places]],
            plan.work.num_steps[places],
            plan.work.batch_sizes[places],
            {},
        )
        return Responders(
            places,
            block,
            None if durations is None else self.link.closes(durations, arrived),
            None if plan.computing is None else float(plan.computing.sum()),
        )

    def poll_seconds(self, clients: Tensor, round: int) -> tuple[float | None, float | None]:
        """Duration of a poll, until the last candidate has sent its loss, and the time that devices compute for it.

        A pass over all examples counts as one step with all of them.
        """
        if self.devices is None:
            return None, None
        profile, sizes = self.devices.profile(clients, round), self.sizes[clients]
        computing = profile.compute_seconds(torch.ones_like(sizes), sizes, sizes)
        waiting = computing + profile.transfer_seconds(self.message_sizes.poll_payload)
        return float(waiting.max()), float(computing.sum())

    def _plan(self, clients: Tensor, solver: LocalSolver, round: int, key: Key) -> _Plan:
        """Local work of the given clients in a round, and its duration."""
        sizes = self.sizes[clients]
        profile = None if self.devices is None else self.devices.profile(clients, round)
        work = self.work.planned(clients, sizes, solver, round, key.fold("work"), profile)
        if profile is None:
            return _Plan(work, None, None)
        computing = solver.gradients_per_step * profile.compute_seconds(
            work.num_steps, work.batch_sizes, sizes
        )
        if (own := solver.kept_training) is not None:
            steps = profile.compute_seconds(own.count_steps(sizes), own.batches(sizes), sizes)
            computing = computing + own.gradients_per_step * steps
        return _Plan(
            work, computing, computing + profile.transfer_seconds(self.message_sizes.payload(solver))
        )
