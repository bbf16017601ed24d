"""A Flower grid in this process: messages are handed to ClientApps directly, and lost by script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from flwr.app import Context, Error, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

FIRST_NODE = 1000
"""Node ids are nothing like client ids."""


class DirectGrid(Grid):
    """Client i is at node 1000 + i; `fate` says of a message what becomes of it.

    "answered": at once. "lost": never. "late": the answer comes when `release` is called. "failed": Flower
    reports an error in the node's name. `tamper` may change what a client says; clients that are `away` have no
    node.
    """

    def __init__(
        self,
        apps: Mapping[int, ClientApp],
        memory: Path,
        fate: Callable[[int, Message], str] = lambda client, message: "answered",
        tamper: Callable[[int, Message], Message] = lambda client, reply: reply,
    ) -> None:
        # Flower stamps messages with who the process is, which it says in processes of its own alone.
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
        self.apps, self._memory, self.fate, self.tamper = dict(apps), memory, fate, tamper
        self.nodes = {FIRST_NODE + client: client for client in self.apps}
        """The client at each node."""
        self.away: set[int] = set()
        self.states: dict[int, RecordDict] = {}
        """What a node remembers between messages."""
        self.sent: list[tuple[int, Message]] = []
        self._count = 0
        self._ready: dict[str, Message] = {}
        self._held: dict[str, Message] = {}

    extra: ClassVar[UserConfig] = {}
    """More of the node config of every node."""

    def client_at(self, node: int) -> int:
        return self.nodes[node]

    def get_node_ids(self) -> Iterable[int]:
        return [node for node, client in self.nodes.items() if client not in self.away]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return [self._deliver(message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._ready.pop(name) for name in message_ids if name in self._ready]

    def release(self) -> None:
        """Let late answers come."""
        self._ready.update(self._held)
        self._held.clear()

    def _deliver(self, message: Message) -> str:
        self._count += 1
        name = f"message-{self._count}"
        message.metadata.__dict__["_message_id"] = name
        client = self.client_at(message.metadata.dst_node_id)
        self.sent.append((client, message))
        fate = self.fate(client, message)
        if fate == "lost":
            return name
        if fate == "failed":
            self._ready[name] = Message(Error(code=5, reason="node unavailable"), reply_to=message)
            return name
        config: UserConfig = {"client-id": client, "memory-folder": str(self._memory), **self.extra}
        node = message.metadata.dst_node_id
        context = Context(1, node, config, self.states.setdefault(node, RecordDict()), {})
        reply = self.tamper(client, self.apps[client](message, context))
        (self._held if fate == "late" else self._ready)[name] = reply
        return name

    def set_run(self, run: Run) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Run:
        raise NotImplementedError

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        raise NotImplementedError

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))
