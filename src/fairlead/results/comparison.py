"""The one comparison: methods against a baseline, their ranking, and whether differences exceed the noise."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from typing import Literal, NamedTuple, TypedDict, TypeVar, Unpack

from fairlead.errors import FieldError
from fairlead.experiments.study import Label, ListedMethod, describe_labels, folder_name, setting_name
from fairlead.results.curves import FigureName
from fairlead.results.estimates import Estimate, estimate, mean_of, paired_difference
from fairlead.results.figures import Measure, MethodFigures, RunFigures, own_target, runs_measure
from fairlead.results.methods import MethodRuns, Study, baseline_of, by_setting, group_runs
from fairlead.results.runs import ReportedRun, read_runs
from fairlead.text import counted

_Lead = Literal["no common seed", "behind on common seeds", "noise unknown", "beyond noise", "within noise"]
"""The first method against a baseline whose runs finished."""
Ranking = (
    Literal["not evaluated", "one method", "not comparable", "not measured"]
    | Literal["unfinished", "all diverged", "diverged"]
    | Literal["nothing learned", "tied", "baseline first", "baseline unfinished", "baseline diverged"]
    | _Lead
)
"""The result of a comparison."""
Standing = (
    Literal["no round", "one method", "baseline", "not comparable", "failed", "diverged", "not measured"]
    | Literal["no common seed", "equal", "noise unknown", "unfinished", "better", "worse", "unclear"]
)
"""The result for one method against the baseline."""


MethodT = TypeVar("MethodT")


class ClientValues(NamedTuple):
    """A figure of clients under several methods."""

    seed: int | None
    """The seed that dealt the clients; None for clients that the data name, whose values are means over seeds."""
    values: dict[str, dict[str, float]]
    """By name or number of the client and label of the method, the client that the baseline serves worst first."""

    @property
    def explanation(self) -> str:
        """How the values of several seeds became one."""
        if self.seed is None:
            return "Means over seeds."
        return f"Of seed {self.seed}, since every seed deals the clients anew."


PRUNED = "pruned after "
"""How the problem of a setting begins that was given up for better ones."""


class TriedSetting(NamedTuple):
    """A setting of a method on the tuning seeds."""

    name: str
    """As in the list of a comparison, such as "fedavg:lr=0.1"."""
    values: Mapping[str, Label]
    value: Estimate | None
    problem: str
    """Why it cannot be chosen; empty if it can."""
    chosen: bool

    @property
    def label(self) -> str:
        return describe_labels(self.values)


class Tuning(NamedTuple):
    """The settings of a method that were tried on seeds of their own."""

    method: str
    measure: Measure
    seeds: list[int]
    settings: list[TriedSetting]
    """In their planned order. Those with results are chosen, or the best while there are no results."""
    ranked: list[str]
    """The names of those that can be chosen, best first."""
    spread: float | None
    """The difference between the best and the worst learning rate, each at its best after the rounds that all settings
    had; None with less than two."""

    @property
    def best(self) -> str | None:
        """The name of the best that can be chosen; None without any."""
        return next(iter(self.ranked), None)

    @property
    def chosen(self) -> list[TriedSetting]:
        return [setting for setting in self.settings if setting.chosen]

    @property
    def num_lost(self) -> int:
        """How many settings failed or diverged."""
        return sum(bool(each.problem) and not each.problem.startswith(PRUNED) for each in self.settings)

    @property
    def edges(self) -> list[str]:
        """Chosen numbers that are the smallest or the largest tried, in words, unless all gave the same result."""
        found = []
        for best, name, value in ((each, *pair) for each in self.chosen for pair in each.values.items()):
            beside = [each for each in self.settings if {**each.values, name: value} == best.values]
            numbers = [tried for each in beside if not isinstance(tried := each.values[name], str)]
            differ = len(numbers) > 1 and len({each.value for each in beside}) > 1
            for end, edge in (("smallest", min), ("largest", max)):
                if differ and value == edge(numbers):
                    found.append(f"{name}={value} is the {end} value tried")
        return found


@dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """All figures of the runs under one setting."""

    setting: str
    """Under which methods are compared; empty where their study has no settings."""
    study: Study
    measure: Measure
    baseline: MethodFigures | None
    """None if no run could be read."""
    targets: tuple[float, ...]
    methods: tuple[MethodFigures, ...]
    tunings: tuple[Tuning, ...] = ()
    """The methods whose settings were tuned."""

    def __repr__(self) -> str:
        return f"<Summary of {', '.join(method.label for method in self.methods)} by {self.measure.metric}>"

    def titled(self, title: str) -> str:
        """A title that also names the setting."""
        return f"{title}: {self.setting}" if self.setting else title

    def key(self, key: str) -> str:
        """A name for files and parts of a page that no other setting of the report has."""
        return f"{key}-{folder_name(self.setting)}" if self.setting else key

    @property
    def compared(self) -> bool:
        """Whether there is more than one method."""
        return len(self.methods) > 1

    @property
    def ranked(self) -> bool:
        """Whether one method may be called the best."""
        return self.compared and self.study.comparable

    @property
    def client_data(self) -> str:
        """The data of figures per client."""
        held_out = {run.run.held_out for method in self.methods for run in method.runs if run.clients}
        if held_out == {True}:
            return "its own held-out data"
        if held_out == {False}:
            return "its own training data"
        return "its own held-out data where it has some, else its training data"

    @cached_property
    def clients(self) -> ClientValues | None:
        """The measure of each client under every method; None if clients were not measured."""
        measured = [run for method in self.methods for run in method.runs if run.clients]
        if not measured:
            return None
        named = all(run.run.names is not None for run in measured)
        seed = min(run.seed for run in measured)
        by_client: dict[str, dict[str, list[float]]] = {}
        for method in self.methods:
            for run in method.runs:
                names = run.run.names
                for client, value in enumerate(run.clients if named or run.seed == seed else ()):
                    whose = str(client if names is None else names[client])
                    if math.isfinite(value):
                        by_client.setdefault(whose, {}).setdefault(method.label, []).append(value)
        first = (self.baseline or self.methods[0]).label
        means = {
            client: {label: mean_of(values) for label, values in found.items()}
            for client, found in by_client.items()
        }
        lowest_first = sorted(means, key=lambda client: means[client].get(first, math.inf))
        ordered = lowest_first if self.measure.higher else lowest_first[::-1]
        return ClientValues(None if named else seed, {client: means[client] for client in ordered})

    @cached_property
    def best_first(self) -> tuple[MethodFigures, ...]:
        """Methods from best to worst, those with unfinished runs last; in the order of the study if not ranked.

        A mean over the seeds that survived says little about a method with which others diverge.
        """
        if not self.ranked:
            return self.methods
        sign = -1 if self.measure.higher else 1

        def rank(method: MethodFigures) -> tuple[bool, float]:
            mean = math.nan if method.value is None else method.value.mean
            return not method.complete, sign * mean if math.isfinite(mean) else math.inf

        return tuple(sorted(self.methods, key=rank))

    @property
    def evaluated(self) -> list[MethodFigures]:
        """The methods that have the measure, best first."""
        return [method for method in self.best_first if method.value is not None]

    @property
    def diverged(self) -> list[MethodFigures]:
        """The methods of which a finished run has no finite value of the measure."""
        return [method for method in self.methods if method.num_diverged]

    @property
    def unmeasured(self) -> list[MethodFigures]:
        """The methods whose runs finished without the measure."""
        return [each for each in self.methods if each.runs and each.method.complete and each.unmeasured]

    @property
    def tied(self) -> list[MethodFigures]:
        """The complete methods with the same mean as the first."""
        first = self.evaluated[0].value
        return [
            method
            for method in self.evaluated
            if method.complete and method.value and first and math.isclose(method.value.mean, first.mean)
        ]

    @cached_property
    def ranks(self) -> dict[str, Estimate]:
        """The rank of each method over seeds: 1 is the best, equals share the mean, and no value is the worst."""
        scores = {method.label: method.by_seed(lambda run: run.value) for method in self.methods}
        return ranks_of(scores, higher=self.measure.higher)

    @cached_property
    def leaders(self) -> set[MethodFigures]:
        """The best method and those within the noise of it."""
        methods = self.methods if self.ranked else ()
        return leading(methods, lambda run: run.value, higher=self.measure.higher)

    @property
    def ranking(self) -> Ranking:
        """Which method comes first, and by how much."""
        if not self.evaluated or self.baseline is None:
            return "all diverged" if self.diverged else "not evaluated"
        first = self.evaluated[0]
        if not self.compared:
            return "one method"
        if not self.ranked:
            return "not comparable"
        few = sum(method.complete for method in self.evaluated) < 2
        if self.baseline in self.unmeasured or (few and self.unmeasured):
            return "not measured"
        if few:
            return "diverged" if self.diverged else "unfinished"
        if not first.method.learned:
            return "nothing learned"
        if len(self.tied) > 1 and first in self.tied:
            return "tied"
        if first is self.baseline:
            return "baseline first"
        if self.baseline.num_diverged:
            return "baseline diverged"
        return self._lead(first.difference) if self.baseline.method.complete else "baseline unfinished"

    def _lead(self, difference: Estimate | None) -> _Lead:
        """How the first method stands to a baseline whose runs finished."""
        if difference is None:
            return "no common seed"
        if difference.mean == 0 or (difference.mean > 0) != self.measure.higher:
            return "behind on common seeds"
        if difference.half_width is None:
            return "noise unknown"
        return "beyond noise" if difference.excludes_zero else "within noise"

    def standing(self, method: MethodFigures) -> Standing:
        """How a method compares with the baseline."""
        baseline, difference = self.baseline, method.difference
        if not method.runs:
            return "no round"
        if method is baseline or baseline is None:
            return "baseline" if self.compared else "one method"
        if not method.method.comparable_with(baseline.method):
            return "not comparable"
        if method.method.failed:
            return "failed"
        if method.num_diverged or baseline.num_diverged:
            return "diverged"
        if method.unmeasured or baseline.unmeasured:
            return "not measured"
        return standing_by(difference, higher=self.measure.higher, complete=method.both_complete)


def standing_by(difference: Estimate | None, *, higher: bool, complete: bool) -> Standing:
    """How a measured method compares with the baseline; `complete` if no run of either is missing."""
    if difference is None:
        return "no common seed"
    if difference.is_zero and complete:
        return "equal"
    if difference.half_width is None:
        return "noise unknown"
    return (difference.judged(higher=higher) or "unclear") if complete else "unfinished"


def leading(
    methods: Iterable[MethodFigures],
    read: Callable[[RunFigures], float | None],
    *,
    higher: bool,
    unless_all: bool = False,
) -> set[MethodFigures]:
    """The best method by a figure, and those within the noise of it over equal seeds.

    Methods of which a run failed or diverged, or that have no finite mean, are left out. With `unless_all`, there are
    none if these would be all the others.
    """
    entrants = {
        method: method.by_seed(read)
        for method in methods
        if (mean := method.over_seeds(read))
        and math.isfinite(mean.mean)
        and method.method.complete
        and not method.num_diverged
    }
    found = best_of(entrants, higher=higher)
    return set() if unless_all and len(found) == len(entrants) else found


def ranks_of(scores: Mapping[str, Mapping[int, float]], *, higher: bool) -> dict[str, Estimate]:
    """The rank of each method over seeds, as `Summary.ranks` has it."""
    sign = -1 if higher else 1
    found: dict[str, list[float]] = {label: [] for label in scores}
    for seed in sorted({seed for values in scores.values() for seed in values}):
        values = {label: sign * each.get(seed, sign * math.inf) for label, each in scores.items()}
        # Equal means may differ in their last digits.
        values = {label: float(f"{value:.9g}") for label, value in values.items()}
        for label, own in values.items():
            equal = sum(value == own for value in values.values())
            found[label].append(sum(value < own for value in values.values()) + (equal + 1) / 2)
    return {label: each for label, ranks in found.items() if (each := estimate(ranks)) is not None}


def best_of(entrants: Mapping[MethodT, Mapping[int, float]], *, higher: bool) -> set[MethodT]:
    """The best by the mean over seeds, and those within the noise of it over equal seeds."""
    means = {method: mean_of(values.values()) for method, values in entrants.items()}
    if not means:
        return set()
    best = entrants[(max if higher else min)(means, key=lambda method: means[method])]
    against_best = {method: paired_difference(values, best) for method, values in entrants.items()}
    return {
        method
        for method, difference in against_best.items()
        if difference is None or difference.judged(higher=higher) != "worse"
    }


_POINT = 0.01
"""A difference in shares that counts as clearly behind."""


class InSetting(NamedTuple):
    """A method under one setting; absent, it has the last rank and is lost."""

    rank: float
    leads: bool = False
    """Whether it is best or within the noise of the best."""
    better: bool = False
    """Than the baseline, beyond noise."""
    worse: bool = False
    behind: bool = False
    """Worse by more than a point, where the measure is a share."""
    lost: bool = True
    """Whether a run failed or diverged, or nothing was chosen."""


class OverSettings(NamedTuple):
    """A method over several settings: each list has the settings where that field of `InSetting` is true."""

    label: str
    place: int
    """As in `MethodFigures`."""
    rank: Estimate
    """Over settings, of its mean rank in each."""
    leads: list[str]
    better: list[str]
    worse: list[str]
    behind: list[str]
    lost: list[str]


def over_settings(summaries: Sequence[Summary]) -> list[OverSettings]:
    """Every method over the settings of a report, the lowest mean rank first."""
    found = {
        each.setting: {method.label: in_setting(each, method) for method in each.methods}
        for each in summaries
    }
    return placed(found, [tuning.method for summary in summaries for tuning in summary.tunings])


def in_setting(summary: Summary, method: MethodFigures) -> InSetting:
    """A method under the setting of a summary."""
    standing, rank = summary.standing(method), summary.ranks.get(method.label)
    return InSetting(
        float(len(summary.methods)) if rank is None else rank.mean,
        method in summary.leaders,
        **verdicts(standing, method.difference, share=summary.measure.kind == "share"),
        lost=not method.complete or bool(method.num_diverged),
    )


def verdicts(standing: Standing, difference: Estimate | None, *, share: bool) -> dict[str, bool]:
    """The fields of `InSetting` on the baseline, by a difference to it of a measure that may be a share."""
    clear = difference is not None and (not share or abs(difference.mean) > _POINT)
    worse = standing == "worse"
    return {"better": standing == "better", "worse": worse, "behind": worse and clear}


def placed(found: Mapping[str, Mapping[str, InSetting]], others: Sequence[str] = ()) -> list[OverSettings]:
    """Methods by setting and label, and `others` that no setting has: the lowest mean rank first."""
    labels = list(dict.fromkeys([*(label for each in found.values() for label in each), *others]))
    rows = []
    for place, label in enumerate(labels):
        own = {setting: each.get(label, InSetting(float(len(labels)))) for setting, each in found.items()}
        rank = estimate([each.rank for each in own.values()]) or Estimate(0.0, None, None, 0)
        counts = [
            [setting for setting, each in own.items() if getattr(each, name)]
            for name in InSetting._fields[1:]
        ]
        rows.append(OverSettings(label, place, rank, *counts))
    return sorted(rows, key=lambda each: each.rank.mean)


def chosen_methods(methods: Mapping[str, ListedMethod], summary: Summary) -> dict[str, ListedMethod]:
    """The chosen setting of each method that has one."""
    chosen = {setting.name for tuning in summary.tunings for setting in tuning.chosen}
    return {name: method for name, method in methods.items() if name in chosen}


class SummaryOptions(TypedDict, total=False):
    """Options of a comparison."""

    baseline: str | None
    """The method to compare with: unless given, the first of a comparison, else FedAvg or the first, of those with
    finished runs."""
    targets: Sequence[float]
    """Values of the metric to reach."""
    metric: str | None
    """The first that was evaluated unless given."""
    minimize: bool
    """Smaller is better; known of losses and of the library's own metrics."""
    figure: FigureName
    """The number that is compared: "last-tenth", the mean over the last 10 % of rounds, "last5", "final" or "best"."""


