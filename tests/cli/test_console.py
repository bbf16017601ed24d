"""Tables on terminals that are too narrow for them."""

from __future__ import annotations

import pytest
from rich.console import Console

from fairlead.cli import console

COLUMNS = ["method", "accuracy", "by\nchance", "time"]
ROWS = [["fedavg", "0.889 ± 0.096", "1.2%", "14 s"], ["scaffold", "0.930 ± 0.030", "0.9%", "15 s"]]


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, width: int) -> list[str]:
    monkeypatch.setattr(console, "console", lambda: Console(width=width, force_terminal=True, no_color=True))
    console.print_table(COLUMNS, ROWS, numbers=COLUMNS[1:], spare=("time", "by\nchance"))
    return capsys.readouterr().out.splitlines()


def test_all_columns_are_shown_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(monkeypatch, capsys, width=39)
    assert lines[-1].split() == ["scaffold", "0.930", "±", "0.030", "0.9%", "15", "s"]


def test_the_first_that_can_be_spared_are_left_out_and_no_number_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    *_, last, said = printed(monkeypatch, capsys, width=38)
    assert last.split() == ["scaffold", "0.930", "±", "0.030", "0.9%"]
    assert said == "No room for time: widen the terminal or use --json."
    *_, last, said = printed(monkeypatch, capsys, width=32)
    assert last.split() == ["scaffold", "0.930", "±", "0.030"]
    assert said == "No room for time, by chance: widen the terminal or use --json."
