"""Mutated command lines: whatever the words, a command ends with a result or a sentence, never with a traceback."""

from __future__ import annotations

import json
import random
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from fault_runs import FULL
from limits import bounded, fuzzed
from specs_mutations import JUNK
from typer.testing import CliRunner

from fairlead.cli import app

COUNT = 10_000 if FULL else 100
SPEC = """
rounds = 2
[clients]
type = "Quadratics"
num_clients = 3
dim = 2
[algorithm]
preset = "fedavg"
lr = 0.1
steps = 2
[compare]
methods = ["fedavg", "fednova"]
seeds = [0, 1]
"""
PLACES = ("spec.toml", "spec.toml", "spec.toml", "done", "study", "log.jsonl", "broken.toml", "table.csv",
    "binary.toml", "empty",
          "nowhere", "nowhere.toml", ".", "", "~nobody", "~", "x" * 300, "y" * 5000 + ".toml", "\udcff.toml", "a/b/c",
          "done/spec.toml", "done/rounds.jsonl", "study/spec.toml", "/dev/null", "/dev/null/x", "done/report.html",
          "-", "--",
          "binary.jsonl", "🙂.toml", "C:\\x", "/proc/self/mem", "list.jsonl", "/dev/full")  # fmt: skip
NUMBERS = ("0", "1", "2", "3", "-1", "-5", "x", "", " ", "1.5", "1e3", "nan", "inf", "0x10", "true", "[1]",
    "9" * 30, "9" * 5000,
           str(2**63), "१", "1_0", "+1", "01", "1 2")  # fmt: skip
