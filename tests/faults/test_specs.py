"""Mutated specs: none ends in a traceback, none is taken for what it is not, each refusal names the field.

What is allowed is written in the comments of the good specs (`specs_rules`), not asked of fairlead. So a spec that is
let in but should not be fails the test, and so does a good one that is refused.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch
from fault_runs import FULL
from limits import SEED, bounded, fuzzed, is_sentence
from specs_mutations import JUNK, mutated
from specs_rules import GoodSpec, read_good_spec, share_fields
from typed_mutations import typed
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.component import Component, parts_of
from fairlead.errors import FairleadError, NonFiniteError
from fairlead.experiments.catalog import ROLES
from fairlead.plain_data import settable_fields

COUNT = 10_000 if FULL else 250
TYPED = 10_000 if FULL else 80
MOST_STEPS = 3_000
"""Of all clients in a round that is run: a good spec may ask for an hour of work."""
ON_THE_COMMAND_LINE = 100 if FULL else 3


@pytest.fixture(scope="module")
def good_specs(tmp_path_factory: pytest.TempPathFactory) -> list[GoodSpec]:
    folder = tmp_path_factory.mktemp("data")
    rows = "".join(f"c{row % 3},word{row} and more,{row % 2}\n" for row in range(30))
    (folder / "table.csv").write_text(f"who,says,label\n{rows}")
    visits = "".join(
        f"{round},{client},{round + client + 1},1\n" for round in range(3) for client in range(3)
    )
    (folder / "trace.csv").write_text(f"round,client,steps,arrives\n{visits}")
    np.savez(folder / "images.npz", x=np.zeros((60, 1, 8, 8), np.uint8), y=np.arange(60) % 5)
    files = sorted((Path(__file__).parent / "specs").glob("*.toml"))
    specs = [read_good_spec(file.stem, file.read_text(), str(folder)) for file in files]
    share_fields(specs)
    return specs


def complaints_about(spec: GoodSpec, content: bytes) -> list[str]:
    """What the rules find wrong, by name; how TOML is written is for Python's own reader to judge."""
    try:
        table = tomllib.loads(content.decode())
    except UnicodeDecodeError:
        return ["UTF-8"]
    except tomllib.TOMLDecodeError:
        return ["line"]
    except (ValueError, RecursionError):
        return ["exceeds the limits of TOML"]
    return list(spec.rule.complaints(table))


def holds(part: Any, table: dict[str, Any]) -> bool:
    """Whether a part has the values of a table; `retention` is kept as 1 − `alpha`."""
    fields = table.keys() - {"type", "retention"}
    named = table.get("type", type(part).__name__) == type(part).__name__
    return named and all(equal(getattr(part, name), table[name]) for name in fields)


def equal(read: Any, written: Any) -> bool:
    if isinstance(written, dict):
        return holds(read, written)
    if isinstance(written, list):
        return len(read) == len(written) and all(map(equal, read, written))
    # What is "none" may have been settled by another field or a default; numbers beyond 2⁵³ are rounded.
    return bool(written == "none" or read == (float(written) if isinstance(read, float) else written))


def judge(spec: GoodSpec, content: bytes, read: Callable[[], fl.Experiment]) -> str:
    """How a spec was received; fails where that is not as it should be."""
    wrong = complaints_about(spec, content)
    case = f"{spec.name}: {content[:4000]!r}"
    experiment: fl.Experiment | None = None
    refusal: FairleadError | None = None
    try:
        with bounded():
            experiment = read()
            federation = experiment.build()
            assert bool(federation.params.isfinite().all()), case
            if not (wrong or spec.rule.asks_for_much(tomllib.loads(content.decode()))):
                next(federation.train())
    except NonFiniteError:
        # The first round says that a number is too large for it.
        assert not wrong, f"trained although {wrong} are wrong; {case}"
        return "good but divergent"
    except FairleadError as error:
        refusal = error
    if refusal is None:
        assert not wrong, f"let in although {wrong} are wrong; {case}"
        table = tomllib.loads(content.decode())
        assert spec.name in ("preset", "setting") or holds(experiment, table), f"{experiment}; {case}"
        return "good"
    said = str(refusal)
    assert is_sentence(said), f"{said!r}; {case}"
    if wrong:
        assert any(name in said for name in wrong), f"{said!r} names none of {wrong}; {case}"
        return "refused"
    assert spec.rule.asks_for_much(tomllib.loads(content.decode())), f"refused without cause: {said}; {case}"
    return "good but too large"


def test_the_good_specs_are_good(good_specs: list[GoodSpec]) -> None:
    """And their rules know every field of every part in them, so that a new field must be given a rule."""
    for spec in good_specs:
        read = partial(fl.from_toml, fl.Experiment, spec.text)
        assert judge(spec, spec.text.encode(), read) == "good"
    used: set[str] = set()
    known = parts_of(Component)
    for spec in good_specs:
        for kind, table in spec.rule.by_kind("Experiment"):
            if kind in known:
                used.add(kind)
                missing = settable_fields(known[kind]).keys() - table.names()
                assert not missing, f"{spec.name} has no rule for {missing} of {kind}"
    for kind, roles in ROLES.items():
        assert any(used & parts_of(role).keys() for role in roles), f"no good spec has one of the {kind}"


