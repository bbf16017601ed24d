"""`ClientTable` against a plain dictionary, for any sequence of writes."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.client_table import ClientTable

NUM_CLIENTS = 12
WRITES = st.lists(
    st.dictionaries(st.integers(0, NUM_CLIENTS - 1), st.integers(-100, 100), max_size=6), max_size=12
)


def check(table: ClientTable, writes: list[dict[int, int]]) -> None:
    expected: dict[int, int] = {}
    everyone = torch.arange(NUM_CLIENTS)
    for write in writes:
        clients = torch.tensor(sorted(write), dtype=torch.int64)
        values = torch.tensor([float(write[client]) for client in sorted(write)])
        table = table.write(clients, values[:, None].expand(-1, 3))
        expected |= write
        assert table.read(everyone)[:, 0].tolist() == [float(expected.get(c, 0)) for c in range(NUM_CLIENTS)]
        assert sorted(table.clients.tolist()) == sorted(expected)
        assert [expected[c] for c in table.clients.tolist()] == table.rows[:, 2].tolist()
        assert torch.equal(
            table.positions(everyone) >= 0, torch.tensor([c in expected for c in range(NUM_CLIENTS)])
        )
    if expected:
        restored = ClientTable.create(NUM_CLIENTS, table.dim).write(table.clients, table.rows)
        assert torch.equal(restored.read(everyone), table.read(everyone))


@given(WRITES)
def test_a_table_in_memory_is_a_dictionary_of_rows(writes: list[dict[int, int]]) -> None:
    check(ClientTable.create(NUM_CLIENTS, 3), writes)


@given(WRITES)
@settings(max_examples=25)
def test_a_table_in_a_file_is_one_too(writes: list[dict[int, int]]) -> None:
    with TemporaryDirectory() as folder:
        check(ClientTable.create(NUM_CLIENTS, 3, folder=Path(folder)), writes)