WORDS: dict[str, tuple[str, ...]] = {
    "--set": ("rounds", "=", "", "x=1", "seed=-1", "seed=x", "algorithm.lr=x", "algorithm.lr=0.2", "clients.dim=3",
    "a.b.c=1",
              "algorithm.server.type=Adam", "algorithm.server.type=1", "algorithm.preset=nothing", "clients=[]",
              "algorithm={}",
              "clients.type=Digits", "task=none", "[[[", "algorithm.solver.corrections.0.mu=1", "\udcff=1",
              "link.type=BernoulliLink",
              "link={type='BernoulliLink',drop=0.5}", "work={type='TraceWork',path='table.csv'}", "setting=hybrid",
              "x" * 5000),
    "--methods": ("fedavg", "fedavg,fednova", "fedprox:mu=0.1", "fedprox", "fedprox:mu=x", "nothing", "", ",", ":",
    "fedavg:",
                  "fedavg,fedavg", "spec.toml", "broken.toml", "nowhere.toml", "fedavg:x=1", "fedavg:lr=[",
                  "x" * 5000),
    "--seeds": ("0", "0,1", "0..1", "1..0", "..", "0..", "x", "", "-1", "0,0", "0..10000000000000", "0..999999",
    "9" * 30, "0.5",
                "0..1..2", "[0,1]"),
    "--grid": ("algorithm.lr=0.1", "algorithm.lr=0.1,0.2", "seed=0..1", "seed=0..99999999999", "algorithm.lr=",
    "nothing", "=", "",
               "algorithm.nothing=1,2", "algorithm.lr=x,y", "algorithm.lr=[", "a=1,2", "algorithm.lr=0.1,0.1",
               "rounds=1,2",
               "seed=" + ",".join(map(str, range(2000))) + ",x"),
    "--range": ("algorithm.lr=log:1e-3..1", "algorithm.lr=0..1", "algorithm.lr=2..1", "algorithm.lr=log:0..1",
    "algorithm.lr=log:",
                "algorithm.lr=a..b", "x", "", "=", "algorithm.lr=1e308..1e309", "algorithm.lr=nan..1", "seed=0..5",
                "a=log:-1..1"),
    "--target": ("0.5", "50%", "x", "", "-1", "nan", "inf", "1e400", "101%", "%", "9" * 400, "loss=0.5",
    "accuracy=", "=0.5"),
    "--metric": ("loss", "accuracy", "nothing", "", "x" * 5000, "objective"),
    "--figure": ("last-tenth", "last5", "final", "best", "nothing", ""),
    "--format": ("svg", "png", "pdf", "nothing", "", "./x"),
    "--baseline": ("fedavg", "fednova", "nothing", ""),
    "--title": ("x", "", "<script>", "x" * 5000, "\udcff"),
    "--against": ("fednova", "nothing", "", ",", "fednova,fednova", "fednova,scaffold"),
    "--only": ("nothing", "", ","),
    "--log": ("nothing", ""),
    "--import": ("nowhere", "x.y", "", "1a", "..", "os", "x" * 5000, "binary"),
    "--device": ("nothing", "cuda:999", "", "cpu:9"),
    "--precision": ("full", "tf32", "nothing"),
    "--scale": ("nothing", ""),
    "kind": ("samplers", "methods", "presets", "reproductions", "nothing", "", "x" * 5000),
    "name": ("FedNova", "fednova", "hybrid", "wang2021fednova", "nothing", "", "x" * 5000, "Component", "__class__"),
}  # fmt: skip
"""Good and bad words for each option and argument that takes one."""


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a spec, a run, a study and files that are none."""
    folder = tmp_path_factory.mktemp("workplace")
    (folder / "spec.toml").write_text(SPEC)
    for command in (
        ["run", "spec.toml", "-o", "done", "-q"],
        ["compare", "spec.toml", "-o", "study", "--jobs", "1", "-q"],
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            assert CliRunner().invoke(app, command).exit_code == 0
    shutil.copy(folder / "done" / "rounds.jsonl", folder / "log.jsonl")
    (folder / "broken.toml").write_text(SPEC.replace("fedavg", "nothing"))
    (folder / "table.csv").write_text("round,client,steps\n0,0,1\n")
    (folder / "binary.toml").write_bytes(bytes(range(256)))
    (folder / "binary.jsonl").write_bytes(bytes(range(256)))
    (folder / "list.jsonl").write_text("[1, 2]\n" + json.dumps({"round": 0}) + "\n")
    (folder / "empty").mkdir()
    return folder


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands by the words that lead to them."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands(typer.main.get_command(app)))
OFTEN = [("run",), ("compare",), ("sweep",), ("report",), ("clients",), ("diagnose",)]
RARE = [("demo",), ("doctor",), ("reproduce",)]
"""Those that take seconds, whatever their arguments, or minutes with good ones."""


def word_for(parameter: Any, command: tuple[str, ...], rng: random.Random) -> str:
    name = parameter.opts[-1] if parameter.param_type_name == "argument" else parameter.opts[0]
    if name in WORDS:
        return rng.choice(WORDS[name])
    kind = type(parameter.type).__name__
    if kind in ("IntParamType", "IntRange"):
        # More than one process would take seconds to start.
        return rng.choice(("0", "1", "-1", "x", "", "1.5", "nan") if name == "--jobs" else NUMBERS)
    if kind == "TyperPath":
        # A folder to write into is rarely one of a run.
        return "out" if parameter.opts[-1] == "-o" and rng.random() < 0.5 else rng.choice(PLACES)
    junk = [value for value in JUNK if isinstance(value, str)]
    return rng.choice(junk)


def command_line(rng: random.Random) -> list[str]:
    """A command with arguments that mostly fit, options with good and bad words, and now and then a slip."""
    path = rng.choice([*OFTEN, *OFTEN, *OFTEN, *COMMANDS]) if rng.random() < 0.98 else rng.choice(RARE)
    while path in RARE and rng.random() < 0.9:
        path = rng.choice(OFTEN)
    words = list(path)
    for parameter in COMMANDS[path].params:
        if parameter.param_type_name == "argument":
            count = rng.choice((1, 1, 2)) if parameter.nargs < 0 else 1
            words += [
                "spec.toml"
                if parameter.name == "spec" and rng.random() < 0.7
                else word_for(parameter, path, rng)
                for _ in range(count)
            ]
    options = [each for each in COMMANDS[path].params if each.param_type_name == "option"]
    for option in rng.sample(options, min(rng.choice((0, 1, 1, 2, 2, 3, 5)), len(options))):
        words.append(rng.choice(option.opts))
        if not option.is_flag:
            words.append(word_for(option, path, rng))
    slip = rng.random()
    if slip < 0.03:
        words.insert(
            rng.randrange(len(words) + 1), rng.choice(("--nothing", "x", "-z", "--", "", "--json", "-h"))
        )
    elif slip < 0.06 and len(words) > 1:
        words.pop(rng.randrange(len(words)))
    elif slip < 0.08:
        words = ["--import", rng.choice(WORDS["--import"]), *words]
    return _bounded_work(words, path)


def _bounded_work(words: list[str], path: tuple[str, ...]) -> list[str]:
    """The same without a good reason to take minutes: few rounds, one process, no reproduction that is right."""
    if path in (("compare",), ("sweep",)) and "--jobs" not in words:
        words += ["--jobs", "1"]
    if path == ("demo",) and "--rounds" not in words:
        words += ["--rounds", "1"]
    if path == ("diagnose",) and "--rounds" not in words:
        words += ["--rounds", "2"]
    if path == ("reproduce",):
        words += ["--scale", "nothing"]
    return words


def test_mutated_command_lines(
    workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Callable[[str], None]
) -> None:
    here = tmp_path / "here"

    def receive(_: int, rng: random.Random) -> str:
        words = command_line(rng)
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(here, ignore_errors=True)
        shutil.copytree(workplace, here)
        monkeypatch.chdir(here)
        with bounded():
            result = CliRunner().invoke(app, words)
        said = f"{shlex.join(words)[:500]!r}: {result.output[-500:]!r}"
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            result.exception.add_note(said)
            raise result.exception
        assert result.exit_code in (0, 1, 2), said
        assert result.exit_code == 0 or result.output.strip(), f"{said} says nothing"
        assert "Traceback" not in result.output, said
        return f"status {result.exit_code}"

    ended = fuzzed("command lines", COUNT, receive)
    assert ended["status 0"] > COUNT / 20
    assert ended["status 2"] > COUNT / 4
    figure(f"{COUNT} mutated command lines, 0 tracebacks, 0 hangs: {dict(ended)}")
