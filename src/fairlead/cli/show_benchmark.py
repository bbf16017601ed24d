"""`fairlead benchmark`: its stages, its facts for programs, its page and its summary on the terminal."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

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
from fairlead.experiments.run_folder import read_facts
from fairlead.experiments.spec import to_toml
from fairlead.experiments.study import PlannedRun, StudyFolder, folder_name, runs_of_study
from fairlead.experiments.workers import Ended
from fairlead.reports.page import write_page
from fairlead.results import curves
from fairlead.results.comparison import (
    InSetting,
    Summary,
    best_of,
    chosen_methods,
    in_setting,
    placed,
    ranks_of,
    standing_by,
    summarize,
    verdicts,
)
from fairlead.results.estimates import paired_difference, show_estimate
from fairlead.results.figures import MethodFigures, RunFigures
from fairlead.results.runs import read_run
from fairlead.text import counted, listed

_DIGITS = 6
"""Digits of the figures in the JSON file."""


_CELL_TERMS = ("learning_rates", "experiment", "metric", "figure", "baseline")


class Benchmark(NamedTuple):
    """A benchmark after its last run."""

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
    kept: Sequence[Path] = (),
    *,
    quiet: bool,
) -> Benchmark:
    """Tune every method in every cell, run the chosen settings, and write the page and the JSON file.

    The JSON file also includes the cells and methods of the files in `kept`.
    """
    if not cells:
        raise FieldError(f"There is nothing to run. {' '.join(absent)}")
    plan = _plan_facts(suite, cells, absent, entrants)
    others: dict[Path, dict[str, Any]] = {}
    for file in kept:
        others[file] = read_facts(file, _form)
        for each in (plan, *others.values()):
            _refuse_another(file, others[file], each)
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
            beyond = {each.folder: each for each in planned if is_beyond(study, each)}
            # The index of a copied folder may lack them.
            study.plan(list(beyond.values()))
            for each in beyond.values():
                progress.watch(each, Ended("finished", before=True))
            left = [each for each in planned if each.folder not in beyond]
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
    facts = _facts(plan, summaries, others)
    text = json.dumps(_short(strict(facts)), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    write_durably(study.path / "benchmark.json", f"{text}\n".encode())
    notes = [suite.title + ".", *_rules(suite), *absent]
    notes += [f"Cells and methods of {file} are in the JSON file alone." for file in kept]
    write_page(summaries, study.path / "benchmark.html", f"Benchmark: {suite.name}", notes)
    return Benchmark(outcomes, facts)


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


def _plan_facts(
    suite: Suite, cells: Sequence[BenchmarkCell], absent: Sequence[str], entrants: Sequence[Entrant]
) -> dict[str, Any]:
    """The facts for programs that are known before the first run."""
    return {
        "suite": suite.name,
        "title": suite.title,
        "seeds": suite.result_seeds,
        "baseline": entrants[0].name,
        "fairlead": __version__,
        "tuning": {
            "seeds": suite.tune_seeds,
            "budget": suite.budget,
            "rungs": list(suite.rungs),
            "keep": f"1 of {suite.keep}",
            "rule": suite.rule,
            "methods": {each.name: {"is": each.text, "tried": list(each.tune)} for each in entrants},
        },
        "left_out": list(absent),
        "cells": [
            {
                "cell": cell.name,
                "task": task,
                "kind": kind,
                **dict.fromkeys(_CELL_TERMS),
                "learning_rates": cell.lr,
                "experiment": cell.digest,
            }
            for cell in cells
            for task, kind in [cell.name.split("/")]
        ],
    }


def _terms(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts that must agree before two results are joined."""
    tuning = facts["tuning"]
    return {
        **{name: facts[name] for name in ("suite", "title", "seeds", "baseline")},
        **{f"tuning {name}": tuning[name] for name in ("seeds", "budget", "rungs", "keep", "rule")},
        **{f"settings of {name}": each for name, each in tuning["methods"].items()},
        **{f"{name} of {cell['cell']}": cell[name] for cell in facts["cells"] for name in _CELL_TERMS},
    }


