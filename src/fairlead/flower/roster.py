"""The clients of a real federation: the node of each, and estimates of how reliable they are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from logging import getLogger

import torch
from flwr.app import Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from torch import Tensor

from fairlead.flower.messages import Introduction, RequestError, printable, refusal_in
from fairlead.reply_checks import ReplyLimits

LOG = getLogger("flwr")
"""Flower sends the lines of this logger to the SuperLink, where `flwr log` shows them."""

_ATTEMPTS = 3
"""Failed introductions after which a node is not asked again."""
_LOST = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)
"""Errors that say nothing about a client: the message or its node is gone."""


class Estimates:
    """Arrival rates and capacities of N clients, estimated from the rounds so far.

        1 − q̂_i = (arrived_i + 1)/(asked_i + 2)

    This is the posterior mean under a uniform prior: 1/2 for a client never asked, and never 0. A client that did
    fewer steps than asked is expected to do as few again.
    """

    def __init__(self, num_clients: int) -> None:
        self._asked = torch.zeros(num_clients, dtype=torch.float64)
        self._arrived = torch.zeros(num_clients, dtype=torch.float64)
        self._capacity = torch.full((num_clients,), torch.iinfo(torch.int64).max)

    @property
    def arrival(self) -> Tensor:
        """1 − q̂ (N,)."""
        return (self._arrived + 1) / (self._asked + 2)

    def expected_steps(self, planned: Tensor) -> Tensor:
        """Local steps (N,) that clients are expected to take of those planned."""
        return torch.minimum(planned, self._capacity)

    def count(self, asked: Tensor, arrived: Tensor) -> None:
        """Count the clients asked in a round, and those whose update arrived."""
        self._asked[asked] += 1
        self._arrived[arrived] += 1

    def note_work(self, clients: Tensor, planned: Tensor, done: Tensor) -> None:
        """Note how many of the planned steps clients have done."""
        unbounded = torch.full_like(done, torch.iinfo(torch.int64).max)
        self._capacity[clients] = torch.where(done < planned, done, unbounded)


def warn_of_claims(known: Tensor, sizes: Tensor) -> None:
    """Log a client that now reports most of all examples and ten times the median, and did not before.

    A size of 0 stands for no report.
    """

    def large(sizes: Tensor) -> Tensor:
        return (sizes > sizes.sum() / 2) & (sizes > 10 * sizes[sizes > 0].double().median())

    for client in (large(sizes) & ~large(known)).nonzero().flatten().tolist():
        LOG.warning(
            "Client %d reports %d of %d examples and has %.4g of the weight: bound reports with "
            "ReplyLimits.max_examples (run setting max-examples), or set the weights.",
            *(client, sizes[client], sizes.sum(), sizes[client] / sizes.sum()),
        )


@dataclass(frozen=True)
class Member:
    """A client as it first introduced itself; its weight and its key stay fixed from then on."""

    client: int
    num_examples: int
    public_key: str = ""
    """Key of its first node, hexadecimal."""


class Roster:
    """Learns which node is which client by asking every new node once.

    Flower's node ids change when a node restarts; client ids are the federation's and stay. A client moves to another
    node only when its own is gone. With `bind_keys`, the new node must have the same public key: use it where nodes
    have registered keys, since Flower makes a new key at every start of a node without one. `members` are the clients
    known from an earlier attempt of the run. A node may report at most `max_examples`.
    """

    def __init__(
        self,
        num_clients: int,
        digest: str,
        members: Mapping[int, Member] | None = None,
        *,
        bind_keys: bool = False,
        max_examples: int = ReplyLimits().max_examples,
    ) -> None:
        self.num_clients, self._max_examples = num_clients, max_examples
        self.faults: dict[int, str] = {}
        """Why a node is no client, for nodes that were rejected, failed, or repeat the id of another."""
        self._failures: dict[int, int] = {}
        self.members: dict[int, Member] = dict(members or {})
        self._digest, self._bind_keys = digest, bind_keys
        self._present: dict[int, str] = {}
        self._introduced: dict[int, Introduction] = {}
        self._rejected: set[int] = set()
        self._asked: dict[str, int] = {}
        self._node: dict[int, int] = {}

    @property
    def missing(self) -> list[int]:
        """Clients that have not introduced themselves so far."""
        return [client for client in range(self.num_clients) if client not in self.members]

    @property
    def is_hopeless(self) -> bool:
        """Whether as many nodes failed for good as clients are missing: only a restart can bring those."""
        failed = [node for node in self._rejected if self._failures.get(node, 0) >= _ATTEMPTS]
        return bool(self.missing) and len(failed) >= len(self.missing)

    @property
    def num_placed(self) -> int:
        """The number of clients at a node."""
        return len(self._node)

    def node_of(self, client: int) -> int | None:
        """The node of a client now; None while it is away."""
        return self._node.get(client)

    def nodes_of(self, clients: Iterable[int]) -> dict[int, int]:
        """The nodes of those of the clients that are at one."""
        return {client: self._node[client] for client in clients if client in self._node}

    def num_examples_at(self, node: int) -> int:
        """The examples that a node reported when it introduced itself."""
        return self._introduced[node].num_examples

    def refresh(self, grid: Grid) -> None:
        """Note the nodes that joined, left or answered, without waiting."""
        self._present = {node.node_id: node.public_key.hex() for node in grid.get_nodes()}
        self._receive(grid)
        # A node with a key keeps its id when it restarts, perhaps with its fault corrected.
        self._rejected.intersection_update(self._present)
        self._failures = {node: count for node, count in self._failures.items() if node in self._present}
        known = self._introduced.keys() | self._rejected | set(self._asked.values())
        new = [node for node in self._present if node not in known]
        if new:
            questions = [Message(RecordDict(), node, MessageType.QUERY) for node in new]
            for node, message_id in zip(new, grid.push_messages(questions), strict=True):
                if message_id:
                    self._asked[message_id] = node
        self._place()

    def _receive(self, grid: Grid) -> None:
        if not self._asked:
            return
        for message in grid.pull_messages(list(self._asked)):
            node = self._asked.pop(message.metadata.reply_to_message_id, None)
            if node is None:
                continue
            if message.has_error():
                # A node that died before it answered may return under the same id.
                if message.error.code not in _LOST:
                    self._note_failure(node, printable(message.error.reason or str(message.error.code)))
                continue
            refused = refusal_in(message.content)
            if refused is not None:
                self._note_failure(node, refused[1])
                continue
            fault = self._fault_of(node, message.content)
            if fault is not None:
                self._rejected.add(node)
                self._announce(node, f"was rejected: {fault}")

    def _note_failure(self, node: int, reason: str) -> None:
        self._failures[node] = self._failures.get(node, 0) + 1
        if self._failures[node] >= _ATTEMPTS:
            self._rejected.add(node)
        self._announce(node, f"failed to load its client: {reason}")

    def _announce(self, node: int, fault: str) -> None:
        if self.faults.get(node) != fault:
            self.faults[node] = fault
            LOG.warning("Node %d %s", node, fault)

    def _fault_of(self, node: int, content: RecordDict) -> str | None:
        """The fault of a node; None for a node that is now introduced."""
        try:
            found = Introduction.from_records(content)
        except RequestError as error:
            return str(error)
        if found.client >= self.num_clients:
            return f"there is no client {found.client} among {self.num_clients}."
        if found.num_examples > self._max_examples:
            return (
                f"client {found.client} claims {found.num_examples} examples; at most {self._max_examples} are allowed "
                "(ReplyLimits.max_examples)."
            )
        if found.digest != self._digest:
            return f"client {found.client} has another model than the server."
        member = Member(found.client, found.num_examples, self._present.get(node, ""))
        known = self.members.setdefault(found.client, member)
        if self._bind_keys and known.public_key != member.public_key:
            return f"client {found.client} is known by another key."
        self._introduced[node] = found
        return None

    def _place(self) -> None:
        """Move clients whose node is gone to a node that introduced itself as the same client."""
        self._node = {client: node for client, node in self._node.items() if node in self._present}
        for node, introduction in sorted(self._introduced.items()):
            client = introduction.client
            if node in self._present and self._node.setdefault(client, node) != node:
                self._announce(
                    node,
                    f"repeats the id of client {client}, which is at node {self._node[client]}: it waits.",
                )
