"""Asking clients how good a model is on their own data."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic, sleep

from flwr.app import Message, MessageType, RecordDict

from fairlead.flower.mailbox import Letter, Mailbox, RoundRules
from fairlead.flower.messages import RequestError, open_marks, refusal_in

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