def _refuse_another(file: Path, kept: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Refuse a kept result that differs in a term that both have."""
    terms = _terms(kept)
    for name, value in _terms(own).items():
        other = terms.get(name)
        if None not in (value, other) and other != value:
            raise FieldError(f"--kept {file} has other {name}: {other} instead of {value}.")


def _form(facts: Any) -> dict[str, Any]:
    """A kept result, refused unless everything that is read of it later can be read."""
    try:
        _terms(facts)
        for cell in facts["cells"]:
            first = [{**row, "by_seed": {}} for row in cell["methods"] if row["method"] == cell["baseline"]]
            for each in (cell, _joined(cell, cell), _joined(cell, {**cell, "methods": first})):
                _over_cells([each])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"it is not a benchmark.json of this version ({error})") from error
    if not facts["cells"]:
        raise ValueError("it has no cells")
    return dict(facts)


def _facts(
    plan: Mapping[str, Any], summaries: Sequence[Summary], kept: Mapping[Path, Mapping[str, Any]]
) -> dict[str, Any]:
    """All figures for programs; those of methods are as in every other command."""
    pairs = zip(plan["cells"], summaries, strict=True)
    own = [_short(strict({**cell, **_cell_facts(summary)})) for cell, summary in pairs]
    methods: dict[str, Any] = {}
    found: dict[str, Any] = {}
    for file, each in kept.items():
        _refuse_another(file, each, {**plan, "cells": own})
        methods |= each["tuning"]["methods"]
    for cell in [*(cell for each in kept.values() for cell in each["cells"]), *own]:
        name = cell["cell"]
        found[name] = _joined(found[name], cell) if name in found else cell
    return {
        **plan,
        "tuning": {**plan["tuning"], "methods": methods | plan["tuning"]["methods"]},
        "summary": _over_cells(list(found.values())),
        "cells": list(found.values()),
    }


def _joined(kept: Mapping[str, Any], new: Mapping[str, Any]) -> Mapping[str, Any]:
    """A cell with the methods of both results, the new ones where both have one, ranked by the values of the seeds.

    The others of the kept result are judged anew if the baseline has other values in the new one.
    """
    old, own = ({row["method"]: row for row in cell["methods"]} for cell in (kept, new))
    if not old or not own:
        return new if own else kept
    rows = old | own
    scores = {
        name: {int(seed): float(value) for seed, value in row["by_seed"].items() if value is not None}
        for name, row in rows.items()
    }
    higher, first = not new["metric"]["smaller_is_better"], rows[new["baseline"]]
    comparable = all(row["standing"] != "not comparable" for row in rows.values())
    sound = {name: each for name, each in scores.items() if comparable and each and not rows[name]["lost"]}
    ranks, leaders = ranks_of(scores, higher=higher), best_of(sound, higher=higher)
    for name, row in rows.items():
        rows[name] = {**row, "rank": estimate_facts(ranks.get(name)), "leads": name in leaders}
        if name not in own and old[kept["baseline"]]["by_seed"] != first["by_seed"]:
            difference = paired_difference(scores[name], scores[first["method"]])
            standing = row["standing"]
            if not row["lost"] and comparable:
                standing = standing_by(difference, higher=higher, complete=not first["lost"])
            same = kept["targets"] == new["targets"]
            rows[name] |= {
                **verdicts(standing, difference, share=new["share"]),
                "standing": standing,
                "difference": estimate_facts(difference, judged=True),
                "objective_difference": None,
                "to_target": row["to_target"] if same else dict.fromkeys(row["to_target"]),
            }
    if len(rows) > 1:
        rows[new["baseline"]]["standing"] = "baseline"
    tuning = {each["method"]: each for cell in (kept, new) for each in cell["tuning"]}
    return {**new, "methods": list(rows.values()), "tuning": list(tuning.values())}


def _over_cells(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every method over the cells in which all of them were tuned."""
    tuned = {cell["cell"]: {each["method"] for each in cell["tuning"]} for cell in cells}
    everybody = set().union(*tuned.values())
    found = {
        cell["cell"]: {
            row["method"]: InSetting(
                row["rank"]["mean"] if row["rank"] else len(cell["methods"]),
                *(row[name] for name in InSetting._fields[1:]),
            )
            for row in cell["methods"]
        }
        for cell in cells
        if tuned[cell["cell"]] == everybody
    }
    return [
        {**each._asdict(), "rank": estimate_facts(each.rank) if found else None}
        for each in placed(found, sorted(everybody))
    ]


def _cell_facts(summary: Summary) -> dict[str, Any]:
    return {
        **comparison_facts(summary),
        "share": summary.measure.kind == "share",
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
        **in_setting(summary, method)._asdict(),
        "rank": estimate_facts(summary.ranks.get(method.label)),
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
    counts = {
        "leads": "best or\nwithin noise",
        "better": "better",
        "worse": "worse",
        "behind": "clearly\nworse",
    }
    columns = ["method", "mean\nrank", *counts.values(), "lost"]
    rows = []
    for row in ended.facts["summary"]:
        found, figures = row["rank"], ["–"] * len(columns[1:])
        if found is not None:
            figures = [" ".join(show_estimate(found["mean"], found["half_width"], "number"))]
            figures += [str(len(row[key])) for key in (*counts, "lost")]
        rows.append([row["label"], *figures])
    say()
    print_table(columns, rows, numbers=columns[1:])
    if found is None:
        say("No cell has all methods, so there are no mean ranks and no counts.")
    else:
        say(
            f"Counts are out of {counted(found['count'], 'cell')}. Better and worse are than "
            f"{ended.facts['baseline']} beyond noise; clearly worse is by more than a point."
        )
    for cell in ended.facts["cells"]:
        leaders = sorted(
            (row for row in cell["methods"] if row["leads"]), key=lambda row: row["rank"]["mean"]
        )
        say(f"{cell['cell']}: {listed([row['method'] for row in leaders])}")
    say(f"Page and figures are in {folder / 'benchmark.html'} and {folder / 'benchmark.json'}.")