def summarize_settings(
    paths: Iterable[str | PathLike[str]], **options: Unpack[SummaryOptions]
) -> list[Summary]:
    """Figures of all runs in and below folders, and of those in archives: one summary for each setting.

    Runs that differ only in the seed are repetitions of one method. The options are those of `SummaryOptions`.
    """
    return summarize(read_runs(paths), **options)


def summarize_runs(paths: Iterable[str | PathLike[str]], **options: Unpack[SummaryOptions]) -> Summary:
    """Figures of runs under one setting, as `summarize_settings` has them."""
    summaries = summarize_settings(paths, **options)
    if len(summaries) > 1:
        raise FieldError(
            f"These are runs of {len(summaries)} settings, which are not compared with each other: call "
            "summarize_settings."
        )
    return summaries[0]


def summarize(runs: Sequence[ReportedRun], **options: Unpack[SummaryOptions]) -> list[Summary]:
    """A summary for each setting of runs that have been read."""
    baseline, targets = options.get("baseline"), options.get("targets", ())
    metric, minimize = options.get("metric"), options.get("minimize", False)
    figure = options.get("figure", "last-tenth")
    groups = by_setting(runs) or {"": []}
    studies = {
        setting: group_runs([run for run in some if run.tuned is None]) for setting, some in groups.items()
    }
    methods = [method for study in studies.values() for method in study.methods]
    labels = list(dict.fromkeys(method.label for method in methods))
    sound = {method.label for method in methods if not method.failed}
    summaries = []
    for setting, study in studies.items():
        here = {method.label for method in study.methods if not method.failed}
        # A setting without the baseline of the others, or where it failed, is compared with its default one.
        own = None if baseline in sound and baseline not in here else baseline
        evaluated = any(record.evaluation for run in study.runs for record in run.records)
        measured = study.runs if evaluated else groups[setting] or runs
        measure = runs_measure(measured, metric, figure, minimize=minimize)
        summary = _summarize(setting, study, measure, labels, baseline=own, targets=targets)
        summaries.append(replace(summary, tunings=tuple(_tunings(groups[setting], measure))))
    return summaries


