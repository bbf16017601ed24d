"""Asking clients how good a model is on their own data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Literal, NamedTuple

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fairlead.errors import require_choice, require_integer, require_number
from fairlead.flower.messages import RequestError, open_marks, refusal_in


@dataclass(frozen=True)
class RoundRules:
    """When a round of a real federation ends, and what becomes of those who come too late.

    A round ends when everybody who was asked has answered or is known to be lost, after `deadline` seconds, or
    with the first `first` updates: over-selection, for which the sampler asks more than that (as
    `FirstArrivals` in simulation). With fewer than `quorum` updates it is void: nobody's update counts.

    A client that still owes an answer is not asked again. If it is drawn meanwhile, its late answer counts for
    it under `late` = "use", with the age that it has, and never under "discard". After `patience` seconds an
    answer is given up. The server looks for answers every `poll` seconds.
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


class Letter(NamedTuple):
    """What a client was asked, for as long as it owes the answer."""

    client: int
    node: int
    round: int
    kind: str
    num_steps: int
    """The local steps asked for; 0 where no training is asked for."""


class Mailbox:
    """Sends letters over a Flower grid and fetches the answers, remembering who owes one."""

    def __init__(self, grid: Grid, patience: float) -> None:
        self._grid, self._patience = grid, patience
        self._owed: dict[str, Letter] = {}

    @property
    def debtors(self) -> dict[int, Letter]:
        """The letter that each client still owes an answer to."""
        return {letter.client: letter for letter in self._owed.values()}

    def send(self, letters: Mapping[Letter, RecordDict]) -> None:
        """Send letters to clients none of which owes an answer."""
        messages = [
            Message(content, letter.node, letter.kind, ttl=self._patience, group_id=str(letter.round))
            for letter, content in letters.items()
        ]
        if not messages:
            return
        for letter, message_id in zip(letters, self._grid.push_messages(messages), strict=True):
            # The grid has no id for a message that it could not take: such a client owes nothing.
            if message_id:
                self._owed[message_id] = letter

    def fetch(self, kind: str | None = None) -> list[tuple[Letter, Message]]:
        """Answers that have come since the last time, by client; their senders owe nothing any more.

        Answers to letters of another than the given `kind` stay where they are until they are asked for.
        """
        wanted = [name for name, letter in self._owed.items() if kind in (None, letter.kind)]
        if not wanted:
            return []
        found = []
        for message in self._grid.pull_messages(wanted):
            # By the message answered, since Flower itself answers for a node that is gone.
            letter = self._owed.pop(message.metadata.reply_to_message_id, None)
            if letter is not None:
                found.append((letter, message))
        return sorted(found, key=lambda pair: pair[0])


_NO_ROUND = -1


def examined(
    mailbox: Mailbox, nodes: Mapping[int, int], content: RecordDict, rules: RoundRules
) -> dict[int, dict[str, float]]:
    """Figures by client, of those at the given nodes that owe nothing and answer in time."""
    # Late updates wait for the next round where it may use them; else they are dropped here too, so that their
    # senders can be asked again.
    kind = MessageType.EVALUATE if rules.late == "use" else None
    mailbox.fetch(kind)
    debtors = mailbox.debtors
    letters = {
        Letter(client, node, _NO_ROUND, MessageType.EVALUATE, 0): content
        for client, node in nodes.items()
        if client not in debtors
    }
    mailbox.send(letters)
    found: dict[int, dict[str, float]] = {}
    closing = monotonic() + rules.deadline
    while True:
        for letter, message in mailbox.fetch(kind):
            if letter in letters:
                found.update(_figures(letter, message))
        if not letters.keys() & set(mailbox.debtors.values()) or monotonic() >= closing:
            return found
        sleep(rules.poll)


def _figures(letter: Letter, message: Message) -> dict[int, dict[str, float]]:
    """What an answer says, if it is one and the client's own."""
    if not message.has_content() or message.metadata.src_node_id != letter.node:
        return {}
    if refusal_in(message.content) is not None:
        return {}
    try:
        client, figures = open_marks(message.content)
    except RequestError:
        return {}
    return {client: figures} if client == letter.client else {}
