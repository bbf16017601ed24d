"""`Federation`: an algorithm in a world, with its state, its records and its checkpoints."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fairlead.aggregators.base import LinearAggregator
from fairlead.algorithm import Algorithm
from fairlead.charts.display import Display, Displayed
from fairlead.checkpoint.store import KEPT, load_state, save_state, warn
from fairlead.errors import ClashError, ConsistencyWarning, FieldError, require_instance, short
from fairlead.memory.run_budget import refuse_too_large
from fairlead.privacy import PrivacyStatement
from fairlead.randomness import Key
from fairlead.records import Conditions, Evaluation, RoundRecord, ServerState, StoredRecords
from fairlead.round import initial_state, run_round
from fairlead.stopping import StopRule
from fairlead.text import counted
from fairlead.theory.prediction import implied_surrogate
from fairlead.worlds.base import World

if TYPE_CHECKING:
    from fairlead.diagnostics.consistency import ConsistencyReport
    from fairlead.diagnostics.measurement import ConsistencyMonitor


class Training(Iterator[RoundRecord]):
    """Rounds of a federation, each of which runs when its record is asked for.

    If nobody asks for the first one, all rounds run when the federation is next used.
    """

    def __init__(self, federation: Federation, rounds: int, records: Iterator[RoundRecord]) -> None:
        self._federation, self._rounds, self._records = federation, rounds, records

    def __next__(self) -> RoundRecord:
        self._federation.started(self)
        return next(self._records)

    def __repr__(self) -> str:
        return f"<{counted(self._rounds, 'round')}: iterate over the records, or use the federation>"


class Federation(Displayed):
    """Runs rounds of an algorithm in a world.

    `rounds`, `evaluate_every`, `per_client` and `gradients_every` are the defaults of `train`; `stop_when` ends
    it early.

    >>> import fairlead as fl
    >>> problem = fl.Quadratics(num_clients=4).problem(fl.Key.from_seed(0))
    >>> world = fl.SimulatedWorld(problem.task(), problem.data())
    >>> run = fl.Federation(fl.presets.fedavg(lr=0.1, steps=5), world, seed=0)
    >>> [record.round for record in run.train(rounds=3)]
    [0, 1, 2]
    """

    def __init__(
        self,
        algorithm: Algorithm,
        world: World,
        seed: int = 0,
        *,
        rounds: int | None = None,
        evaluate_every: int = 0,
        per_client: bool = False,
        gradients_every: int = 0,
        stop_when: StopRule | None = None,
    ) -> None:
        require_instance(self, "algorithm", algorithm, Algorithm)
        require_instance(self, "world", world, World)
        require_instance(self, "seed", seed, int)
        self.algorithm, self.world, self.seed = algorithm, world, seed
        self.rounds, self.evaluate_every, self.per_client = rounds, evaluate_every, per_client
        self.gradients_every, self.stop_when = gradients_every, stop_when
        self.stopped = False
        self.key = Key.from_seed(seed)
        self._waiting: Training | None = None
        self._monitor: ConsistencyMonitor | None = None
        self._state: ServerState = initial_state(algorithm, world, self.key)
        self._records: list[RoundRecord] | StoredRecords = []
        conditions = self.conditions
        for part in (algorithm.sampler, algorithm.aggregator):
            if part.needs_arrival and conditions.arrival is None:
                raise ClashError(
                    f"{type(part).__name__} needs the arrival rates, which this world does not know: use a part that "
                    "estimates them (FedACSEstimated, FedAU) or one that does not need them."
                )
        self._warn_of_undone_draws(conditions)

    def _warn_of_undone_draws(self, conditions: Conditions) -> None:
        """Warn if draws balance the work of clients and theory says that the server's weights undo it."""
        sampler, aggregator = self.algorithm.sampler.long_run, self.algorithm.aggregator
        # Weighted sums follow the sampler's importance.
        if sampler.balances_work and not isinstance(aggregator, LinearAggregator):
            # For large cohorts: the bias of a small one is no contradiction between the parts. Nor is a percent.
            weights = implied_surrogate(self.algorithm, [conditions], outcomes=0).weights
            share = 0.0 if weights is None else float((weights - conditions.weights).abs().sum() / 2)
            if share > 0.01:
                told = f"Theory predicts that {share:.0%} of the weight will be misplaced, because "
                why = f"{type(aggregator).__name__} undoes the correction by {type(sampler).__name__}: "
                cure = "write aggregator=WeightedMean(over='asked')."
                warnings.warn(told + why + cure, ConsistencyWarning, stacklevel=3)

    @property
    def state(self) -> ServerState:
        """All that the next round needs."""
        self._run_waiting()
        return self._state

    @state.setter
    def state(self, state: ServerState) -> None:
        self._state = state

    @property
    def records(self) -> list[RoundRecord] | StoredRecords:
        """The records of all rounds so far."""
        self._run_waiting()
        return self._records

    @records.setter
    def records(self, records: list[RoundRecord] | StoredRecords) -> None:
        self._records = records

    def started(self, training: Training) -> None:
        """Leave the rounds of a training to whoever iterates over it."""
        if self._waiting is training:
            self._waiting = None

    def _run_waiting(self) -> None:
        """Run the rounds of `train` that nobody iterated over."""
        if self._waiting is not None:
            for _ in self._waiting:
                pass

    @property
    def conditions(self) -> Conditions:
        """Facts about the clients that the server may know before the coming round."""
        return self.world.conditions(self.state.round, self.algorithm.solver, self.key)

    @property
    def params(self) -> Tensor:
        """The global model as a flat vector."""
        return self.state.params

    def model(self) -> nn.Module:
        """A copy of the model with the global parameters, to predict with, save or train further."""
        return self.world.module(self.state.params, self.state.buffers)

    def personal_model(self, client: int) -> nn.Module:
        """A copy of the model that a client uses itself: the global one, unless the method is personal."""
        if not 0 <= client < self.world.population.num_clients:
            most = self.world.population.num_clients - 1
            raise FieldError(f"Federation.personal_model needs a client from 0 to {most}, got {client}.")
        one = torch.tensor([client])
        models = self.world.personal_models(self.algorithm.solver, self.state, self.key, one)
        ((_, params, buffers),) = models
        return self.world.module(params, buffers)

    def train(
        self,
        rounds: int | None = None,
        *,
        evaluate_every: int | None = None,
        per_client: bool | None = None,
        gradients_every: int | None = None,
    ) -> Training:
        """Run `rounds` more rounds: each runs when its record is asked for, as in `for record in run.train(10):`.

        Without a loop, `run.train(10)` trains too: all rounds run when the federation is next used.

        The model is evaluated after every `evaluate_every`-th round and after the last (0: never), with
        `per_client` on each client too. After every `gradients_every`-th round and the last (0: never), the full
        gradients of all clients give gradient diversity and the distance from stationarity (`RoundRecord.gradients`),
        at the cost of a pass over all data. Arguments that are not given take the federation's defaults: for one of
        `Experiment.build` those of the experiment, and without `rounds` its remaining rounds.
        """
        if rounds is None:
            if self.rounds is None:
                raise FieldError(
                    "Federation.train needs `rounds`, because none was set when the Federation was created."
                )
            rounds = max(self.rounds - self.state.round, 0)
        evaluate_every = self.evaluate_every if evaluate_every is None else evaluate_every
        per_client = self.per_client if per_client is None else per_client
        gradients_every = self.gradients_every if gradients_every is None else gradients_every
        counts = {"rounds": rounds, "evaluate_every": evaluate_every, "gradients_every": gradients_every}
        for name, value in counts.items():
            if not hasattr(value, "__index__") or value < 0:
                raise FieldError(
                    f"Federation.train.{name} must be a whole number of at least 0, got {short(value)}."
                )
        if gradients_every and self.world.simulation is None:
            raise ClashError(
                "Federation.train with gradients_every needs the clients' data, which only a simulated world has: "
                "set it to 0."
            )
        if rounds:
            refuse_too_large(self.algorithm, self.world, self.state, self.key, rounds)
        last, simulation = self.state.round + rounds, self.world.simulation
        if simulation is not None:
            for solver in (self.algorithm.solver, self.algorithm.solver.personal):
                if solver is not None:
                    simulation.refuse_single_examples(solver, range(self.state.round, last), self.key)
        records = self._train(last, evaluate_every, per_client, gradients_every)
        self._waiting = Training(self, rounds, records)
        return self._waiting

    def _train(
        self, last: int, evaluate_every: int, per_client: bool, gradients_every: int
    ) -> Iterator[RoundRecord]:
        rule = self.stop_when
        best = None if rule is None else rule.best_so_far().after(self.records)
        self.stopped = rule is not None and best is not None and rule.is_met(best)
        while self.state.round < last and not self.stopped:
            self.state, record = run_round(
                self.algorithm, self.world, self.state, self.key, another_follows=self.state.round + 1 < last
            )
            done = self.state.round
            if evaluate_every and (done % evaluate_every == 0 or done == last):
                record = replace(record, evaluation=self.evaluate(per_client=per_client))
            if gradients_every and (done % gradients_every == 0 or done == last):
                record = self._with_gradients(record)
            self.records.append(record)
            if rule is not None and best is not None:
                best.add(record)
                self.stopped = rule.is_met(best)
            yield record

    def evaluate(self, *, per_client: bool = False) -> Evaluation:
        """Loss and metrics of the global model now.

        For a personal method also those of each client's own model on its own data, as "personal_loss" and
        "personal_accuracy", and then all figures `per_client` too.
        """
        solver, state = self.algorithm.solver, self.state
        found = self.world.evaluate(state.params, state.buffers, per_client=per_client or solver.is_personal)
        own = self.world.evaluate_personal(solver, state, self.key) if solver.is_personal else None
        if own is None:
            return found
        metrics = {f"personal_{name}": value for name, value in {"loss": own.loss, **own.metrics}.items()}
        each = {"loss": own.client_loss or (), **own.client_metrics}
        clients = {f"personal_{name}": values for name, values in each.items()}
        return replace(
            found, metrics={**found.metrics, **metrics}, client_metrics={**found.client_metrics, **clients}
        )

    # Diagnostics read a federation and are loaded on demand: no round needs them.

    def _with_gradients(self, record: RoundRecord) -> RoundRecord:
        from fairlead.diagnostics.gradients import gradient_figures

        return replace(record, gradients=gradient_figures(self, record))

    def __repr__(self) -> str:
        clients = counted(self.world.population.num_clients, "client")
        rounds = counted(self.state.round, "round")
        return f"<Federation of {clients} after {rounds}, seed {self.seed}>"

    def display(self) -> Display:
        from fairlead.reports.displays import federation_display

        return federation_display(self)

    def rows(self) -> list[dict[str, Any]]:
        """The numbers of every round."""
        from fairlead.experiments.record_io import row_of

        return [row_of(record) for record in self.records]

    def consistency(self) -> ConsistencyReport:
        """The weights that the rounds so far optimized, next to the weights asked for and those predicted."""
        from fairlead.diagnostics.measurement import federation_consistency

        return federation_consistency(self)

    @property
    def monitor(self) -> ConsistencyMonitor:
        """Counts the contributions of clients and watches the objective; `watch` takes in new records."""
        from fairlead.diagnostics.measurement import ConsistencyMonitor

        population = self.world.population
        # Clients of an existing Flower app report their weights with their updates.
        if self._monitor is None or not torch.equal(self._monitor.weights, population.weights):
            self._monitor = ConsistencyMonitor(self.algorithm, population.weights, names=population.names)
        return self._monitor

    @property
    def notice(self) -> str | None:
        """One sentence as soon as the run is found to optimize another objective than asked; None until then."""
        return self.monitor.watch(self.records)

    @property
    def privacy(self) -> PrivacyStatement | None:
        """The privacy guarantee of the models so far; None for an algorithm without privacy."""
        privacy = self.algorithm.privacy
        return None if privacy is None else privacy.statement(self.algorithm.sampler, self.conditions)

    def save(self, folder: str | PathLike[str], *, keep: int = KEPT) -> None:
        """Write a checkpoint from which `resume` continues exactly; the folder keeps the `keep` newest."""
        save_state(self.state, Path(folder), self.fingerprint, keep)

    def resume(self, folder: str | PathLike[str], on_damage: Callable[[str], None] = warn) -> None:
        """Resume from the newest checkpoint of the same algorithm, world and seed.

        If it is damaged, resume from the one before; `on_damage` receives the reason in one sentence, and by
        default it becomes a `CheckpointWarning`.
        """
        fresh, self._waiting = initial_state(self.algorithm, self.world, self.key), None
        self.state = load_state(fresh, Path(folder), self.fingerprint, on_damage)
        self.records = [record for record in self.records if record.round < self.state.round]

    @property
    def fingerprint(self) -> str:
        """Identifies the experiment: algorithm, seed, the world's description and ω, unless clients report it."""
        population = self.world.population
        weights = b"" if population.self_reported else population.weights.numpy().tobytes()
        facts = f"{self.algorithm!r} {self.seed} {self.world.description}"
        return sha256(facts.encode() + weights).hexdigest()[:16]