def damaged(spec: GoodSpec, rng: random.Random) -> bytes:
    return spec.filled(mutated(tomllib.loads(spec.template), spec.template, rng))


def test_mutated_specs(good_specs: list[GoodSpec], tmp_path: Path, figure: Callable[[str], None]) -> None:
    file = tmp_path / "spec.toml"

    def receive(case: int, rng: random.Random) -> str:
        spec = good_specs[case % len(good_specs)]
        content = damaged(spec, rng)
        file.write_bytes(content)
        return judge(spec, content, lambda: fl.load_experiment(file))

    received = fuzzed("mutated specs", COUNT, receive)
    assert received["refused"] > COUNT / 2
    assert received["good"] > COUNT / 20
    figure(f"{COUNT} mutated specs, 0 tracebacks, 0 silent acceptances: {dict(received)}")


@pytest.mark.filterwarnings("ignore::fairlead.errors.ConsistencyWarning")
def test_typed_specs(good_specs: list[GoodSpec], figure: Callable[[str], None]) -> None:
    """Values of the right type, of any size and in any part: run for a round, or refused in a sentence."""

    def receive(case: int, rng: random.Random) -> str:
        written = tomli_w.dumps(typed(good_specs[case % len(good_specs)].table, rng))
        refusal: FairleadError | None = None
        try:
            with bounded():
                federation = fl.from_toml(fl.Experiment, written).build()
                if planned_steps(federation) > MOST_STEPS:
                    return "good but long"
                next(federation.train())
                federation.consistency()
        except FairleadError as error:
            refusal = error
        except Exception as error:
            error.add_note(written)
            raise
        assert refusal is None or is_sentence(str(refusal)), f"{str(refusal)!r}; {written}"
        return "refused" if refusal else "run"

    received = fuzzed("typed specs", TYPED, receive)
    assert received["run"] > TYPED / 4
    assert received["refused"] > TYPED / 4
    assert received["good but long"] < TYPED / 20
    figure(f"{TYPED} typed specs, 0 tracebacks, 0 hangs: {dict(received)}")


def planned_steps(federation: fl.Federation) -> int:
    """Local steps of all clients in the first round."""
    world = federation.world
    assert isinstance(world, fl.SimulatedWorld)
    everyone = torch.arange(world.population.num_clients)
    workload = world.behavior.workload(everyone, federation.algorithm.solver, 0, federation.key)
    return int(workload.num_steps.sum())


def as_toml(value: Any) -> str:
    """A value as one writes it behind an equals sign."""
    return tomli_w.dumps({"x": value}).removeprefix("x = ").strip()


def overrides_of(spec: GoodSpec, rng: random.Random) -> tuple[str, bytes]:
    """An override, and the spec that says the same in full.

    One of `type` would start its part afresh, and is left to the specs.
    """
    table = spec.table
    paths = {
        path: place
        for path, place in walk(table)
        if path.rpartition(".")[2] not in ("type", "preset", "name")
    }
    path = rng.choice(list(paths))
    holder, key = paths[path]
    value = deepcopy(rng.choice([value for value in JUNK if not contains_table(value)]))
    written = as_toml(value)
    if isinstance(value, str) and rng.random() < 0.5:
        # Without quotes it is TOML where it looks like it, and else the string itself.
        written = value.strip()
        try:
            read = tomllib.loads(f"x = {written}")
            value = read["x"] if len(read) == 1 else written
        except ValueError:
            value = written
    if rng.random() < 0.1 and isinstance(holder, dict):
        path, key = f"{path}_", f"{key}_"
    holder[key] = value
    return f"{path}={written}", tomli_w.dumps(table).encode()


