"""What a report says of clients, noted by the run itself: their data may lie on another machine by then."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.federation import Federation
from fairlead.worlds.simulation import simulation_of


@dataclass(frozen=True)
class ClientFacts:
    """The clients of a run."""

    weights: tuple[float, ...]
    """ω."""
    names: tuple[str, ...] | None
    """None where the data name nobody."""
    held_out: bool | None
    """Whether figures per client are of test data of their own, not of training data; None if nobody knows."""

    @property
    def real(self) -> bool:
        """Whether the clients were real: what they hold is known in simulations alone."""
        return self.held_out is None


def client_facts(federation: Federation) -> ClientFacts:
    """The clients of a federation."""
    simulation, population = simulation_of(federation.world), federation.world.population
    held_out = None
    if simulation is not None:
        test = simulation.test
        held_out = test is not None and test.num_clients == population.num_clients
    names = None if population.names is None else tuple(map(str, population.names))
    return ClientFacts(tuple(population.weights.tolist()), names, held_out)
