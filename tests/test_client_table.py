"""`ClientTable`: rows for clients ever seen, versioned handles, bf16, files and a budget."""

from __future__ import annotations

import gc
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fairlead import client_table
from fairlead.client_table import ClientTable, PartState, table_in, tensor_in
from fairlead.errors import FieldError, MemoryBudgetError, StaleStateError
from fairlead.memory.budget import available_bytes


def rows(*values: float, dim: int = 3) -> torch.Tensor:
    return torch.tensor(values)[:, None] * torch.ones(dim)


def test_rows_never_written_read_as_zero_and_take_no_space() -> None:
    table = ClientTable.create(1_000_000, 3)
    assert table.read(torch.tensor([5, 999_999])).tolist() == [[0.0] * 3] * 2
    table = table.write(torch.tensor([999_999, 2]), rows(1, 2))
    assert table.rows.shape == (2, 3)
    assert table.clients.tolist() == [999_999, 2]
    assert table.read(torch.tensor([2, 3, 999_999]))[:, 0].tolist() == [2.0, 0.0, 1.0]
    assert table.positions(torch.tensor([2, 3, 999_999])).tolist() == [1, -1, 0]


def test_reading_gives_copies() -> None:
    table = ClientTable.create(2, 3).write(torch.tensor([0]), rows(1))
    table.read(torch.tensor([0])).zero_()
    assert table.read(torch.tensor([0]))[0, 0] == 1.0


def test_an_old_handle_is_refused() -> None:
    old = ClientTable.create(4, 3)
    new = old.write(torch.tensor([1]), rows(5))
    for use in (
        lambda: old.read(torch.tensor([1])),
        lambda: old.write(torch.tensor([1]), rows(6)),
        lambda: old.rows,
        lambda: old.clients,
        lambda: old.positions(torch.tensor([1])),
    ):
        with pytest.raises(StaleStateError, match="version 0 of a client table that is now at version 1"):
            use()
    assert new.read(torch.tensor([1]))[0, 0] == 5.0


def test_writing_nothing_moves_on_too() -> None:
    table = ClientTable.create(4, 3)
    after = table.write(torch.tensor([], dtype=torch.int64), torch.zeros(0, 3))
    assert after.version == table.version + 1


@pytest.mark.parametrize("on_disk", [False, True])
def test_growth_keeps_rows(on_disk: bool, tmp_path: Path) -> None:
    """One new client at a time, so that the store grows many times."""
    table = ClientTable.create(100, 3, folder=tmp_path if on_disk else None)
    for client in range(99, -1, -1):
        table = table.write(torch.tensor([client]), rows(client))
    assert table.read(torch.arange(100))[:, 0].tolist() == list(range(100))
    assert len(table.rows) == 100


def test_rows_in_a_folder_are_in_a_file_there_that_goes_with_the_table(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    table = ClientTable.create(10, 4, folder=folder).write(torch.arange(10), rows(*range(10), dim=4))
    (path,) = folder.iterdir()
    assert path.stat().st_size == 10 * 4 * 4
    found = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float32)
    assert torch.equal(found.view(10, 4), table.rows)
    del table
    gc.collect()
    assert list(folder.iterdir()) == []


def test_tables_that_share_a_folder_do_not_share_rows(tmp_path: Path) -> None:
    one, other = (ClientTable.create(3, 4, folder=tmp_path) for _ in range(2))
    one, other = (table.write(torch.tensor([1]), rows(i, dim=4)) for i, table in enumerate((one, other)))
    assert (float(one.rows[0, 0]), float(other.rows[0, 0])) == (0.0, 1.0)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FieldError, match=r"ClientTable\.folder must be a folder that can be written to"):
        ClientTable.create(3, 4, folder=tmp_path / "file")


def test_a_full_disk_is_refused_before_it_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ClientTable.create(1000, 1000, folder=tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=2**20))
    with pytest.raises(MemoryBudgetError, match=r"1000 rows x 1000 parameters.* or in another folder"):
        table.write(torch.arange(1000), torch.ones(1000, 1000))
    assert len(table.clients) == 0


def test_bf16_rows_take_half_the_space_and_round() -> None:
    table = ClientTable.create(4, 3, dtype=torch.bfloat16).write(torch.tensor([1]), rows(1.001))
    assert table.rows.dtype == torch.bfloat16
    assert table.rows.element_size() == 2
    assert float(table.read(torch.tensor([1]))[0, 0]) == pytest.approx(1.001, rel=2**-8)


def test_bf16_rows_in_a_file(tmp_path: Path) -> None:
    table = ClientTable.create(4, 3, dtype=torch.bfloat16, folder=tmp_path)
    for client in range(4):
        table = table.write(torch.tensor([client]), rows(client))
    assert table.read(torch.arange(4))[:, 0].tolist() == [0.0, 1.0, 2.0, 3.0]
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size == 4 * 3 * 2


def test_rows_that_do_not_fit_are_refused_with_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 rows of 4,000 bytes are 4 MB; with 1 MB left the table must say so and stay as it was."""
    table = ClientTable.create(1000, 1000).write(torch.tensor([7]), rows(1, dim=1000))
    monkeypatch.setattr(client_table, "available_bytes", lambda device: 2**20)
    with pytest.raises(MemoryBudgetError, match=r"1000 rows x 1000 parameters.*bfloat16.*folder="):
        table.write(torch.arange(1000), torch.ones(1000, 1000))
    assert table.clients.tolist() == [7]
    assert table.read(torch.tensor([6, 7]))[:, 0].tolist() == [0.0, 1.0]
    after = table.write(torch.tensor([7]), rows(2, dim=1000))
    assert after.read(torch.tensor([7]))[0, 0] == 2.0


def test_the_budget_is_what_the_machine_has_left() -> None:
    """On Linux, which says so; elsewhere the table is not refused."""
    left = available_bytes()
    assert left == sys.maxsize or 2**20 < left < 2**50


def test_room_is_made_once_for_rows_that_come_one_by_one() -> None:
    """Three new clients beside five: max(5 + 3, 2·5) = 10 rows; then 35 new ones at once: 40."""
    table = ClientTable.create(100, 1).write(torch.arange(5), rows(1, dim=1).expand(5, 1))
    table.make_room(torch.tensor([3, 4, 20, 21, 22]))
    assert table.capacity == 10
    assert table.clients.tolist() == [0, 1, 2, 3, 4]
    table.make_room(torch.arange(40))
    assert table.capacity == 40
    assert table.read(torch.tensor([4, 20])).tolist() == [[1.0], [0.0]]


def test_what_torch_keeps_unused_is_left_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 bytes are free and 2,500 reserved; torch is asked for what it does not use where that is more."""
    free, used, device = [2000], [1000], torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 2500)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: used[-1])
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: free.append(4400))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[-1], 9000))
    assert available_bytes(device) == 2000
    used.append(100)
    assert available_bytes(device) == 4400


def test_states_know_their_kinds() -> None:
    state: PartState = {"table": ClientTable.create(2, 2), "tensor": torch.zeros(2)}
    assert tensor_in(state, "tensor") is state["tensor"]
    assert table_in(state, "table") is state["table"]
    with pytest.raises(AssertionError):
        tensor_in(state, "table")
    with pytest.raises(AssertionError):
        table_in(state, "tensor")
