"""`BufferedSampling`: clients for asynchronous rounds, in which some go on working while the server steps."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fairlead.client_table import PartState, tensor_in
from fairlead.component import NaturalNumber, PositiveCount
from fairlead.randomness import Key
from fairlead.records import Buffering, ClientUpdates, Cohort, Conditions, NotKnown, Participation, Population
from fairlead.samplers.base import Sampler


@dataclass(frozen=True)
class BufferedSampling(Sampler):
    """Keeps `concurrency` clients at work, and steps whenever `buffer_size` updates have come (FedBuff).

        importance_i = (N/K) ω_i

    Symbols: K `buffer_size`, C `concurrency` (None: all clients), N the clients of positive weight. A round is one step
    of the server. As soon as a client finishes, an idle one, drawn uniformly, starts from the newest model. Updates
    older than `max_staleness` rounds are refused (None: never), and do not fill the buffer.

    A client whose updates are τ_i rounds old on average starts in 1/(τ_i + W) of the rounds, where W is the mean wait
    until it is drawn. τ_i is the number of updates of others that come while it works, over K. With C = N, W is 1 and
    clients count nearly by their speed; with C ≪ N all count nearly alike. Use `FedAU` to correct it.

    Reduces to `FullParticipation` for K = N, and to `UniformWithoutReplacement` for C = K and equally fast clients.

    Differs from the paper: a client counts at most once in a step. If it finishes before the step, it waits for the new
    model. A buffer larger than the number of clients waits for all of them.
    """

    concurrency: PositiveCount | None = None
    buffer_size: PositiveCount = 10
    max_staleness: NaturalNumber | None = None

    references = ("nguyen2022fedbuff",)
    exemptions = {
        "unbiased": "candidates are drawn, of whom fast clients arrive more often",
        "different keys": "with all clients at work there is nobody to choose",
    }
    importance_by_weight = True

    @property
    def buffering(self) -> Buffering:
        return Buffering(self.buffer_size, self.concurrency, self.max_staleness)

    def init(self, population: Population) -> PartState:
        return {"busy": torch.zeros(population.num_clients, dtype=torch.bool)}

    def draw(self, state: PartState, conditions: Conditions, key: Key) -> Cohort:
        weights, busy = conditions.weights, tensor_in(state, "busy")
        eligible, size = self._sizes(weights)
        idle = ((weights > 0) & ~busy).nonzero().flatten()
        places = self.buffering.places(len(weights)) - int(busy.sum())
        # One for each free place and for each update of the buffer, and some for updates that are lost.
        number = min(max(places, 0) + 2 * size, len(idle))
        drawn = key.generator().choice(len(idle), number, replace=False, shuffle=False)
        clients = idle[torch.from_numpy(drawn).sort().values]
        return Cohort(clients, torch.ones_like(clients), eligible / size * weights[clients])

    def _sizes(self, weights: Tensor) -> tuple[int, int]:
        """The clients of positive weight, and how many of them a step waits for."""
        eligible = int((weights > 0).sum())
        return eligible, min(self.buffer_size, eligible)

    def observe(
        self, state: PartState, conditions: Conditions, cohort: Cohort, updates: ClientUpdates
    ) -> PartState:
        busy = torch.zeros_like(tensor_in(state, "busy"))
        if "clients" in updates.flight:
            clients = tensor_in(updates.flight, "clients")
            busy[clients[clients >= 0]] = True
        return {"busy": busy}

    def participation(self, conditions: Conditions) -> Participation | NotKnown:
        weights, everyone, arrival = conditions.weights, conditions.seconds, conditions.arrival
        if everyone is None or arrival is None:
            return NotKnown("This world does not know how long its clients take.")
        eligible, size = self._sizes(weights)
        chosen = weights > 0
        asked, age = torch.zeros_like(weights), torch.zeros_like(weights)
        asked[chosen], age[chosen] = self._means(everyone[chosen].clamp(min=1e-12), arrival[chosen], size)
        return Participation(asked * eligible / size * weights, asked, settled=False, age=age)

    def _means(self, seconds: Tensor, rates: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Chance of a client to start in a round, and the mean age of its updates."""
        asked, age = torch.ones_like(seconds), torch.zeros_like(seconds)
        number, wait = len(seconds), 1.0
        if size == number:
            return asked, age
        places = self.buffering.places(number)
        # With j updates in the buffer their clients wait, so that at most N − j can work.
        busy = sum(min(places, number - arrived) for arrived in range(size)) / size
        # Where there are idle clients, the next one starts with each arrival, else with the step.
        spare = min(number - places, size - 1)
        ahead = (size - 1) / (2 * size) - spare * (spare + 1) / (2 * size**2)
        for _ in range(_ITERATIONS):
            asked = 1 / (age + wait)
            wait = max(wait * float(rates @ asked) / size, 1.0)
            pace = asked * busy / float(asked @ seconds)
            # While a client works, one place less is left for the others.
            left = (busy - (pace * seconds).clamp(max=1)).clamp(min=1e-9)
            others = (float(rates @ pace) - rates * pace) * max(busy - 1, 0) / left
            age = (age + (seconds * others / size - ahead).clamp(min=0)) / 2
        return asked, age


_ITERATIONS = 300
"""Of the fixed point of waits and ages, by when it has settled."""
