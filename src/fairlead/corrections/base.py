"""The role `Correction`: a term added to the local gradient, with its memory, broadcast and upload."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal, NamedTuple

from torch import Tensor

from fairlead.component import MethodPart
from fairlead.records import Averaging, ClientUpdates, Contributions, Limit, Vectors

Extent = Literal["vector", "buffers", "scalar"]
"""Whether a remembered quantity has the length of the parameters, of the running statistics, or is a single number."""
OWN_MASK, OWN_BUFFERS = "own_mask", "own_buffers_mask"
"""Names among `shared` of vectors that clients derive from the model: 1 where a number is their own, 0 elsewhere."""


class LocalOutcome(NamedTuple):
    """The local steps of a client; rows side by side for many clients at once."""

    round: int
    anchor: Tensor
    """(d,) global parameters it was sent."""
    delta: Tensor
    """(..., d) local − anchor."""
    num_steps: Tensor
    """(..., 1)."""
    effective_steps: Tensor | None
    """(..., 1) ‖a‖₁ of its solver; None where the solver is not linear."""
    lr: float
    anchor_gradient: Tensor | None
    """(..., d) its full gradient at the anchor, if a correction asked for it."""
    draws: Tensor | None = None
    """(..., 1) int64: a key for `randomness.keyed_uniform`, if a correction asked for it."""


class LocalResult(NamedTuple):
    """Upload and memory of a client after its local work."""

    delta: Tensor
    """(..., d) the update to upload, for most corrections the one they were given."""
    memory: Vectors
    """Its memory from now on, if the update reaches the server."""
    message: Vectors
    """Vectors to upload beside the update."""


class Correction(MethodPart, ABC):
    """Adds a term to the local gradient, with optional client memory, broadcast and upload.

    `correct` is all that a correction without memory needs. Like optimizers, corrections treat the last axis as
    parameters and broadcast over clients. A client whose update is lost keeps the memory it had, so that sums
    over clients stay true.
    """

    shared_names: ClassVar[tuple[str, ...]] = ()
    """Names of the vectors that the server keeps and broadcasts."""
    restores_weights: ClassVar[bool] = False
    """Whether clients follow Σ ω_i ∇F_i at the fixed point, so that unequal work or links cannot move it.

    With clipped gradients it is not true: Σ ω_i clip(∇F_i) = 0 is another point."""
    hides_weights: ClassVar[bool] = False
    """Whether gradients of earlier rounds act in this one, so that coefficients do not determine the weights."""
    needs_aggregator: ClassVar[str | None] = None
    """Class name of the only aggregator that it makes sense with, for halves of a method."""
    keeps_parameters: ClassVar[bool] = False
    """Whether clients keep parameters of their own, so that the model that a client uses is not the server's."""
    starts_elsewhere: ClassVar[bool] = False
    """Whether `start_from` leaves the anchor, so that `local − anchor` is more than the client's own work."""

    @property
    def memory_extent(self) -> Mapping[str, Extent]:
        """Names of the quantities that a client keeps between its rounds; zero at first."""
        return {}

    @property
    def needs_anchor_gradient(self) -> bool:
        """Whether each client must compute its full gradient at the anchor."""
        return False

    @property
    def pull(self) -> float | None:
        """μ if `correct` adds μ (y − x) and a vector that stays the same in all local steps; None if it does more."""
        return None

    @property
    def needs_draws(self) -> bool:
        """Whether `after_steps` draws random numbers."""
        return False

    def initial_shared(self, params: Tensor) -> Vectors:
        """The broadcast vectors before the first round; `params` is the initial model."""
        return {}

    def start_from(self, anchor: Tensor, memory: Vectors, shared: Vectors) -> Tensor:
        """Where local work starts, (..., d): the anchor for all but a few methods."""
        return anchor

    @abstractmethod
    def correct(
        self, gradient: Tensor, local: Tensor, anchor: Tensor, memory: Vectors, shared: Vectors
    ) -> Tensor:
        """The gradient to follow instead of the raw one, at every local step."""

    def after_steps(self, outcome: LocalOutcome, memory: Vectors, shared: Vectors) -> LocalResult:
        """Memory and upload after the last local step."""
        return LocalResult(outcome.delta, {name: memory[name] for name in self.memory_extent}, {})

    def update_shared(self, shared: Vectors, updates: ClientUpdates, weights: Tensor) -> Vectors:
        """The server's broadcast vectors after a round; `weights` (m,) are the arrivals' ω."""
        return shared

    def sum_weights(self, updates: ClientUpdates, weights: Tensor) -> Tensor:
        """Weights (k, m) of the sums Σ w_i Δ_i that `update_shared` needs, or that its sums of uploads show too."""
        return updates.importance.new_zeros((0, len(updates)))

    def after_round(self, memory: Vectors, params: Tensor, direction: Tensor) -> Vectors:
        """Memory of the clients that arrived, once the new model is known.

        `params` (d,) are the new global parameters, `direction` (d,) is the aggregate of the round.
        """
        return memory

    def limit(self, weights: Tensor) -> Limit | None:
        """Where methods with this correction stop, if that does not depend on the clients' contributions."""
        if not self.restores_weights:
            return None
        return Limit(
            weights,
            "The corrections of this method make every client follow the objective's own weights at the "
            "fixed point, whatever work and links are.",
            exact=True,
        )

    def weights_under(self, contributions: Contributions, averaging: Averaging) -> Limit | None:
        """Ω if gradients of other rounds act on local steps; None where every client follows its own gradient."""
        if not self.hides_weights:
            return None
        return Limit(None, f"{type(self).__name__} hides the weights in gradients of earlier rounds.")
