"""Links that stay up or down for a while."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, islice
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fairlead.component import freeze_lists
from fairlead.conditions.base import Figures, figures_of, require_figures
from fairlead.conditions.link.base import LinkModel
from fairlead.errors import FieldError, require_choice
from fairlead.randomness import Key


@dataclass(frozen=True)
class MarkovLink(LinkModel):
    """Each client's link is a two-state Markov chain; updates arrive while it is up.

        P(down at t + 1 | up at t) = fail,   P(up at t + 1 | down at t) = recover
        P(up at t) = recover/(fail + recover) for every t

    `fail` and `recover` are one number for all clients or one per client. The chain starts in its
    stationary distribution and moves on whether its client is asked or not; a link stays up for 1/fail
    rounds on average. `arrival` is the stationary probability, which a server can know in the long run; with
    `forecast` = "previous" it is that of the coming round given the state in the last, for a server that
    watches its clients.

    Reduces to `BernoulliLink` (drop = fail) when fail + recover = 1.
    """

    fail: Figures
    recover: Figures
    forecast: Literal["stationary", "previous"] = "stationary"

    per_client: ClassVar[tuple[str, ...]] = ("fail", "recover")

    def __post_init__(self) -> None:
        freeze_lists(self)
        require_figures(self, "fail", "probabilities from 0 to 1", 0.0, 1.0)
        require_figures(self, "recover", "probabilities from 0 to 1", 0.0, 1.0)
        require_choice(self, "forecast", ("stationary", "previous"))
        fails, recoveries = (v if isinstance(v, tuple) else (v,) for v in (self.fail, self.recover))
        length = max(len(fails), len(recoveries))
        pairs = zip(islice(cycle(fails), length), islice(cycle(recoveries), length), strict=True)
        if (0, 0) in pairs:
            raise FieldError(
                "MarkovLink.fail and MarkovLink.recover must not both be 0, since such a link never changes; "
                "got 0 and 0."
            )

    def arrival(self, clients: Tensor, round: int, key: Key) -> Tensor:
        fail, recover = figures_of(self, "fail", clients), figures_of(self, "recover", clients)
        if self.forecast == "stationary" or round == 0:
            return recover / (fail + recover)
        return torch.where(self.arrives(clients, round - 1, key), 1.0 - fail, recover)

    def arrives(self, clients: Tensor, round: int, key: Key) -> Tensor:
        """Whether each link is up.

        The step to round t is driven by one uniform number u per client: up if u < P(up | state before).
        Below both probabilities the link is up and above both it is down, whatever it was before; only
        between them does the past matter, and the link keeps its state (or changes it, if
        fail + recover > 1). So the state follows from looking back to the last decisive number: exact,
        without anything to remember between rounds, in 1/(1 − |1 − fail − recover|) rounds on average.
        """
        fail, recover = figures_of(self, "fail", clients), figures_of(self, "recover", clients)
        lower, upper = torch.minimum(1.0 - fail, recover), torch.maximum(1.0 - fail, recover)
        changes = recover > 1.0 - fail
        is_up = torch.zeros(len(clients), dtype=torch.bool)
        changed = torch.zeros_like(is_up)
        undecided = torch.arange(len(clients))
        for time in range(round, 0, -1):
            draws = key.fold(time).uniform(clients[undecided])
            up, down = draws < lower[undecided], draws >= upper[undecided]
            is_up[undecided[up]] = True
            undecided = undecided[~(up | down)]
            if len(undecided) == 0:
                break
            changed[undecided] ^= changes[undecided]
        first = key.fold(0).uniform(clients[undecided])
        is_up[undecided] = first < (recover / (fail + recover))[undecided]
        return is_up ^ changed
