"""Results on the terminal and for programs: of one run, of the demonstration and of `fairlead report`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, count
from math import isfinite
from pathlib import Path
from typing import Any

from fairlead.charts.chart import draw_line
from fairlead.cli.console import print_table, say
from fairlead.cli.progress import RoundProgress, describe_evaluation
from fairlead.diagnostics.consistency import ConsistencyReport
from fairlead.errors import FieldError, RunFolderError
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.run_folder import RunFolder
from fairlead.experiments.runner import Run
from fairlead.experiments.study import FoundRun, run_at
from fairlead.experiments.tracking import LiveFigures, OpenTracker, Tracker
from fairlead.federation import Federation
from fairlead.records import RoundRecord
from fairlead.results.compared_method import ComparedMethod
from fairlead.results.comparison import Summary, Tuning, summarize
from fairlead.results.curves import TRAIN_LOSS
from fairlead.results.estimates import Estimate, show
from fairlead.results.figures import Measure, MethodFigures
from fairlead.results.run_archive import table_name
from fairlead.results.runs import ReportedRun, read_run
from fairlead.results.sentences import describe_standing, headline, tunings
from fairlead.text import counted, divergence

_TOLD = 0.005
"""Share of the weight below which chance is not mentioned."""


@dataclass
class RunFollowers:
    """The display and the trackers that follow a run."""

    progress: RoundProgress
    name: str
    experiment: Experiment
    store: RunFolder
    opening: Sequence[OpenTracker]
    outcome: str = "failed"
    logs: list[Tracker] = field(default_factory=list)

    def begin(self, federation: Federation) -> None:
        done, run = federation.state.round, self.experiment
        self._live = LiveFigures()
        self.progress.begin(self.name, run.rounds, done, evaluating=run.evaluate_every > 0)
        for opened in self.opening:
            self.logs.append(opened(self.store, run, done))

    def advance(self, record: RoundRecord) -> None:
        self.progress.advance(self._live.of(record))
        for log in self.logs:
            log.write(record)

    def leave(self) -> None:
        for log in self.logs:
            log.close(self.outcome)


def run_in(folder: Path, output: Path | None) -> tuple[Path, Path, bool]:
    """The spec and the folder of a run to resume."""
    store = run_at(folder)
    if output is not None and output != folder:
        raise FieldError(f"The run in {folder} resumes there: leave out -o, or give {folder / 'spec.toml'}.")
    return store.spec_file, folder, True


def new_folder(spec: Path, experiment: Experiment) -> Path:
    """runs/NAME-SEED, or the next free name."""
    first = Path("runs") / f"{spec.stem}-{experiment.seed}"
    others = (first.with_name(f"{first.name}-{number}") for number in count(2))
    return next(folder for folder in chain([first], others) if RunFolder(folder).is_free())


def say_what_is_left(progress: RoundProgress, store: RunFolder, experiment: Experiment) -> None:
    """A line if there is nothing to resume."""
    if store.is_free():
        progress.note(f"{store.path} holds no run to resume: starting a new one.")
    elif store.is_done(experiment):
        progress.note(
            f"The run in {store.path} is already finished after {counted(len(store.log()), 'round')}. A larger "
            "--rounds extends it."
        )


def say_run(ended: Run, resume_hint: str) -> None:
    """The curve of a run, and what it says."""
    summary, folder = ended.summary, ended.folder.path
    if summary is None:
        say(f"Stopped after {counted(ended.federation.state.round, 'round')}. {resume_hint}")
        return
    (comparison,) = summarize([read_run(FoundRun(ended.folder))])
    ((run,),) = (method.runs for method in comparison.methods)
    quantity = comparison.measure.quantity
    if len(quantity.read(run.run)) <= 2:
        quantity = TRAIN_LOSS
    chart = draw_line(list(quantity.read(run.run).points))
    if chart:
        say(f"{quantity.title} over the rounds:\n{chart}\n")
    say(f"{counted(summary.rounds, 'round')} {'is' if summary.rounds == 1 else 'are'} in {folder}")
    if summary.rounds < (ended.federation.rounds or 0):
        why = "" if run.run.experiment is None else run.run.experiment.stopped_by(run.run.records)
        say(f"stop_when ended the run before round {ended.federation.rounds}: {why}.")
    if summary.evaluation is not None:
        say(f"Final model: {describe_evaluation(summary.evaluation)}")
    say(headline(comparison))
    if summary.privacy is not None:
        say(str(summary.privacy))
    say_consistency(ended.federation.consistency(), summary.misplaced_by_chance)


def say_consistency(report: ConsistencyReport, chance: float) -> None:
    """The report, and the share of weight that chance misplaces in as many rounds."""
    said = str(report)
    if not report.restored and report.total_variation and chance >= _TOLD:
        said += f" Chance alone would misplace some {chance:.1%} in {counted(report.rounds, 'round')}."
    say(said)


def run_facts(ended: Run) -> dict[str, Any]:
    rest = {"rounds": ended.federation.state.round} if ended.summary is None else asdict(ended.summary)
    return {"folder": str(ended.folder.path), "outcome": ended.outcome, **rest}


def say_demo(methods: Sequence[ComparedMethod]) -> None:
    """The table of the demonstration, and what it says."""
    measure = methods[0].summary.measure
    columns = ["method", f"{measure.name}\n({measure.column})", "objective", "misplaced weight", "chi-square"]
    rows = [
        [
            method.name,
            show(method.value, measure.kind),
            f"{method.objective:.3f}",
            *_misplacement(method.consistency),
        ]
        for method in methods
    ]
    say()
    print_table(columns, rows, numbers=columns[1:])
    say()
    say(headline(methods[0].summary))
    for method in methods:
        say(method.objective_verdict())


def _misplacement(report: ConsistencyReport) -> tuple[str, str]:
    """Share of misplaced weight and chi-square, where they were measured."""
    if report.restored:
        return "none by design", ""
    if report.total_variation is None or report.chi_square is None:
        return "unknown", "unknown"
    return f"{report.total_variation:.1%}", divergence(report.chi_square, digits=3)


def demo_facts(methods: Sequence[ComparedMethod]) -> dict[str, Any]:
    """The demonstration for JSON, as in `compare` and `report`."""
    summary = methods[0].summary
    rows = [
        {
            "method": method.name,
            **method_facts(summary, method.figures),
            "objective_verdict": method.objective_verdict(),
        }
        for method in methods
    ]
    return {**comparison_facts(summary), "methods": rows}


def write_files(
    summaries: Sequence[Summary], tables: Path | None, figures: Path | None, formats: str | None
) -> dict[str, list[Path]]:
    """Tables and figures for papers, as far as they are asked for."""
    from fairlead.reports.paper_files import write_figures, write_tables

    made: dict[str, list[Path]] = {}
    if tables is not None:
        made["tables"] = [file for each in summaries for file in write_tables(each, tables)]
    if figures is not None:
        endings = [each.strip() for each in (formats or "pdf,svg,png").split(",")]
        made["figures"] = [file for each in summaries for file in write_figures(each, figures, endings)]
    return made


def refuse_unreadable(runs: Sequence[ReportedRun]) -> None:
    """Say why the first run cannot be read, if none can."""
    if all(run.state == "unreadable" for run in runs):
        raise RunFolderError(f"{runs[0].name} cannot be read: {runs[0].reason}")


def say_report(summaries: Sequence[Summary], page: Path | None) -> None:
    runs = [run for summary in summaries for run in summary.study.runs]
    unfinished, number = sum(not run.finished for run in runs), len(runs)
    methods = counted(len({label for summary in summaries for label in summary.study.labels}), "method")
    settings = f" in {len(summaries)} settings" if len(summaries) > 1 else ""
    for summary in summaries:
        text = headline(summary) if summary.methods else summary.study.absences
        say(f"{summary.setting}: {text}" if summary.setting else text)
        for sentence in tunings(summary):
            say(sentence)
    say_notes(summaries)
    say(f"{counted(number, 'run')} of {methods}{settings} {'is' if number == 1 else 'are'} in {page}")
    if unfinished:
        say(f"{unfinished} of them did not finish; the page says why.")


def say_notes(summaries: Sequence[Summary]) -> None:
    """What methods have from their spec, and which of them are the same."""
    for note in dict.fromkeys(note for each in summaries for note in each.study.notes):
        say(note)


def default_page(paths: list[Path]) -> Path:
    page = paths[0] / "report.html" if len(paths) == 1 and paths[0].is_dir() else Path("report.html")
    if page.is_symlink():
        raise FieldError(f"{page} is a symbolic link to {page.readlink()}: choose another file with -o.")
    return page


def default_title(paths: list[Path]) -> str:
    return " and ".join(table_name(path.resolve()) for path in paths[:3]) + (" …" if len(paths) > 3 else "")


def report_facts(summaries: Sequence[Summary]) -> dict[str, Any]:
    """The comparison for programs, or one for each setting where there are settings."""
    if len(summaries) == 1 and not summaries[0].setting:
        return _summary_facts(summaries[0])
    return {"settings": [{"setting": summary.setting, **_summary_facts(summary)} for summary in summaries]}


def _summary_facts(summary: Summary) -> dict[str, Any]:
    return {
        **comparison_facts(summary),
        "targets": list(summary.targets),
        "methods": [
            {
                "method": method.label,
                **method_facts(summary, method),
                "runs": [run.run.name for run in method.runs],
                "all_finished": method.method.complete,
            }
            for method in summary.methods
        ],
        "absent": list(summary.study.absent),
        "unfinished": [
            {"run": run.name, "state": run.state, "reason": run.reason}
            for run in summary.study.runs
            if not run.finished
        ],
    }


def comparison_facts(summary: Summary) -> dict[str, Any]:
    """The measure and the baseline of a comparison for JSON: the same in every command."""
    baseline = None if summary.baseline is None else summary.baseline.label
    tunings = [_tuning_facts(tuning) for tuning in summary.tunings]
    return {
        **measure_facts(summary.measure),
        "baseline": baseline,
        **({"tuning": tunings} if tunings else {}),
    }


def _tuning_facts(tuning: Tuning) -> dict[str, Any]:
    """The settings of a method that were tried, with their figures on the tuning seeds."""
    tried = [{**each._asdict(), "value": estimate_facts(each.value)} for each in tuning.settings]
    chosen = [each.name for each in tuning.chosen]
    return {
        "method": tuning.method,
        "seeds": tuning.seeds,
        "chosen": chosen[0] if chosen else None,
        "at_edge": tuning.edges,
        "settings": tried,
    }


def measure_facts(measure: Measure) -> dict[str, Any]:
    """The measure for JSON."""
    return {
        "metric": {"name": measure.metric, "smaller_is_better": not measure.higher},
        "figure": measure.figure,
    }


def method_facts(summary: Summary, method: MethodFigures) -> dict[str, Any]:
    """A method against the baseline for JSON: the same in every command."""
    return {
        "value": estimate_facts(method.value),
        "difference": estimate_facts(method.difference, judged=True),
        "standing": summary.standing(method),
        "verdict": str(describe_standing(summary, method)),
        "final": estimate_facts(method.over_seeds(lambda run: run.figure("final"))),
        "objective": estimate_facts(method.over_seeds(lambda run: run.objective)),
        "objective_difference": estimate_facts(method.objective_difference, judged=True),
        "misplaced_weight": estimate_facts(method.over_seeds(lambda run: run.misplaced)),
        "misplaced_by_chance": estimate_facts(method.over_seeds(lambda run: run.by_chance)),
        "chi_square": estimate_facts(method.over_seeds(lambda run: run.chi_square)),
        "by_design": method.by_design(),
        "learnt": method.method.learned,
        "from_spec": method.method.runs[0].from_spec,
        "clients": _client_facts(method),
    }


def _client_facts(method: MethodFigures) -> dict[str, Any] | None:
    """How evenly the final models serve clients, and the measure of each, by seed; None if it was not measured."""
    runs = [run for run in method.runs if run.clients]
    if not runs:
        return None
    return {
        "mean": estimate_facts(method.over_seeds(lambda run: run.client_mean)),
        "worst_tenth": estimate_facts(method.over_seeds(lambda run: run.client_worst)),
        "variance": estimate_facts(method.over_seeds(lambda run: run.client_variance)),
        "gini": estimate_facts(method.over_seeds(lambda run: run.client_gini)),
        "by_seed": {
            str(run.seed): [value if isfinite(value) else None for value in run.clients] for run in runs
        },
    }


def estimate_facts(found: Estimate | None, *, judged: bool = False) -> dict[str, Any] | None:
    """A mean over seeds for JSON; of a difference also whether its interval excludes 0."""
    if found is None:
        return None
    return {**asdict(found), **({"excludes_zero": found.excludes_zero} if judged else {})}