def walk(node: Any, where: str = "") -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Every value in plain data by its path."""
    for key in node if isinstance(node, dict) else range(len(node)):
        path = f"{where}.{key}" if where else str(key)
        yield path, (node, key)
        if isinstance(node[key], dict | list):
            yield from walk(node[key], path)


def contains_table(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(contains_table, value))
    return isinstance(value, dict)


def test_overrides(good_specs: list[GoodSpec], figure: Callable[[str], None]) -> None:
    """`--set path=value` is received as the spec with that value would be."""

    def receive(case: int, rng: random.Random) -> str:
        spec = good_specs[case % len(good_specs)]
        override, content = overrides_of(spec, rng)
        return judge(spec, content, partial(fl.from_toml, fl.Experiment, spec.text, [override]))

    received = fuzzed("overrides", COUNT // 5, receive)
    assert received["refused"] > COUNT / 10
    figure(f"{COUNT // 5} overrides, 0 tracebacks, 0 silent acceptances: {dict(received)}")


@pytest.mark.full
def test_mutated_specs_on_the_command_line(
    good_specs: list[GoodSpec], tmp_path: Path, figure: Callable[[str], None]
) -> None:
    """The real command ends with status 2 and one line, and leaves nothing behind."""
    file, done, case = tmp_path / "spec.toml", 0, 0
    while done < ON_THE_COMMAND_LINE:
        spec, case = good_specs[case % len(good_specs)], case + 1
        content = damaged(spec, random.Random(f"{SEED} command {case}"))
        if not complaints_about(spec, content):
            continue
        file.write_bytes(content)
        command = [
            sys.executable,
            "-c",
            "from fairlead.cli import main; main()",
            "run",
            str(file),
            "-o",
            "out",
        ]
        ended = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert ended.returncode == 2, ended.stderr
        assert ended.stderr.startswith("fairlead: "), ended.stderr
        assert ended.stderr.count("\n") == 1, ended.stderr
        assert ended.stdout == ""
        assert [entry.name for entry in tmp_path.iterdir()] == ["spec.toml"]
        done += 1
    figure(f"{done} mutated specs on the command line: status 2 and one sentence each")


WHOLE_NUMBERS = ("x", "", "1.5", "-5", "9" * 5000, "nan", "inf", "1e3", "0x10", "true", "[1]")[
    : 11 if FULL else 4
]
COMMANDS = {
    "run": ("--seed", "--rounds", "--checkpoint-every"),
    "compare": ("--rounds", "--jobs", "--checkpoint-every"),
    "sweep": ("--random", "--draw-seed", "--rounds", "--jobs", "--checkpoint-every"),
    "demo": ("--rounds", "--seed"),
    "clients": ("--seed", "--rounds"),
    "diagnose": ("--seed", "--rounds"),
}
"""Commands with their options that take a whole number of at least 0 or 1."""
NEEDED = {"compare": ["--methods", "fedavg"], "sweep": ["--grid", "algorithm.lr=0.1"]}
OTHERS = (
    ["run", "SPEC", "--log", "nothing"],
    ["run", "SPEC", "--nothing"],
    ["run", "SPEC", "SPEC"],
    ["run", "SPEC", "--resume"],
    ["run", "SPEC", "--set", "rounds"],
    ["run", "SPEC", "--set", ""],
    ["run", "SPEC", "-o", "SPEC"],
    ["run", "nowhere.toml"],
    ["run", "."],
    ["run"],
    ["nothing"],
    ["compare", "SPEC", "--methods", "nothing"],
    ["compare", "SPEC", "--methods", ""],
    ["compare", "SPEC", "--methods", "fedavg", "--seeds", "x"],
    ["compare", "SPEC", "--methods", "fedavg", "--seeds", "-1"],
    ["compare", "SPEC", "--methods", "fedavg", "--metric", "nothing"],
    ["sweep", "SPEC"],
    ["sweep", "SPEC", "--grid", "nothing"],
    ["sweep", "SPEC", "--grid", "algorithm.lr="],
    ["sweep", "SPEC", "--grid", "algorithm.nothing=1,2"],
    ["sweep", "SPEC", "--range", "algorithm.lr=2:1"],
    ["report", "nowhere"],
    ["report", "."],
    ["reproduce", "nothing"],
    ["reproduce", "wang2021_figure_2", "--scale", "nothing"],
    ["diagnose", "nowhere"],
    ["diagnose", "SPEC", "--against", "nothing"],
    ["list", "nothing"],
    ["show", "nothing"],
    ["cite", "nothing"],
    ["init", "SPEC"],
)


def refused(arguments: list[str]) -> str:
    """What a command says that ends with status 2."""
    ended = CliRunner().invoke(app, arguments)
    assert ended.exception is None or isinstance(ended.exception, SystemExit), (arguments, ended.exception)
    assert ended.exit_code == 2, (arguments, ended.exit_code, ended.output[-500:])
    return ended.output


def test_options_that_make_no_sense(
    good_specs: list[GoodSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Callable[[str], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = tmp_path / "spec.toml"
    spec.write_text(next(spec for spec in good_specs if spec.name == "preset").text)
    count = 0
    for command, options in COMMANDS.items():
        subject = [] if command == "demo" else [str(spec), *NEEDED.get(command, [])]
        for option in options:
            huge = [str(10**30)] if option in ("--seed", "--rounds", "--random") else []
            for value in (*WHOLE_NUMBERS, *huge):
                said = refused([command, *subject, option, value])
                assert option.strip("-").split("-")[0] in said, (command, option, value, said)
                count += 1
    for arguments in OTHERS:
        assert refused([str(spec) if word == "SPEC" else word for word in arguments]), arguments
        count += 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["spec.toml"], "a refused command leaves nothing"
    figure(f"{count} commands with options that make no sense: status 2 each")
