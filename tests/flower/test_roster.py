"""Which node speaks for which client, when nodes come, go, and claim to be somebody."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import torch
from direct_grid import FIRST_NODE, DirectGrid
from flwr.app import Message
from flwr.proto.node_pb2 import NodeInfo
from small_federation import SIZES, build_model, client_apps, get_data

from fairlead.errors import DataError
from fairlead.flower import make_client_app
from fairlead.flower.messages import ModelForm
from fairlead.flower.roster import Member, Roster
from fairlead.parameters import FlatModule

DIGEST = ModelForm.of(FlatModule(build_model()), torch.float32).digest
KEYS = {client: bytes([client + 1]) * 4 for client in range(len(SIZES))}


class KeyedGrid(DirectGrid):
    """Nodes with public keys."""

    keys: dict[int, bytes]

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [
            NodeInfo(node_id=node, public_key=self.keys[self.client_at(node)]) for node in self.get_node_ids()
        ]


def keyed_grid(folder: Path) -> KeyedGrid:
    grid = KeyedGrid(client_apps(), folder)
    grid.keys = dict(KEYS)
    return grid


def looked(roster: Roster, grid: DirectGrid, times: int = 2) -> Roster:
    """Once to ask, once to hear."""
    for _ in range(times):
        roster.refresh(grid)
    return roster


def known_members() -> dict[int, Member]:
    return {client: Member(client, SIZES[client], KEYS[client].hex()) for client in KEYS}


def test_clients_stay_with_their_keys(tmp_path: Path) -> None:
    """Client 1 comes back under a stranger's key: let in where keys are not bound, rejected where they are."""
    grid = keyed_grid(tmp_path)
    grid.keys[1] = b"else"
    bound = looked(Roster(len(SIZES), DIGEST, known_members(), bind_keys=True), grid)
    assert [bound.node_of(client) for client in range(3)] == [FIRST_NODE, None, FIRST_NODE + 2]
    free = looked(Roster(len(SIZES), DIGEST, known_members()), grid)
    assert [free.node_of(client) for client in range(3)] == [FIRST_NODE, FIRST_NODE + 1, FIRST_NODE + 2]


def test_the_first_key_is_kept(tmp_path: Path) -> None:
    roster = looked(Roster(len(SIZES), DIGEST, bind_keys=True), keyed_grid(tmp_path))
    assert roster.members == known_members()


def test_a_node_with_more_examples_than_anybody_can_have_is_turned_away(tmp_path: Path) -> None:
    def tamper(client: int, reply: Message) -> Message:
        if client == 1:
            reply.content.config_records["fairlead.values"]["num_examples"] = 10**10
        return reply

    grid = keyed_grid(tmp_path)
    grid.tamper = tamper
    assert looked(Roster(len(SIZES), DIGEST), grid).missing == [1]


def test_a_node_that_was_put_right_is_asked_again(tmp_path: Path) -> None:
    """With a key it keeps its id: rejected for its model, it comes back with the right one."""
    grid = keyed_grid(tmp_path)
    good, grid.apps[1] = grid.apps[1], make_client_app(lambda: torch.nn.Linear(4, 3), get_data)
    roster = looked(Roster(len(SIZES), DIGEST), grid)
    assert roster.missing == [1]
    grid.away = {1}
    roster.refresh(grid)
    grid.away, grid.apps[1] = set(), good
    looked(roster, grid)
    assert roster.node_of(1) == FIRST_NODE + 1


def test_the_wait_ends_when_no_client_can_load_its_data(tmp_path: Path) -> None:
    """Each node is asked three times."""

    def unreadable(context: object) -> NoReturn:
        raise DataError("The path patients.csv does not exist.")

    grid = DirectGrid({client: make_client_app(build_model, unreadable) for client in range(3)}, tmp_path)
    roster = looked(Roster(3, DIGEST), grid, times=3)
    assert not roster.is_hopeless
    looked(roster, grid, times=3)
    assert roster.is_hopeless
    assert len(grid.sent) == 9
    assert roster.faults[FIRST_NODE] == "failed to load its client: The path patients.csv does not exist."
