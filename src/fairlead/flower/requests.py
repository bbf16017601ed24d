"""Requests to clients of a real federation: when a round stops waiting for answers, and which of them count."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic, sleep
from typing import Literal, NamedTuple, TypeVar

import torch
from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid
from torch import Tensor

from fairlead.aggregators.base import refuse_claimed_weights
from fairlead.algorithm import Algorithm
from fairlead.clients.preprocessing import Agreement, ClientSums, Preprocessing
from fairlead.corrections.base import Correction
from fairlead.errors import ClashError, DataError, require_choice, require_integer, require_number
from fairlead.flower.messages import (
    RequestError,
    attach_agreement,
    printable,
    read_metrics,
    read_sums,
    refusal_in,
    sums_request,
    unchecked_reply,
    uploads_in,
)
from fairlead.flower.roster import LOG
from fairlead.flower.secure_sums import public_keys_in
from fairlead.local_solver import LocalSolver
from fairlead.records import ClientUpdates, Refusal, RoundRecord, Vectors, WorkOrder
from fairlead.reply_checks import Reason, ReceivedUpdate, ReplyForm, validate_reply
from fairlead.text import counted
from fairlead.worlds.base import Weights


@dataclass(frozen=True)
class RoundRules:
    """When a round of a real federation ends, and how late answers are treated.

    A round ends when every client asked has answered or is known to be lost, after `deadline` seconds, or with the
    first `first` updates (over-selection: the sampler asks more clients than that, as `FirstArrivals` in simulation).
    A round with fewer than `quorum` updates is void: it uses none of them.

    A client with an unanswered request is not asked again. If it is sampled meanwhile, its late answer counts under
    `late` = "use", with its age, and is dropped under "discard". A request expires after `patience` seconds. The
    server polls for answers every `poll` seconds.

    Under secure aggregation, each of the three exchanges after training has the `deadline` too, and the sum needs at
    least `secure_share` of the clients that have trained; with fewer the round is void.
    """

    deadline: float = 600.0
    first: int | None = None
    quorum: int = 1
    late: Literal["discard", "use"] = "discard"
    patience: float = 43_200.0
    poll: float = 1.0
    secure_share: float = 2 / 3

    def __post_init__(self) -> None:
        require_number(self, "deadline", "poll", above=0)
        require_number(self, "patience", at_least=self.deadline)
        require_integer(self, "quorum", at_least=0)
        require_integer(self, "first", at_least=max(self.quorum, 1), optional=True)
        require_choice(self, "late", ("discard", "use"))
        require_number(self, "secure_share", above=0.5, at_most=1)


class ClientRequest(NamedTuple):
    """A message to a client that needs an answer."""

    client: int
    node: int
    round: int
    kind: str
    num_steps: int
    """Local steps asked for; 0 for a request other than training."""


class PendingRequests:
    """Sends requests over a Flower grid, fetches the answers, and tracks the requests without one."""

    def __init__(self, grid: Grid, patience: float) -> None:
        self._grid, self._patience = grid, patience
        self._by_message: dict[str, ClientRequest] = {}
        self.agreement: Agreement | None = None
        """The preprocessing that every later request tells."""

    @property
    def by_client(self) -> dict[int, ClientRequest]:
        """The unanswered request of each client that has one."""
        return {request.client: request for request in self._by_message.values()}

    def send(self, requests: Mapping[ClientRequest, RecordDict], patience: float | None = None) -> None:
        """Send requests to clients without an unanswered one."""
        ttl = patience or self._patience
        if self.agreement is not None:
            for content in requests.values():
                attach_agreement(content, self.agreement)
        messages = [
            Message(content, request.node, request.kind, ttl=ttl, group_id=str(request.round))
            for request, content in requests.items()
        ]
        if not messages:
            return
        for request, message_id in zip(requests, self._grid.push_messages(messages), strict=True):
            # The grid returns no id for a message that it could not accept: it will have no answer.
            if message_id:
                self._by_message[message_id] = request

    def exchange(
        self,
        requests: Mapping[ClientRequest, RecordDict],
        rules: RoundRules,
        accept: Callable[[int, RecordDict], None],
        kind: str | None,
        patience: float | None = None,
    ) -> list[Refusal]:
        """Send requests and hand each answer to `accept`, which may raise; returns the clients without a good one.

        Other answers of the `kind` that come meanwhile are dropped.
        """
        refused: list[Refusal | None] = []
        self.send(requests, patience)
        closing = monotonic() + rules.deadline
        while True:
            for request, message in self.fetch(kind):
                if request in requests:
                    fault = fault_of(request, message)
                    try:
                        if fault is None:
                            accept(request.client, message.content)
                    except RequestError as error:
                        sentence = f"Client {request.client} was refused: {error}"
                        fault = Refusal(request.client, error.reason, sentence)
                    refused.append(fault)
            silent = requests.keys() & set(self._by_message.values())
            if not silent or monotonic() >= closing:
                break
            sleep(rules.poll)
        for request in sorted(silent):
            sentence = f"Client {request.client} did not answer {request.kind} within {rules.deadline:g} s."
            refused.append(Refusal(request.client, "deadline", sentence))
        return [fault for fault in refused if fault is not None]

    def fetch(self, kind: str | None = None) -> list[tuple[ClientRequest, Message]]:
        """New answers by client, of requests of the given `kind` or of any; others stay until they are fetched."""
        wanted = [name for name, request in self._by_message.items() if kind in (None, request.kind)]
        if not wanted:
            return []
        found = []
        for message in self._grid.pull_messages(wanted):
            # By the message answered, because Flower itself answers for a node that is gone.
            request = self._by_message.pop(message.metadata.reply_to_message_id, None)
            if request is not None:
                found.append((request, message))
        return sorted(found, key=lambda pair: pair[0])


_NO_ROUND = -1
_AnswerT = TypeVar("_AnswerT")


def _reader(
    read: Callable[[RecordDict], tuple[int, _AnswerT]], found: dict[int, _AnswerT]
) -> Callable[[int, RecordDict], None]:
    """Takes answers into a table by client; `read` returns the client that an answer names, and its content."""

    def take(client: int, content: RecordDict) -> None:
        sender, answer = read(content)
        if sender != client:
            raise RequestError("wrong client", "it answered as another client.")
        found[client] = answer

    return take


def collect_metrics(
    pending: PendingRequests,
    nodes: Mapping[int, int],
    content_for: Callable[[int], RecordDict],
    rules: RoundRules,
) -> dict[int, dict[str, float]]:
    """Loss and metrics by client, from those at the given nodes that are free and answer in time."""
    # Late updates stay for the next round if it may use them; otherwise they are dropped here too, so that their
    # clients can be asked again.
    kind = MessageType.EVALUATE if rules.late == "use" else None
    pending.fetch(kind)
    busy = pending.by_client
    requests = {
        ClientRequest(client, node, _NO_ROUND, MessageType.EVALUATE, 0): content_for(client)
        for client, node in nodes.items()
        if client not in busy
    }
    found: dict[int, dict[str, float]] = {}
    for refusal in pending.exchange(requests, rules, _reader(read_metrics, found), kind):
        LOG.warning("An evaluation is missing: %s", refusal.sentence)
    return found


def collect_sums(
    pending: PendingRequests,
    nodes: Mapping[int, int],
    wanted: Preprocessing,
    center: tuple[float, ...],
    rules: RoundRules,
) -> dict[int, ClientSums]:
    """The sums of all clients at the given nodes, by client; without those of one the run cannot begin."""
    content, found = sums_request(wanted, center), dict[int, ClientSums]()
    asked = {ClientRequest(c, node, _NO_ROUND, MessageType.QUERY, 0): content for c, node in nodes.items()}
    for refusal in pending.exchange(asked, rules, _reader(read_sums, found), MessageType.QUERY):
        raise DataError(f"Client {refusal.client} has no sums for the preprocessing: {refusal.sentence}")
    return dict(sorted(found.items()))


def are_self_reported(weights: Weights | None) -> bool:
    """Whether ω follows the sizes that clients report: the default of a spec."""
    return weights is None or (isinstance(weights, str) and weights == "examples")


def refuse_unsuitable(algorithm: Algorithm, weights: Weights | None, rules: RoundRules | None = None) -> None:
    """Raise before the server waits for clients if a real federation cannot run the algorithm."""
    if are_self_reported(weights):
        refuse_claimed_weights(algorithm.aggregator)
    if algorithm.secure_aggregation and rules is not None and rules.late == "use":
        raise ClashError(
            'Algorithm.secure_aggregation adds up the updates of one round, so RoundRules.late="use" has none to use: '
            'write late="discard".'
        )


def log_round(record: RoundRecord, total: int | None = None) -> None:
    """A line on the round, and one for each client that was asked and has no update in it."""
    found = record.evaluation
    evaluation = None if found is None else {"loss": found.loss, **found.metrics}
    losses = {} if record.train_loss is None else {"train loss": record.train_loss}
    said = "".join(f", {name} {value:.4g}" for name, value in {**losses, **(evaluation or {})}.items())
    number = f"{record.round + 1}" if total is None else f"{record.round + 1}/{total}"
    here, asked, arrived = {"round": record.round + 1}, len(record.asked), len(record.arrived)
    figures = {"asked": asked, "arrived": arrived, "train_loss": record.train_loss, "seconds": record.seconds}
    extra = {"facts": {**here, **figures, "evaluation": evaluation}}
    LOG.info("Round %s: %d of %d arrived%s", number, arrived, asked, said, extra=extra)
    for refusal in record.refused:
        facts = here | {"client": refusal.client, "reason": str(refusal.reason)}
        LOG.warning("Round %s: %s", number, refusal.sentence, extra={"facts": facts})
    if not record.arrived:
        LOG.warning("Round %s used no update.", number, extra={"facts": here})


def refuse_late_adopters(solver: LocalSolver) -> None:
    """Refuse corrections whose client memory depends on the server's result of a round.

    A client of a real federation learns that its update was used when it is asked again, perhaps many rounds later.
    The model and the direction of that round are then gone.
    """
    for correction in solver.corrections:
        if type(correction).after_round is not Correction.after_round:
            raise ClashError(
                f"{type(correction).__name__} completes client memory with the server's new model or direction, "
                "which clients at Flower nodes do not receive: use ControlVariates or DynamicRegularizer there, or "
                "run it in simulation."
            )


def validate_answer(
    request: ClientRequest, message: Message, form: ReplyForm, late: Literal["discard", "use"]
) -> ReceivedUpdate | Refusal:
    """The update in an answer, or why it does not count in the round of `form`."""
    client = request.client
    if request.kind != MessageType.TRAIN:
        return Refusal(client, "late", f"Client {client} answered a question other than this round's.")
    if request.round != form.round and (late == "discard" or client not in form.asked):
        sentence = f"Client {client} answered round {request.round + 1} in round {form.round + 1}."
        return Refusal(client, "late", sentence)
    fault = fault_of(request, message)
    if fault is not None:
        return fault
    limits = replace(form.limits, max_steps=request.num_steps)
    own = replace(form, round=request.round, asked={client}, limits=limits)
    found = validate_reply(unchecked_reply(message.content), own, sender=client)
    if form.arrays or isinstance(found, Refusal):
        return found
    try:
        # Its loss is hidden too.
        return found._replace(public_keys=public_keys_in(message.content), loss=math.nan)
    except RequestError as error:
        return Refusal(client, Reason.MISSING, f"Client {client} was refused: {error}")


def fault_of(request: ClientRequest, message: Message) -> Refusal | None:
    """Why a message is no answer of the client that was asked; None for an answer."""
    client = request.client
    if message.has_error():
        error = (
            f"Flower's error {message.error.code}, {printable(message.error.reason or 'without a reason')}"
        )
        return Refusal(client, "failed", f"Client {client} failed: {error}")
    if message.metadata.src_node_id != request.node:
        return Refusal(client, Reason.WRONG_CLIENT, f"Another node answered for client {client}.")
    refused = refusal_in(message.content)
    return None if refused is None else Refusal(client, refused[0], f"Client {client} refused: {refused[1]}")


def updates_of(
    order: WorkOrder,
    received: Mapping[int, ReceivedUpdate],
    uploads: Vectors,
    refused: Sequence[Refusal],
    *,
    quorum: int = 0,
) -> ClientUpdates:
    """The rows of a round in the order of client ids; `uploads` are the extra uploads of a client, without content.

    Without a quorum there are none. Of client memory the server knows the version alone.
    """
    if len(received) < quorum:
        sentence = f"Round {order.round + 1} is void: only {counted(len(received), 'update')} came."
        refused, received = [*refused, *(Refusal(each, "no quorum", sentence) for each in received)], {}
    cohort, solver, anchor = order.cohort, order.solver, order.anchor
    places = torch.tensor([client in received for client in cohort.clients.tolist()], dtype=torch.bool)
    updates = [received[client] for client in cohort.clients[places].tolist()]
    num_steps, num_examples, rounds = (
        torch.tensor([getattr(update, name) for update in updates], dtype=torch.int64)
        for name in ("num_steps", "num_examples", "round")
    )
    extra = [uploads_in(update.arrays) for update in updates]

    def stacked(vectors: Sequence[Tensor], length: int, dtype: torch.dtype = anchor.dtype) -> Tensor:
        return torch.stack(list(vectors)) if vectors else torch.zeros((0, length), dtype=dtype)

    return ClientUpdates.of(
        cohort,
        places,
        stacked([update.arrays["delta"] for update in updates], len(anchor)),
        num_steps,
        solver.late_effective_steps(num_steps, rounds, order.round),
        lr=solver.optimizer.lr_at(order.round),
        loss=anchor.new_tensor([update.loss for update in updates]),
        num_examples=num_examples,
        buffers=stacked([update.arrays["buffers"] for update in updates], len(order.buffers)),
        messages={
            name: stacked([each[name] for each in extra], len(part), part.dtype)
            for name, part in uploads.items()
        },
        memory={"version": rounds[:, None] + 1},
        age=order.round - rounds,
        refused=tuple(sorted(refused, key=lambda each: -1 if each.client is None else each.client)),
    )