def _tunings(runs: Sequence[ReportedRun], measure: Measure) -> Iterator[Tuning]:
    """The tuning of every method of each study."""
    results = {(run.study, run.label) for run in runs if run.tuned is None}
    for study, method in dict.fromkeys((run.study, run.tuned) for run in runs if run.tuned is not None):
        own = [run for run in runs if (run.study, run.tuned) == (study, method)]
        lengths = [run.experiment.rounds for run in own if run.experiment is not None]
        # Settings that were pruned have fewer rounds, and are not ranked with the others.
        short = [run for run in own if run.experiment and run.experiment.rounds < max(lengths)]
        pruned = {run.label: len(run.records) for run in short}
        figures = {each.label: each for each in _tried(own, measure).methods}
        tried = []
        for label, run in {run.label or "": run for run in own}.items():
            found, name = figures.get(label), setting_name(str(method), run.values)
            tries = MethodRuns(label, (), tuple(run for run in own if run.label == label))
            sound = found is not None and found.complete
            problem = "" if sound else tries.shortfall or f"its {measure.name} diverged or is missing"
            if sound and label in pruned:
                problem = f"{PRUNED}{counted(pruned[label], 'round')}"
            value = None if found is None else found.value
            tried.append(TriedSetting(name, run.values, value, problem, (study, name) in results))
        usable = {each.label: each.name for each in tried if not each.problem}
        last = _tried([run for run in own if run.label not in pruned], measure)
        ranked = [usable[each.label] for each in last.best_first if each.label in usable]
        if not any(each.chosen for each in tried):
            tried = [each._replace(chosen=each.name in ranked[:1]) for each in tried]
        seeds = sorted({int(run.labels["seed"]) for run in own})
        spread = _spread(_tried([run.after(min(lengths, default=0)) for run in own], measure))
        yield Tuning(str(method), measure, seeds, tried, ranked, spread)


