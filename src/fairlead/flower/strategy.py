"""`FlowerStrategy`: the server's half of a method for Flower apps whose clients train in their own way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from logging import getLogger
from time import sleep
from typing import Literal

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.diagnostics.advice import diagnosis_of
from fairlead.diagnostics.consistency import ConsistencyReport, measured_consistency
from fairlead.diagnostics.diagnosis import Diagnosis
from fairlead.errors import ClashError, FieldError, field_error, require_instance, require_integer
from fairlead.experiments.diagnose import evidence_of_records
from fairlead.experiments.external_log import REAL_CLIENTS, Recorded
from fairlead.flower.strategy_world import ArrayLayout, PlainWorld
from fairlead.flower.validation import refuse_reported_weights
from fairlead.randomness import Key
from fairlead.records import RoundRecord, ServerState
from fairlead.round import initial_state, run_round

_log = getLogger("flwr")
_ARRAYS, _CONFIG = "arrays", "config"


class FlowerStrategy(Strategy):
    """Sampler, aggregator, transforms and server optimizer of an algorithm, as a strategy of Flower.

    For apps that exist: clients go on training as they do and reply with their model and the metric
    `num-examples`, as for Flower's own strategies. The algorithm's solver only describes what they do (optimizer,
    epochs, batch size), for methods that count local work; clients that report `num-steps` are believed instead.
    Methods with a half on the clients, such as SCAFFOLD, need `make_client_app`.

    `num_clients` is how many nodes to wait for. They are the clients from then on, in the order of their node
    ids. ω_i is proportional to the examples that they report, the mean of all for those not yet heard, or the same
    for all under `weights` = "uniform".
    """

    def __init__(
        self,
        algorithm: Algorithm,
        num_clients: int,
        *,
        weights: Literal["examples", "uniform"] = "examples",
        seed: int = 0,
        fraction_evaluate: float = 1.0,
        poll: float = 1.0,
    ) -> None:
        require_instance(self, "algorithm", algorithm, Algorithm)
        self.algorithm, self.num_clients, self.records = algorithm, num_clients, list[RoundRecord]()
        require_integer(self, "num_clients", at_least=1)
        if weights not in ("examples", "uniform"):
            raise field_error(self, "weights", "'examples' or 'uniform'", weights)
        refuse_reported_weights(algorithm.aggregator, weights)
        if algorithm.solver.corrections:
            names = ", ".join(type(correction).__name__ for correction in algorithm.solver.corrections)
            raise ClashError(
                f"FlowerStrategy cannot make clients of an existing app use {names}: build the clients with "
                "make_client_app and the server with make_server_app, or choose a method without corrections."
            )
        if algorithm.privacy is not None:
            raise ClashError(
                "FlowerStrategy learns ω from what clients report when they first come, which shows in how much the "
                "others count, so that ClientPrivacy could promise nothing: build the clients with make_client_app "
                "and the server with make_server_app."
            )
        self._key, self._poll, self._weights = Key.from_seed(seed), poll, weights
        self._evaluation = FedAvg(fraction_evaluate=fraction_evaluate, min_available_nodes=num_clients)
        self._world: PlainWorld | None = None
        self._state: ServerState | None = None
        self._arrays = ArrayRecord()
        self._asked = torch.empty(0, dtype=torch.int64)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if self._world is None or self._state is None:
            layout = ArrayLayout.of(arrays)
            self._world = PlainWorld(layout, self._await_nodes(grid), layout.flatten(arrays), self._weights)
            self._state = initial_state(self.algorithm, self._world, self._key)
        self._arrays = arrays
        # The app may have changed the model between rounds: what it hands over is what is sent and moved.
        self._state = replace(self._state, params=self._world.layout.flatten(arrays))
        self._asked = self._drawn(self._world, self._state)
        values = ConfigRecord({**config, "server-round": server_round})
        nodes = [self._world.nodes[client] for client in self._asked.tolist()]
        return [Message(RecordDict({_ARRAYS: arrays, _CONFIG: values}), n, MessageType.TRAIN) for n in nodes]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        world, state = self._world, self._state
        assert world is not None
        assert state is not None
        world.receive(replies, self._asked, self.algorithm.solver, state.round)
        # Sizes count in the round that tells them, as in Flower's FedAvg, unless others would have been asked.
        known, world.sizes = world.sizes, world.reported_sizes()
        if not torch.equal(self._drawn(world, state), self._asked):
            world.sizes = known
        self._state, record = run_round(self.algorithm, world, state, self._key)
        self.records.append(record)
        if record.train_loss is None:
            return None, None
        figures = {"arrived": len(record.arrived), "asked": len(record.asked), "refused": len(record.refused)}
        return world.layout.renewed(self._arrays, self._state.params), MetricRecord(
            {"train-loss": record.train_loss, **figures}
        )

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self._evaluation.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return self._evaluation.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        _log.info("%r", self.algorithm)

    def consistency(self) -> ConsistencyReport:
        """The weights Ω that the rounds so far really optimised, against ω."""
        assert self._world is not None
        return measured_consistency(self.records, self._world.weights, algorithm=self.algorithm)

    def diagnosis(self) -> Diagnosis:
        """What is unequal, whom it favours and which method to use, from the rounds so far."""
        if not self.records:
            raise FieldError("FlowerStrategy.diagnosis needs a round to judge by, and there has been none.")
        rounds = Recorded(
            tuple(self.records), self.weights, None, algorithm=self.algorithm, no_data=REAL_CLIENTS
        )
        return diagnosis_of(evidence_of_records("the rounds so far", rounds))

    @property
    def weights(self) -> Tensor:
        """ω as known so far."""
        return self._world.weights if self._world is not None else torch.empty(0, dtype=torch.float64)

    def _drawn(self, world: PlainWorld, state: ServerState) -> Tensor:
        """Whom the sampler asks in the next round: the same whenever it is asked, under the same conditions."""
        conditions = world.conditions(state.round, self.algorithm.solver, self._key)
        key = self._key.fold("sampler", state.round)
        return self.algorithm.sampler.draw(state.sampler, conditions, key).clients

    def _await_nodes(self, grid: Grid) -> tuple[int, ...]:
        while len(nodes := sorted(grid.get_node_ids())) < self.num_clients:
            sleep(self._poll)
        return tuple(nodes[: self.num_clients])
