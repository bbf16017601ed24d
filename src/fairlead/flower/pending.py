"""Requests that clients have not answered yet, when a round stops waiting for them, and evaluation on clients."""

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Literal, NamedTuple

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fairlead.errors import require_choice, require_integer, require_number
from fairlead.flower.messages import RequestError, read_metrics, refusal_in


@dataclass(frozen=True)
class RoundRules:
    """When a round of a real federation ends, and how late answers are treated.

    A round ends when every client asked has answered or is known to be lost, after `deadline` seconds, or with the
    first `first` updates (over-selection: the sampler asks more clients than that, as `FirstArrivals` in simulation).
    A round with fewer than `quorum` updates is void: it uses none of them.

    A client with an unanswered request is not asked again. If it is sampled meanwhile, its late answer counts under
    `late` = "use", with its age, and is dropped under "discard". A request expires after `patience` seconds. The
    server polls for answers every `poll` seconds.
    """

    deadline: float = 600.0
    first: int | None = None
    quorum: int = 1
    late: Literal["discard", "use"] = "discard"
    patience: float = 43_200.0
    poll: float = 1.0

    def __post_init__(self) -> None:
        require_number(self, "deadline", above=0)
        require_number(self, "patience", at_least=self.deadline)
        require_number(self, "poll", above=0)
        require_integer(self, "quorum", at_least=0)
        if self.first is not None:
            require_integer(self, "first", at_least=max(self.quorum, 1))
        require_choice(self, "late", ("discard", "use"))


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

    @property
    def by_client(self) -> dict[int, ClientRequest]:
        """The unanswered request of each client that has one."""
        return {request.client: request for request in self._by_message.values()}

    def send(self, requests: Mapping[ClientRequest, RecordDict]) -> None:
        """Send requests to clients without an unanswered one."""
        messages = [
            Message(content, request.node, request.kind, ttl=self._patience, group_id=str(request.round))
            for request, content in requests.items()
        ]
        if not messages:
            return
        for request, message_id in zip(requests, self._grid.push_messages(messages), strict=True):
            # The grid returns no id for a message that it could not accept: it will have no answer.
            if message_id:
                self._by_message[message_id] = request

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


def collect_metrics(
    pending: PendingRequests, nodes: Mapping[int, int], content: RecordDict, rules: RoundRules
) -> dict[int, dict[str, float]]:
    """Loss and metrics by client, from those at the given nodes that are free and answer in time."""
    # Late updates stay for the next round if it may use them; otherwise they are dropped here too, so that their
    # clients can be asked again.
    kind = MessageType.EVALUATE if rules.late == "use" else None
    pending.fetch(kind)
    busy = pending.by_client
    requests = {
        ClientRequest(client, node, _NO_ROUND, MessageType.EVALUATE, 0): content
        for client, node in nodes.items()
        if client not in busy
    }
    pending.send(requests)
    found: dict[int, dict[str, float]] = {}
    closing = monotonic() + rules.deadline
    while True:
        for request, message in pending.fetch(kind):
            if request in requests:
                found.update(_metrics_in(request, message))
        if not requests.keys() & set(pending.by_client.values()) or monotonic() >= closing:
            return found
        sleep(rules.poll)


def _metrics_in(request: ClientRequest, message: Message) -> dict[int, dict[str, float]]:
    """The metrics in an answer, if the client that was asked sent them."""
    if not message.has_content() or message.metadata.src_node_id != request.node:
        return {}
    if refusal_in(message.content) is not None:
        return {}
    try:
        client, metrics = read_metrics(message.content)
    except RequestError:
        return {}
    return {client: metrics} if client == request.client else {}