def _tried(runs: Sequence[ReportedRun], measure: Measure) -> Summary:
    """The settings of a method as if they were methods."""
    groups = group_runs(runs)
    return _summarize("", groups, measure, groups.labels, baseline=None, targets=())


def _spread(tried: Summary) -> float | None:
    """The difference between the best and the worst learning rate, each at its best; None with less than two."""
    best: dict[Label | None, list[float]] = {}
    for method in tried.methods:
        if method.complete and method.value is not None:
            best.setdefault(method.runs[0].run.values.get("lr"), []).append(method.value.mean)
    ends = [(max if tried.measure.higher else min)(values) for values in best.values()]
    return max(ends) - min(ends) if len(ends) > 1 else None


def _summarize(
    setting: str,
    study: Study,
    measure: Measure,
    labels: Sequence[str],
    *,
    baseline: str | None,
    targets: Sequence[float],
) -> Summary:
    """Figures of all methods; targets not given are those archived with the runs, or one that the baseline meets."""
    for target in targets:
        measure.refuse_target(target, "targets")
    if not study.methods:
        return Summary(setting, study, measure, None, tuple(targets), ())
    reference = baseline_of(study, baseline)
    archived = sorted({run.target for run in study.runs if run.target is not None})
    goals = tuple(targets or archived or own_target(reference, measure))

    def figures(method: MethodRuns, compared_with: MethodFigures | None = None) -> MethodFigures:
        runs = tuple(RunFigures(run, measure) for run in method.counted)
        return MethodFigures(method, labels.index(method.label), measure, runs, compared_with)

    first = figures(reference)
    methods = [first if method is reference else figures(method, first) for method in study.methods]
    return Summary(setting, study, measure, first, goals, tuple(methods))
