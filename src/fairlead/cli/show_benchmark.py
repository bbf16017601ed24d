"""`fairlead benchmark`: its stages, its facts for programs, its page and its summary on the terminal."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fairlead import __version__
from fairlead.checkpoint.durable_files import write_durably
from fairlead.cli.console import print_table, say
from fairlead.cli.progress import StudyProgress
from fairlead.cli.show_results import comparison_facts, estimate_facts, method_facts
from fairlead.cli.show_study import leave_interrupted, run_and_show
from fairlead.errors import FieldError
from fairlead.experiments.benchmark import (
    BenchmarkCell,
    Entrant,
    Suite,
    is_beyond,
    planned_results,
    planned_trials,
    settings_of,
    shortened,
)
from fairlead.experiments.record_io import strict
from fairlead.experiments.spec import to_toml
from fairlead.experiments.study import PlannedRun, StudyFolder, folder_name, runs_of_study
from fairlead.experiments.workers import Ended
from fairlead.reports.page import write_page
from fairlead.reports.tables import overview_table
from fairlead.results import curves
from fairlead.results.comparison import Summary, chosen_methods, over_settings, summarize
from fairlead.results.figures import MethodFigures, RunFigures
from fairlead.results.runs import read_run
from fairlead.text import counted, listed

_DIGITS = 6
"""Digits of the figures in the JSON file."""


@dataclass(frozen=True)
class Benchmark:
    """A benchmark after its last run."""

    summaries: list[Summary]
    outcomes: Mapping[str, str]
    facts: Mapping[str, Any]


def say_spec(cells: Sequence[BenchmarkCell], absent: Sequence[str], name: str) -> None:
    """A cell as a spec."""
    if len(cells) != 1:
        raise FieldError(" ".join(absent) or f"--spec must name one cell, got {name!r}: {len(cells)} fit.")
    say(to_toml(cells[0].experiment))


def say_cells(
    suite: Suite, cells: Sequence[BenchmarkCell], absent: Sequence[str], entrants: Sequence[Entrant]
) -> None:
    """The cells, the methods and what is tried of each."""
    parts = ("clients", "work", "link")
    rows = [[type(getattr(cell.experiment, part)).__name__ for part in parts] for cell in cells]
    rows = [[cell.name, *row, cell.lr] for cell, row in zip(cells, rows, strict=True)]
    print_table(["cell", "clients", "work", "links", "learning rates"], rows)
    say()
    rows = [[each.name, each.text, " ".join(each.tune)] for each in entrants]
    print_table(["method", "as", "tried too"], rows)
    say()
    for sentence in (*absent, *_rules(suite)):
        say(sentence)


def _rules(suite: Suite) -> list[str]:
    tune = counted(suite.tune_seeds, "tuning seed")
    return [
        f"Every method may try {suite.budget} settings on {tune}; the chosen one runs on seeds "
        f"{', '.join(map(str, suite.result_seeds))}.",
        suite.rule,
    ]


def run_benchmark(
    study: StudyFolder,
    suite: Suite,
    cells: Sequence[BenchmarkCell],
    absent: Sequence[str],
    entrants: Sequence[Entrant],
    jobs: int | None,
    checkpoint_every: int,
    *,
    quiet: bool,
) -> Benchmark:
    """Tune every method in every cell, run the chosen settings, and write the page and the JSON file."""
    if not cells:
        raise FieldError(f"There is nothing to run. {' '.join(absent)}")
    budget, rungs = suite.budget, suite.rungs
    settings = {cell.name: settings_of(cell, entrants, budget) for cell in cells}
    ahead = trials = [run for cell in cells for run in planned_trials(cell, settings[cell.name], suite)]
    tuned = Counter((run.labels["setting"], run.labels["tuned"], run.labels["seed"]) for run in ahead)
    counts = list(tuned.values())
    number = rounds = 0
    for before, rung in zip((0, *rungs), rungs, strict=False):
        number, rounds = number + sum(counts), rounds + (rung - before) * sum(counts)
        counts = [suite.survivors(count) for count in counts]
    results = len(cells) * len(entrants) * len(suite.result_seeds)
    number, rounds = number + results, rounds + results * rungs[-1]
    outcomes: dict[str, str] = {}
    with StudyProgress(number, quiet=quiet, rounds=rounds) as progress:
        for sentence in (*absent, *_rules(suite)):
            progress.note(sentence)

        def run(planned: Sequence[PlannedRun], what: str, *, keep: bool) -> None:
            progress.note(f"{what}: {counted(len(planned), 'run')}")
            left = [each for each in planned if not is_beyond(study, each)]
            for each in (each for each in planned if each not in left):
                progress.watch(each, Ended("finished", before=True))
            done = {"keep_finished_checkpoints": keep}
            ended = run_and_show(study, left, jobs, checkpoint_every, quiet=quiet, shown=progress, **done)
            leave_interrupted(ended, quiet)
            outcomes.update(ended)

        for place, rung in enumerate(rungs):
            last = place == len(rungs) - 1
            ahead = shortened(ahead, rung)
            run(ahead, f"Tuning, {rung} rounds", keep=not last)
            if not last:
                ahead = _survivors(study, suite, ahead, rung)
        outcomes.clear()
        found = {summary.setting: summary for summary in _summaries(study, trials)}
        chosen = {cell: chosen_methods(settings[cell.name], found[cell.name]) for cell in cells}
        planned = [run for cell in cells for run in planned_results(cell, chosen[cell], suite.result_seeds)]
        run(planned, "Results", keep=False)
    by_name = {each.setting: each for each in _summaries(study, [*planned, *trials], entrants[0].name)}
    summaries = [by_name[cell.name] for cell in cells]
    for summary in summaries:
        lost = [tuning.method for tuning in summary.tunings if not tuning.chosen]
        outcomes |= {f"{summary.setting}/{name}": "failed" for name in lost}
    facts = _facts(suite, cells, absent, entrants, summaries)
    text = json.dumps(_short(strict(facts)), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    write_durably(study.path / "benchmark.json", f"{text}\n".encode())
    notes = [suite.title + ".", *_rules(suite), *absent]
    write_page(summaries, study.path / "benchmark.html", f"Benchmark: {suite.name}", notes)
    return Benchmark(summaries, outcomes, facts)


def _survivors(
    study: StudyFolder, suite: Suite, trials: Sequence[PlannedRun], rounds: int
) -> list[PlannedRun]:
    """The runs of the settings that go on after so many rounds."""
    found = summarize([read_run(each).after(rounds) for each in runs_of_study(study, trials)])
    going = {
        f"{summary.setting}/tuning/{folder_name(name)}"
        for summary in found
        for tuning in summary.tunings
        for name in tuning.ranked[: suite.survivors(len(tuning.settings))]
    }
    return [run for run in trials if run.folder.rpartition("/")[0] in going]


def _summaries(
    study: StudyFolder, planned: Sequence[PlannedRun], baseline: str | None = None
) -> list[Summary]:
    return summarize([read_run(each) for each in runs_of_study(study, planned)], baseline=baseline)


def _facts(
    suite: Suite,
    cells: Sequence[BenchmarkCell],
    absent: Sequence[str],
    entrants: Sequence[Entrant],
    summaries: Sequence[Summary],
) -> dict[str, Any]:
    """All figures for programs; those of methods are as in every other command."""
    names = {cell.name: cell for cell in cells}
    return {
        "suite": suite.name,
        "title": suite.title,
        "fairlead": __version__,
        "seeds": suite.result_seeds,
        "tuning": {
            "budget": suite.budget,
            "rungs": list(suite.rungs),
            "keep": f"1 of {suite.keep}",
            "rule": suite.rule,
            "methods": {each.name: {"is": each.text, "tried": list(each.tune)} for each in entrants},
        },
        "left_out": list(absent),
        "summary": [
            {**each._asdict(), "rank": estimate_facts(each.rank)} for each in over_settings(summaries)
        ],
        "cells": [_cell_facts(names[summary.setting], summary) for summary in summaries],
    }


def _cell_facts(cell: BenchmarkCell, summary: Summary) -> dict[str, Any]:
    facts = comparison_facts(summary)
    task, kind = cell.name.split("/")
    return {
        "cell": cell.name,
        "task": task,
        "kind": kind,
        "learning_rates": cell.lr,
        **{key: value for key, value in facts.items() if key != "tuning"},
        "targets": list(summary.targets),
        "methods": [_method_facts(summary, method) for method in summary.methods],
        "tuning": [
            {
                "method": each.method,
                "seeds": each.seeds,
                "chosen": [setting.name for setting in each.chosen],
                "at_edge": each.edges,
                "spread": each.spread,
                "lost": each.num_lost,
                "settings": {
                    setting.name: {"value": setting.value and setting.value.mean, "problem": setting.problem}
                    for setting in each.settings
                },
            }
            for each in summary.tunings
        ],
    }


def _method_facts(summary: Summary, method: MethodFigures) -> dict[str, Any]:
    facts = method_facts(summary, method)
    clients = facts.pop("clients") or {}
    for unused in ("final", "chi_square", "from_spec", "verdict"):
        facts.pop(unused)
    costs = {
        axis.key: estimate_facts(method.over_seeds(partial(RunFigures.cost_of, target=target, axis=axis)))
        for target in summary.targets[:1]
        for axis in (curves.ROUNDS, curves.LOCAL_STEPS, curves.BYTES)
    }
    return {
        "method": method.label,
        "rank": estimate_facts(summary.ranks.get(method.label)),
        "leads": method in summary.leaders,
        **facts,
        "worst_tenth": clients.get("worst_tenth"),
        "to_target": costs,
        "by_seed": {str(seed): value for seed, value in method.by_seed(lambda run: run.value).items()},
        "failures": [run.reason for run in method.method.runs if not run.finished],
        "diverged": method.num_diverged,
    }


def _short(value: Any) -> Any:
    """Facts with few digits."""
    if isinstance(value, dict):
        return {key: _short(each) for key, each in value.items() if key != "std"}
    if isinstance(value, list | tuple):
        return [_short(each) for each in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def say_benchmark(ended: Benchmark, folder: Path) -> None:
    """The table over all cells, the first of each, and where the page is."""
    table = overview_table(ended.summaries)
    methods = [each.label for each in over_settings(ended.summaries)]
    rows = [
        [name, *(f"{cell.text} {cell.detail}".rstrip() for cell in row)]
        for name, row in zip(methods, table.rows, strict=True)
    ]
    columns = ["method", *(column.title.replace(" ", "\n", 1) for column in table.columns)]
    say()
    print_table(columns, rows, numbers=columns[1:])
    say(f"{table.note} Better and worse are beyond noise; clearly worse is by more than a point.")
    for summary in ended.summaries:
        leaders = [each.label for each in summary.best_first if each in summary.leaders]
        say(f"{summary.setting}: {listed(leaders)}")
    say(f"Page and figures are in {folder / 'benchmark.html'} and {folder / 'benchmark.json'}.")
