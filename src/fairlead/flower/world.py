"""`FlowerWorld`: clients that live at the nodes of a Flower federation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from time import monotonic, sleep
from typing import NamedTuple

import torch
from flwr.app import MessageType
from flwr.serverapp import Grid
from torch import Tensor, nn

from fairlead.client_table import PartState, tensor_in
from fairlead.conditions.base import refuse_misfits
from fairlead.conditions.timed import planned_work
from fairlead.conditions.work import EqualWork, Workload, WorkModel
from fairlead.flower.messages import ModelForm, Question, answer_shapes, examination
from fairlead.flower.pending import Letter, Mailbox, RoundRules, examined
from fairlead.flower.roster import Estimates, Roster, refuse_incomplete
from fairlead.flower.validation import (
    Arrival,
    Desk,
    are_self_reported,
    refuse_late_adopters,
    updates_of,
)
from fairlead.local_solver import LocalSolver
from fairlead.parameters import FlatModule
from fairlead.randomness import Key
from fairlead.records import (
    ClientUpdates,
    Cohort,
    Conditions,
    Evaluation,
    Population,
    Refusal,
    RoundRecord,
    WorkOrder,
)
from fairlead.worlds.base import RunWorld, Weights, Workings, objective_weights


class RunIdentity(NamedTuple):
    """Which run a server works on, and how often it has been started for it."""

    run: str
    attempt: int


class FlowerWorld(RunWorld):
    """A real federation: every client computes at its own node, on data that never leave it.

    `build_model` makes the module that clients make too; the `roster` must know every client when rounds begin,
    since ω = n_i/n needs their sizes, and is given `join_seconds` for it. `work` is what clients are asked to
    do, `weights` are those of the objective, `rules` say when a round ends.

    Arrival rates and capacities are those seen so far, so that `FedACS` plans with estimates and the
    consistency report foresees with them. Rows are aggregated in the order of client ids, whatever the order
    in which they come.
    """

    def __init__(
        self,
        grid: Grid,
        build_model: Callable[[], nn.Module],
        roster: Roster,
        identity: RunIdentity,
        *,
        rules: RoundRules | None = None,
        work: WorkModel | None = None,
        weights: Weights = "examples",
        join_seconds: float = 600.0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.roster = roster
        self.rules, self.work_model = rules or RoundRules(), work or EqualWork()
        self._grid, self._build_model, self._identity = grid, build_model, identity
        self._model = FlatModule(build_model()).to(torch.device("cpu"), dtype)
        self._form = ModelForm.of(self._model, dtype)
        self._mailbox = Mailbox(grid, self.rules.patience)
        refuse_misfits(self.work_model, roster.num_clients, has_devices=False)
        self._await_clients(join_seconds)
        members = [roster.members[client] for client in range(roster.num_clients)]
        self.sizes = torch.tensor([member.num_examples for member in members])
        omega = objective_weights(weights, self.sizes)
        self._population = Population(
            omega,
            self._model.layout,
            torch.device("cpu"),
            dtype,
            self_reported=are_self_reported(weights),
        )
        self.estimates = Estimates(roster.num_clients)
        self._repeated: tuple[int, ...] = ()

    @property
    def population(self) -> Population:
        return self._population

    @property
    def description(self) -> str:
        sizes = sha256(self.sizes.numpy().tobytes()).hexdigest()[:16]
        return f"Flower {self._form.digest} {self.work_model!r} {sizes}"

    @property
    def workings(self) -> Workings:
        return Workings(torch.device("cpu"), "FlowerWorld", "clients compute at their own nodes")

    def initial_model(self, key: Key) -> tuple[Tensor, Tensor]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(key.fold("init").torch_seed())
            model = FlatModule(self._build_model()).to(torch.device("cpu"), self.population.dtype)
        return model.initial_params(), model.initial_buffers()

    def initial_memory(self, solver: LocalSolver) -> PartState:
        refuse_late_adopters(solver)
        return {"version": torch.zeros(self.population.num_clients, dtype=torch.int64)}

    def conditions(self, round: int, solver: LocalSolver, key: Key) -> Conditions:
        def work() -> Tensor | None:
            everyone = torch.arange(self.population.num_clients)
            planned = self._plan(everyone, solver, round, key).num_steps
            return solver.effective_steps(self.estimates.expected_steps(planned), round)

        return Conditions(
            round, self.population.weights, work, lambda: self.estimates.arrival, self._repeated
        )

    def work(self, order: WorkOrder) -> ClientUpdates:
        cohort, round = order.cohort, order.round
        plan = self._plan(cohort.clients, order.solver, round, order.key)
        # With everybody away, as after a failure of the link, the rounds left would be over in a moment.
        self._look_until(lambda: self._can_ask(cohort), self.rules.deadline)
        absent = self._send_questions(order, plan)
        arrivals, refused = self._await_answers(order)
        # Whose late answer is used was busy, and has arrived after all.
        absent = [refusal for refusal in absent if refusal.client not in arrivals]
        if len(arrivals) < self.rules.quorum:
            refused += [
                Refusal(client, "no quorum", f"Round {round} is void: only {len(arrivals)} updates came.")
                for client in arrivals
            ]
            arrivals = {}
        uploads = self._form.upload_lengths(order.solver)
        updates = updates_of(order, arrivals, uploads, (*absent, *refused))
        self.estimates.count(cohort.clients, updates.clients)
        self._note_work(updates, order.solver, round, order.key)
        return updates

    def commit(
        self,
        memory: PartState,
        updates: ClientUpdates,
        solver: LocalSolver,
        params: Tensor,
        direction: Tensor,
    ) -> PartState:
        versions = tensor_in(memory, "version").clone()
        versions[updates.clients] = updates.memory["version"][:, 0]
        return {"version": versions}

    def module(self, params: Tensor, buffers: Tensor) -> nn.Module:
        return self._model.filled(params, buffers)

    def evaluate(self, params: Tensor, buffers: Tensor, *, per_client: bool = False) -> Evaluation:
        """Means by ω over the clients that answer, on the data that each keeps for it; NaN if nobody does."""
        found = self._examined(params, buffers, on_training_data=False)
        names = sorted({name for figures in found.values() for name in figures})
        by_client = {
            name: torch.tensor(
                [found.get(client, {}).get(name, float("nan")) for client in range(self.roster.num_clients)],
                dtype=torch.float64,
            )
            for name in names
        }
        overall = {name: self._mean(values) for name, values in by_client.items()}
        clients = {name: tuple(values.tolist()) for name, values in by_client.items()} if per_client else {}
        return Evaluation(
            loss=overall.pop("loss", float("nan")),
            metrics=overall,
            client_loss=clients.pop("loss", None),
            client_metrics=clients,
        )

    def objective_at(self, params: Tensor, buffers: Tensor) -> float:
        found = self._examined(params, buffers, on_training_data=True)
        losses = [
            found.get(client, {}).get("loss", float("nan")) for client in range(self.roster.num_clients)
        ]
        return self._mean(torch.tensor(losses, dtype=torch.float64))

    def recall(
        self, records: Iterable[RoundRecord], solver: LocalSolver, key: Key, repeated: Sequence[int] = ()
    ) -> None:
        """Learn once more from the rounds of a run that goes on, some of which were or will be `repeated`."""
        self._repeated = tuple(repeated)
        for record in records:
            arrived = torch.tensor(record.arrived, dtype=torch.int64)
            self.estimates.count(torch.tensor(record.asked, dtype=torch.int64), arrived)
            in_time = torch.tensor([client not in record.late for client in record.arrived], dtype=torch.bool)
            clients = arrived[in_time]
            planned = self._plan(clients, solver, record.round, key).num_steps
            done = torch.tensor(record.num_steps, dtype=torch.int64)[in_time]
            self.estimates.note_work(clients, planned, done)

    def _await_clients(self, seconds: float) -> None:
        """Wait for clients to introduce themselves; those known from an earlier start may stay away."""
        everyone = range(self.roster.num_clients)
        patience = seconds if self.roster.missing else min(seconds, self.rules.deadline)
        self._look_until(
            lambda: all(self.roster.node_of(client) is not None for client in everyone), patience
        )
        refuse_incomplete(self.roster, seconds)

    def _look_until(self, enough: Callable[[], bool], seconds: float) -> None:
        closing = monotonic() + seconds
        self.roster.look(self._grid)
        while not enough() and monotonic() < closing:
            sleep(self.rules.poll)
            self.roster.look(self._grid)

    def _can_ask(self, cohort: Cohort) -> bool:
        """Whether anybody drawn is at a node or still at work."""
        debtors = self._mailbox.debtors
        return not len(cohort.clients) or any(
            client in debtors or self.roster.node_of(client) is not None for client in cohort.clients.tolist()
        )

    def _plan(self, clients: Tensor, solver: LocalSolver, round: int, key: Key) -> Workload:
        return planned_work(
            self.work_model, clients, self.sizes[clients], solver, round, key.fold("work"), None
        )

    def _note_work(self, updates: ClientUpdates, solver: LocalSolver, round: int, key: Key) -> None:
        in_time = updates.age == 0
        clients = updates.clients[in_time]
        planned = self._plan(clients, solver, round, key).num_steps
        self.estimates.note_work(clients, planned, updates.num_steps[in_time])

    def _send_questions(self, order: WorkOrder, plan: Workload) -> list[Refusal]:
        """Ask whoever can be asked; says who cannot and why."""
        debtors, absent = self._mailbox.debtors, []
        letters = {}
        versions = tensor_in(order.memory, "version")
        for client, steps, batch_size in zip(
            order.cohort.clients.tolist(), plan.num_steps.tolist(), plan.batch_sizes.tolist(), strict=True
        ):
            node = self.roster.node_of(client)
            if client in debtors:
                owed = f"Client {client} still owes the answer of round {debtors[client].round}."
                absent.append(Refusal(client, "busy", owed))
            elif node is None:
                absent.append(Refusal(client, "away", f"Client {client} is at no node."))
            elif steps > 0:
                question = Question(
                    run=self._identity.run,
                    attempt=self._identity.attempt,
                    client=client,
                    base=int(versions[client]) if order.solver.memory_names else 0,
                    num_steps=steps,
                    batch_size=batch_size,
                    batches=order.key.fold("batches", order.round, client),
                    noise=order.key.fold("noise", order.round, client),
                    order=order,
                )
                letter = Letter(client, node, order.round, MessageType.TRAIN, steps)
                letters[letter] = question.to_records()
        self._mailbox.send(letters)
        return absent

    def _await_answers(self, order: WorkOrder) -> tuple[dict[int, Arrival], list[Refusal]]:
        """Fetch answers until the round ends."""
        desk = Desk(
            round=order.round,
            asked=frozenset(order.cohort.clients.tolist()),
            num_clients=self.roster.num_clients,
            shapes=answer_shapes(self._form, order.solver),
            dtype=self._form.dtype,
            late=self.rules.late,
        )
        arrivals: dict[int, Arrival] = {}
        refused: list[Refusal] = []
        busy = self._busy_if_none_was_asked(order)
        closing = monotonic() + self.rules.deadline
        while True:
            for letter, message in self._mailbox.fetch():
                told = desk.judged(letter, message)
                if isinstance(told, Refusal):
                    refused.append(told)
                elif self.rules.first is not None and len(arrivals) >= self.rules.first:
                    sentence = f"Client {letter.client} came after the first {self.rules.first} updates."
                    refused.append(Refusal(letter.client, "late", sentence))
                else:
                    arrivals[letter.client] = Arrival(letter.round, told)
            if not self._still_expects(order.round, arrivals, busy) or monotonic() >= closing:
                return arrivals, refused
            sleep(self.rules.poll)

    def _busy_if_none_was_asked(self, order: WorkOrder) -> frozenset[int]:
        """Clients drawn that still owe an answer, in a round that could ask nobody."""
        debtors = self._mailbox.debtors
        if any(letter.round == order.round for letter in debtors.values()):
            return frozenset()
        return frozenset(order.cohort.clients.tolist()) & debtors.keys()

    def _still_expects(self, round: int, arrivals: dict[int, Arrival], busy: frozenset[int]) -> bool:
        if self.rules.first is not None and len(arrivals) >= self.rules.first:
            return False
        debtors = self._mailbox.debtors
        # With everybody busy the round lasts until one is not, or the rounds left would be over in a moment.
        return any(letter.round == round for letter in debtors.values()) or (
            bool(busy) and busy <= debtors.keys()
        )

    def _examined(
        self, params: Tensor, buffers: Tensor, *, on_training_data: bool
    ) -> dict[int, dict[str, float]]:
        """What clients say of a model: all that have data, can be asked, and answer in time."""
        self.roster.look(self._grid)
        content = examination(params, buffers, on_training_data=on_training_data)
        places = {client: self.roster.node_of(client) for client in self.sizes.nonzero().flatten().tolist()}
        nodes = {client: node for client, node in places.items() if node is not None}
        return examined(self._mailbox, nodes, content, self.rules)

    def _mean(self, values: Tensor) -> float:
        """Σ ω_i value_i over the clients that told theirs."""
        told = values.isfinite()
        weights = self.population.weights[told]
        if not bool(weights.sum() > 0):
            return float("nan")
        # All told: ω itself, which needs no scaling and keeps its bits.
        scaled = weights if bool(told.all()) else weights / weights.sum()
        return float(scaled @ values[told])
