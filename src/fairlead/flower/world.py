"""`FlowerWorld`: the clients at the nodes of a Flower federation."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from time import monotonic, sleep
from typing import NamedTuple

import torch
from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid
from torch import Tensor, nn

from fairlead.client_table import PartState, tensor_in
from fairlead.clients.preprocessing import Agreement, ClientSums, Preprocessing
from fairlead.conditions.base import refuse_misfits
from fairlead.conditions.work import EqualWork, Workload, WorkModel
from fairlead.errors import ClashError, DataError, FairleadError, require_integer
from fairlead.flower import requests
from fairlead.flower.messages import ModelForm, Question, answer_form, evaluation_request
from fairlead.flower.requests import ClientRequest, PendingRequests, RoundRules
from fairlead.flower.roster import Estimates, Roster, warn_of_claims
from fairlead.flower.secure_sums import SecureSum, SumGroup, follow_from, spanning
from fairlead.local_solver import LocalSolver
from fairlead.parameters import FlatModule
from fairlead.randomness import Key, seeded_start
from fairlead.records import (
    Broadcast,
    Buffering,
    ClientUpdates,
    Cohort,
    Conditions,
    Evaluation,
    NeededSums,
    Poll,
    Population,
    Refusal,
    RoundRecord,
    ServerState,
    WorkOrder,
)
from fairlead.reply_checks import ReceivedUpdate, ReplyForm, ReplyLimits
from fairlead.worlds.base import Weights, World, objective_weights
from fairlead.worlds.evaluation import evaluation_of, personal_means
from fairlead.worlds.executor import refuse_unknown_parameters
from fairlead.worlds.in_flight import queue_of, stale


class RunIdentity(NamedTuple):
    """The run that a server works on, and how often a server has been started for it."""

    run: str
    attempt: int


class FlowerWorld(World):
    """A real federation: every client computes at its own node, on data that never leave it.

    `build_model` makes the module that clients make too. The `roster` must know every client when rounds begin, since
    ω = n_i/n needs their sizes; it waits `join_seconds` for them. `work` is the local work that clients are asked for,
    `weights` are those of the objective. With `start_with`, rounds begin when that many clients are there, and the
    others join later; this needs `weights` that clients do not report. `rules` say when a round ends, and
    `limits` bound replies.

    Arrival rates and capacities are estimated from the rounds so far; `FedACS` and the predicted weights of the
    consistency report use these estimates. Updates are aggregated in the order of client ids, in whatever order they
    arrive.
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
        limits: ReplyLimits | None = None,
        start_with: int | None = None,
        join_seconds: float = 600.0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.roster, self._limits = roster, limits or ReplyLimits()
        self.start_with = start_with
        require_integer(self, "start_with", at_least=1, at_most=roster.num_clients, optional=True)
        if start_with is not None and requests.are_self_reported(weights):
            raise ClashError(
                f"FlowerWorld.start_with={start_with} starts before all clients have reported their examples, of which "
                'the weights would be made: set weights to "uniform" or to one number per client.'
            )
        self.rules, self.work_model = rules or RoundRules(), work or EqualWork()
        self._grid, self._build_model, self._identity = grid, build_model, identity
        # Server, clients and simulations draw the same frozen parameters.
        with seeded_start(Key.from_seed(0)):
            self._model = FlatModule(build_model()).to(torch.device("cpu"), dtype)
        self._form = ModelForm.of(self._model, dtype)
        self._pending = PendingRequests(grid, self.rules.patience)
        self._early: list[tuple[ClientRequest, Message]] = []
        """Answers that came with a buffer that was full, for the next one."""
        refuse_misfits(self.work_model, roster.num_clients, has_devices=False)
        self._await_clients(join_seconds)
        if self_reported := requests.are_self_reported(weights):
            warn_of_claims(torch.zeros_like(self.sizes), self.sizes)
        self._population = Population(
            objective_weights(weights, self.sizes),
            self._model.layout,
            torch.device("cpu"),
            dtype,
            self_reported=self_reported,
        )
        self.estimates = Estimates(roster.num_clients)
        self._repeated: tuple[int, ...] = ()

    @property
    def sizes(self) -> Tensor:
        """Examples of each client (N,), with the mean of all others for one that has not joined yet."""
        known = {client: member.num_examples for client, member in self.roster.members.items()}
        mean = max(round(sum(known.values()) / len(known)), 1)
        return torch.tensor([known.get(client, mean) for client in range(self.roster.num_clients)])

    @property
    def population(self) -> Population:
        return self._population

    @property
    def description(self) -> str:
        sizes = "open"
        if self.start_with is None:
            sizes = sha256(self.sizes.numpy().tobytes()).hexdigest()[:16]
        return f"Flower {self._form.digest} {self.work_model!r} {sizes}"

    def initial_model(self, key: Key) -> tuple[Tensor, Tensor]:
        with seeded_start(key):
            model = FlatModule(self._build_model()).to(torch.device("cpu"), self.population.dtype)
        return model.initial_params(), model.initial_buffers()

    def initial_memory(self, solver: LocalSolver) -> PartState:
        requests.refuse_late_adopters(solver)
        refuse_unknown_parameters(solver, self._model)
        return {"version": torch.zeros(self.population.num_clients, dtype=torch.int64)}

    def initial_flight(self, buffering: Buffering, solver: LocalSolver) -> PartState:
        if self.rules.first is not None:
            raise ClashError(
                f"RoundRules.first={self.rules.first} ends rounds that wait for their clients, and BufferedSampling "
                "ends them by its buffer_size: remove one of the two."
            )
        if self.rules.quorum > min(buffering.size, self.roster.num_clients):
            raise ClashError(
                f"RoundRules.quorum={self.rules.quorum} is never reached by a buffer of {buffering.size} updates: "
                "lower it, or raise BufferedSampling.buffer_size."
            )
        # An evaluation must leave the answers of clients at work for the next round.
        self.rules = replace(self.rules, late="use")
        places = buffering.places(self.roster.num_clients)
        return {"clients": torch.full((places,), -1), "importance": torch.zeros(places, dtype=torch.float64)}

    def conditions(self, round: int, solver: LocalSolver, key: Key) -> Conditions:
        def steps() -> Tensor:
            planned = self._plan(torch.arange(self.population.num_clients), solver, round, key).num_steps
            return self.estimates.expected_steps(planned)

        def work() -> Tensor | None:
            return solver.effective_steps(steps(), round)

        return Conditions(
            round,
            self.population.weights,
            work,
            lambda: self.estimates.arrival,
            repeated=self._repeated,
            forecast_steps=steps,
            num_examples=self.sizes,
        )

    def work(self, order: WorkOrder) -> ClientUpdates:
        if order.buffering is not None:
            return self._work_on(order, order.buffering)
        clients = order.cohort.clients
        # With every client away, as after a failure of the link, the remaining rounds would be over in a moment.
        self._refresh_until(lambda: self._can_ask(clients.tolist()), self.rules.deadline)
        absent = self._send_questions(order)
        form = answer_form(self._form, order, self.roster.num_clients, self._limits)
        masked_bytes = None
        if order.sums is None:
            received, refused = self._await_answers(order, form)
        else:
            received, refused, masked_bytes = self._add_securely(order, form, order.sums)
        # A busy client whose late answer is used has arrived after all.
        absent = [refusal for refusal in absent if refusal.client not in received]
        return self._updates(order, received, [*absent, *refused], clients, masked_bytes)

    def _updates(
        self,
        order: WorkOrder,
        received: Mapping[int, ReceivedUpdate],
        refused: list[Refusal],
        asked: Tensor,
        masked_bytes: int | None = None,
    ) -> ClientUpdates:
        """The updates of a round, none without a quorum, which also counts for the estimates."""
        uploads = self._form.uploads(order.solver)
        updates = requests.updates_of(order, received, uploads, refused, quorum=self.rules.quorum)
        updates = replace(updates, masked_bytes=masked_bytes)
        self.estimates.count(asked, updates.clients)
        in_time = updates.age == 0
        self._note_work(
            updates.clients[in_time], updates.num_steps[in_time], order.solver, order.round, order.key
        )
        return updates

    def _work_on(self, order: WorkOrder, buffering: Buffering) -> ClientUpdates:
        """Keep clients at work until the buffer is full, or until the deadline; the others go on."""
        cohort, round, places = order.cohort, order.round, len(tensor_in(order.flight, "clients"))
        importance = dict(zip(cohort.clients.tolist(), cohort.importance.tolist(), strict=True))
        kept = tensor_in(order.flight, "clients").tolist(), tensor_in(order.flight, "importance").tolist()
        flying = {client: share for client, share in zip(*kept, strict=True) if client >= 0}
        importance |= flying

        def busy() -> set[int]:
            training = (r.client for r in self._pending.by_client.values() if r.kind == MessageType.TRAIN)
            return {*training, *(request.client for request, _ in self._early)}

        def of(clients: Iterable[int]) -> Cohort:
            ids = torch.tensor(sorted(clients), dtype=torch.int64)
            shares = torch.tensor([importance[client] for client in ids.tolist()], dtype=torch.float64)
            return Cohort(ids, torch.ones_like(ids), shares)

        # A server that has been started again knows no requests of the last one: their clients begin anew.
        queue = [client for client in flying if client not in busy()]
        queue += cohort.clients[queue_of(order)].tolist()
        self._refresh_until(lambda: bool(busy()) or self._can_ask(queue), self.rules.deadline)
        asking, most = replace(order, cohort=of(importance)), buffering.max_age
        form = answer_form(self._form, asking, self.roster.num_clients, self._limits)
        received, started, refused = dict[int, ReceivedUpdate](), set[int](), list[Refusal]()
        closing = monotonic() + self.rules.deadline
        while True:
            while queue and (free := places - len(busy())) > 0:
                chosen, queue = queue[:free], queue[free:]
                refused += self._send_questions(replace(order, cohort=of(chosen)))
                started |= busy() & set(chosen)
            answers, self._early = self._early + self._pending.fetch(MessageType.TRAIN), []
            for request, message in answers:
                if len(received) == buffering.size:
                    self._early.append((request, message))
                    continue
                found = requests.validate_answer(request, message, form, "use")
                if not isinstance(found, Refusal) and most is not None and round - request.round > most:
                    found = stale(request.client, round - request.round, most)
                if isinstance(found, Refusal):
                    refused.append(found)
                else:
                    received[request.client] = found
            is_over = len(received) == buffering.size or monotonic() >= closing
            if is_over or not (busy() or queue):
                break
            if not answers:
                sleep(self.rules.poll)
        asked = of(started)
        updates = self._updates(replace(order, cohort=of(received)), received, refused, asked.clients)
        flight = {"clients": torch.full((places,), -1), "importance": torch.zeros(places).double()}
        going = of(busy())
        flight["clients"][: len(going.clients)] = going.clients
        flight["importance"][: len(going.clients)] = going.importance
        return replace(updates, cohort=asked, flight=flight)

    def commit(
        self, order: WorkOrder, updates: ClientUpdates, params: Tensor, direction: Tensor
    ) -> PartState:
        versions = tensor_in(order.memory, "version").clone()
        versions[updates.clients] = updates.memory["version"][:, 0]
        return {"version": versions}

    def module(self, params: Tensor, buffers: Tensor) -> nn.Module:
        return self._model.filled(params, buffers)

    def evaluate(self, params: Tensor, buffers: Tensor, *, per_client: bool = False) -> Evaluation:
        """Means by ω over the clients that answer, on the data that each keeps for it; NaN without an answer."""
        content = evaluation_request(params, buffers, on_training_data=False)
        found = self._client_metrics(lambda client: content)
        overall = {name: self._mean(values) for name, values in found.items()}
        return evaluation_of(overall, found if per_client else {})

    def evaluate_personal(self, solver: LocalSolver, state: ServerState, key: Key) -> Evaluation:
        """As `evaluate`, each client with its own model, which stays where it is."""
        order = Broadcast(state.round, solver, state.params, state.buffers, state.shared)
        own, versions = solver.personal or solver, tensor_in(state.memory, "version")
        num_steps, batch_sizes = own.count_steps(self.sizes), own.batches(self.sizes)

        def content_for(client: int) -> RecordDict:
            work = int(num_steps[client]), int(batch_sizes[client])
            return self._question(order, key, client, int(versions[client]), *work).to_records()

        return personal_means(self._client_metrics(content_for))

    def objective_at(self, params: Tensor, buffers: Tensor) -> float:
        content = evaluation_request(params, buffers, on_training_data=True)
        losses = self._client_metrics(lambda client: content).get("loss")
        return float("nan") if losses is None else self._mean(losses)

    def poll(self, clients: Tensor, params: Tensor, buffers: Tensor, round: int) -> Poll:
        """Asks clients that are at a node and free; the others have no loss."""
        content = evaluation_request(params, buffers, on_training_data=True)
        found = self._client_metrics(lambda client: content, clients.tolist()).get("loss")
        losses = torch.full((len(clients),), torch.nan).double() if found is None else found[clients]
        return Poll(clients, losses)

    def preprocess(self, wanted: Preprocessing, known: Agreement | None) -> Agreement:
        """Let the clients that are there agree, unless the agreement is `known`; all later requests tell it."""

        def ask(center: tuple[float, ...]) -> dict[int, ClientSums]:
            found = requests.collect_sums(self._pending, nodes, wanted, center, self.rules)
            for client, sums in found.items():
                introduced = self.roster.num_examples_at(nodes[client])
                if sums.num_examples != introduced:
                    raise DataError(
                        f"Client {client} sent sums of {sums.num_examples} examples, but reported {introduced}."
                    )
            return found

        nodes = self.roster.nodes_of(range(self.roster.num_clients))
        self._pending.agreement = agreed = wanted.agree(ask) if known is None else known
        return agreed

    def recall(
        self, records: Iterable[RoundRecord], solver: LocalSolver, key: Key, repeated: Sequence[int] = ()
    ) -> None:
        """Update the estimates from the rounds of a run that resumes; `repeated` are rounds done again."""
        self._repeated = tuple(repeated)
        for record in records:
            asked, arrived, num_steps = (
                torch.tensor(values, dtype=torch.int64)
                for values in (record.asked, record.arrived, record.num_steps)
            )
            in_time = torch.tensor([client not in record.late for client in record.arrived], dtype=torch.bool)
            self.estimates.count(asked, arrived)
            self._note_work(arrived[in_time], num_steps[in_time], solver, record.round, key)

    def _note_work(self, clients: Tensor, done: Tensor, solver: LocalSolver, round: int, key: Key) -> None:
        """Note the local steps that clients have done in time, for the estimates of their capacity."""
        self.estimates.note_work(clients, self._plan(clients, solver, round, key).num_steps, done)

    def _await_clients(self, seconds: float) -> None:
        """Wait for clients to introduce themselves; those known from an earlier attempt may stay away."""
        least = self.start_with or self.roster.num_clients
        patience = seconds if self.roster.missing else min(seconds, self.rules.deadline)
        roster = self.roster
        self._refresh_until(lambda: roster.is_hopeless or roster.num_placed >= least, patience)
        if len(roster.members) < least:
            faults = [f"Node {node} {fault}" for node, fault in roster.faults.items()]
            cure = "start their nodes with --node-config 'client-id=...', or lower the number of clients."
            when = "" if roster.is_hopeless else f" within {seconds:g} s"
            raise FairleadError(
                f"Clients {roster.missing[:10]} have not introduced themselves{when}: {' '.join(faults[:3]) or cure}"
            )

    def _refresh_until(self, enough: Callable[[], bool], seconds: float) -> None:
        closing = monotonic() + seconds
        self.roster.refresh(self._grid)
        while not enough() and monotonic() < closing:
            sleep(self.rules.poll)
            self.roster.refresh(self._grid)

    def _can_ask(self, clients: Sequence[int]) -> bool:
        """Whether any of the clients is at a node or still at work."""
        busy = self._pending.by_client
        return not clients or any(c in busy or self.roster.node_of(c) is not None for c in clients)

    def _plan(self, clients: Tensor, solver: LocalSolver, round: int, key: Key) -> Workload:
        return self.work_model.planned(clients, self.sizes[clients], solver, round, key.fold("work"))

    def _question(
        self, order: Broadcast, key: Key, client: int, version: int, num_steps: int, batch_size: int
    ) -> Question:
        sums = order.sums if isinstance(order, WorkOrder) else None
        return Question(
            *self._identity,
            client=client,
            base=version if order.solver.memory_names else 0,
            num_steps=num_steps,
            batch_size=batch_size,
            batches=key.fold("batches", order.round, client),
            noise=key.fold("noise", order.round, client),
            order=order,
            hides=sums is not None,
            clip=(sums and sums.clip) or 0.0,
        )

    def _send_questions(self, order: WorkOrder) -> list[Refusal]:
        """Ask the clients that can be asked; returns the others of the cohort."""
        plan = self._plan(order.cohort.clients, order.solver, order.round, order.key)
        busy, absent, sent = self._pending.by_client, [], {}
        versions = tensor_in(order.memory, "version")
        for client, steps, batch_size in zip(
            order.cohort.clients.tolist(), plan.num_steps.tolist(), plan.batch_sizes.tolist(), strict=True
        ):
            node = self.roster.node_of(client)
            if client in busy:
                sentence = f"Client {client} still owes the answer of round {busy[client].round + 1}."
                absent.append(Refusal(client, "busy", sentence))
            elif node is None:
                absent.append(Refusal(client, "away", f"Client {client} is at no node."))
            elif steps > 0:
                question = self._question(order, order.key, client, int(versions[client]), steps, batch_size)
                request = ClientRequest(client, node, order.round, MessageType.TRAIN, steps)
                sent[request] = question.to_records()
        self._pending.send(sent)
        return absent

    def _await_answers(
        self, order: WorkOrder, form: ReplyForm
    ) -> tuple[dict[int, ReceivedUpdate], list[Refusal]]:
        """Fetch answers until the round ends."""
        received: dict[int, ReceivedUpdate] = {}
        refused: list[Refusal] = []

        def refuse(client: int, *, is_late: bool) -> None:
            fault = f"did not answer within the deadline of {self.rules.deadline:g} s"
            fault = f"was not among the first {most} updates" if is_late else fault
            refused.append(Refusal(client, "late" if is_late else "deadline", f"Client {client} {fault}."))

        most, pending = self.rules.first, self._pending.by_client
        asked = {client for client, request in pending.items() if request.round == order.round}
        busy = pending.keys() & order.cohort.clients.tolist()
        closing = monotonic() + self.rules.deadline
        while True:
            for request, message in self._pending.fetch():
                found = requests.validate_answer(request, message, form, self.rules.late)
                if isinstance(found, Refusal):
                    refused.append(found)
                elif most is not None and len(received) >= most:
                    refuse(request.client, is_late=True)
                else:
                    received[request.client] = found
            complete = most is not None and len(received) >= most
            owed = self._pending.by_client.keys()
            # With all clients busy the round lasts until one is free, or all rounds would be over in a moment.
            is_waiting = bool(asked & owed) if asked else bool(busy) and busy <= owed
            if complete or not is_waiting or monotonic() >= closing:
                break
            sleep(self.rules.poll)
        for client in sorted(asked & owed):
            refuse(client, is_late=complete)
        return received, refused

    def _add_securely(
        self, order: WorkOrder, form: ReplyForm, sums: NeededSums
    ) -> tuple[dict[int, ReceivedUpdate], list[Refusal], int]:
        """Learn sums over the clients that train: rows in their stead, refusals, and the bytes received."""
        trained, refused = self._await_answers(order, replace(form, arrays={}))
        lengths = {"loss": 1, **{name: length for name, (length,) in form.arrays.items() if length}}
        bare = {"delta": order.anchor[:0], "buffers": order.anchor[:0]}

        def needed(clients: Sequence[int]) -> dict[str, Tensor]:
            facts = {client: trained[client]._replace(arrays=bare) for client in clients}
            weights = sums.weights(requests.updates_of(order, facts, {}, ()))
            return {name: weights["messages" if "." in name else name] for name in lengths}

        def exchange(
            stage: str, contents: Mapping[int, RecordDict], accept: Callable[[int, RecordDict], None]
        ) -> list[Refusal]:
            kind, nodes = f"{MessageType.TRAIN}.{stage}", self.roster.nodes_of(contents)
            sent = {ClientRequest(c, node, order.round, kind, 0): contents[c] for c, node in nodes.items()}
            gone = sorted(contents.keys() - nodes.keys())
            away = [Refusal(client, "away", f"Client {client} is at no node.") for client in gone]
            return away + self._pending.exchange(sent, self.rules, accept, kind, self.rules.deadline)

        keys = {client: trained[client].public_keys or (b"", b"") for client in sorted(trained)}
        threshold = math.ceil(self.rules.secure_share * len(keys) - 1e-9)
        channels, masks = ([pair[place] for pair in keys.values()] for place in (0, 1))
        group = SumGroup(*self._identity, order.round, threshold, (*keys,), (*channels,), (*masks,))
        total = SecureSum(group, lengths)
        total.run(exchange, lambda present: spanning(needed(present)))
        if total.clients and not follow_from(total.weights, needed(total.clients)):
            total.void(f"Round {order.round + 1} is void: its weights changed when clients dropped out.")
        found = {}
        if total.clients:
            rows = {name: total.rows(name, order.anchor) for name in lengths}
            for place, client in enumerate(total.clients):
                arrays = {name: rows[name][place] if name in rows else bare["delta"] for name in form.arrays}
                found[client] = trained[client]._replace(arrays=arrays, loss=float(rows["loss"][place]))
        return found, refused + total.refused, total.masked_bytes

    def _client_metrics(
        self, content_for: Callable[[int], RecordDict], clients: Sequence[int] | None = None
    ) -> dict[str, Tensor]:
        """Loss and metrics (N,) by name from clients, or some of them, that have data and answer in time; else NaN."""
        self.roster.refresh(self._grid)
        asked = self.sizes.nonzero().flatten().tolist() if clients is None else clients
        nodes = self.roster.nodes_of(asked)
        found = requests.collect_metrics(self._pending, nodes, content_for, self.rules)
        everyone = [found.get(client, {}) for client in range(self.roster.num_clients)]
        return {
            name: torch.tensor([own.get(name, float("nan")) for own in everyone], dtype=torch.float64)
            for name in sorted({name for metrics in found.values() for name in metrics})
        }

    def _mean(self, values: Tensor) -> float:
        """Σ ω_i value_i over the clients that answered, with ω scaled to sum to 1 over them."""
        known = values.isfinite()
        weights = self.population.weights[known]
        if not bool(weights.sum() > 0):
            return float("nan")
        # With all known, ω itself needs no scaling and keeps its bits.
        scaled = weights if bool(known.all()) else weights / weights.sum()
        return float(scaled @ values[known])
