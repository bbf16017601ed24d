"""Methods: runs of one experiment that differ only in the seed, and their labels."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fairlead.errors import FieldError, require_name
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.tracking import flat_spec
from fairlead.optimizers.descent import SGD
from fairlead.plain_data import to_plain
from fairlead.results.run_archive import table_name
from fairlead.results.runs import ReportedRun
from fairlead.text import counted, listed

_COMPUTING = ("seed", "device", "engine", "lanes", "block", "reproducible", "compile", "data_on", "ray")
"""Fields that do not distinguish methods: seed, device and engine."""


@dataclass(frozen=True, eq=False)
class MethodRuns:
    """Repetitions of one experiment over seeds."""

    label: str
    runs: tuple[ReportedRun, ...]
    """One per seed, ascending."""
    unusable: tuple[ReportedRun, ...] = ()
    """Runs that its study gives this name and that never began or cannot be read."""

    @property
    def experiment(self) -> Experiment | None:
        """With the seed of the first run; None where specs were not kept."""
        return self.runs[0].experiment

    @property
    def counted(self) -> tuple[ReportedRun, ...]:
        """The runs behind the figures: the finished ones, or all if none finished."""
        done = tuple(run for run in self.runs if run.finished)
        return done or tuple(run for run in self.runs if run.records)

    @property
    def num_runs(self) -> int:
        """The number of planned runs."""
        return len(self.runs) + len(self.unusable)

    @property
    def complete(self) -> bool:
        """Whether every run finished: a mean over the survivors of others may flatter."""
        return not self.unusable and all(run.finished for run in self.runs)

    @property
    def shortfall(self) -> str:
        """How many runs failed and how many did not finish, in words; empty if all finished."""
        states = [run.state for run in (*self.runs, *self.unusable) if not run.finished]
        failed = states.count("failed")
        total, others = f"of {counted(self.num_runs, 'run')}", len(states) - failed
        if failed and others:
            return f"{failed} {total} failed and {others} did not finish"
        return f"{len(states)} {total} {'failed' if failed else 'did not finish'}" if states else ""

    @property
    def learned(self) -> bool:
        """Whether a run may have learned: not every one failed or ended with an objective above its initial model's.

        Nothing is known of runs that finished without a summary, and of those that may still be resumed.
        """
        return any(
            run.state != "failed"
            and (not run.finished or run.summary is None or not run.one_model or run.summary.learned)
            for run in (*self.runs, *self.unusable)
        )

    @property
    def failed(self) -> bool:
        """Whether every run failed."""
        return all(run.state == "failed" for run in (*self.runs, *self.unusable))

    def comparable_with(self, other: Self) -> bool:
        """Whether their figures are of the same clients and task after as many rounds.

        Without specs they are taken to be, if both have none.
        """
        ours, theirs = self.experiment, other.experiment
        if ours is None or theirs is None:
            return ours is theirs
        return (ours.clients, ours.task, ours.rounds) == (theirs.clients, theirs.task, theirs.rounds)


@dataclass(frozen=True, eq=False)
class Study:
    """The runs that a report compares: all of them, or those under a setting."""

    methods: tuple[MethodRuns, ...]
    repeated: tuple[ReportedRun, ...]
    """Runs left out because another one has the same experiment and seed."""
    unusable: tuple[ReportedRun, ...]
    """Runs that never began or cannot be read."""

    @property
    def runs(self) -> tuple[ReportedRun, ...]:
        """Every run, those that could not be used included."""
        return (*(run for method in self.methods for run in method.runs), *self.repeated, *self.unusable)

    @property
    def absent(self) -> tuple[str, ...]:
        """Labels of methods of which no run has a readable round."""
        # Methods of one name have more words in their labels, which no study knows.
        shown = {name for method in self.methods for name in (method.label, method.runs[0].label)}
        labels = dict.fromkeys(run.label for run in self.unusable if run.label not in shown)
        return tuple(label for label in labels if label is not None)

    @property
    def labels(self) -> tuple[str, ...]:
        """Of all methods, those that are absent included."""
        return (*(method.label for method in self.methods), *self.absent)

    def method(self, label: str) -> MethodRuns:
        """The method with the given label."""
        known = {method.label: method for method in self.methods}
        if label in self.absent:
            raise FieldError(f"{label!r} is a method of which no run has a readable round.")
        require_name(label, known, "a method of these runs")
        return known[label]

    @property
    def comparable(self) -> bool:
        """Whether all methods can be ranked by one figure."""
        return all(method.comparable_with(self.methods[0]) for method in self.methods)

    @property
    def shortfalls(self) -> str:
        """Sentences on the methods of which not every run finished; empty if there are none."""
        said = [f"{method.label} ({method.shortfall})" for method in self.methods if not method.complete]
        sentences = [f"Not every run finished: {', '.join(said)}."] if said else []
        if said and len(self.methods) > 1:
            sentences.append("Methods with such runs are not ranked.")
        return " ".join(filter(None, [*sentences, self.absences]))

    @property
    def same(self) -> str:
        """A sentence on methods that are the same algorithm; empty if there are none."""
        groups: dict[str, list[str]] = {}
        for method in self.methods:
            if method.experiment is not None:
                groups.setdefault(_identity(method.experiment), []).append(method.label)
        said = [f"{listed(labels)} are the same algorithm" for labels in groups.values() if len(labels) > 1]
        return f"{'; '.join(said)}: their differences say nothing about methods." if said else ""

    @property
    def from_spec(self) -> str:
        """Sentences on the parts of its spec that each method of a comparison has; empty if they were not noted."""
        groups: dict[str, list[str]] = {}
        for method in self.methods:
            taken = method.runs[0].from_spec
            if taken is not None:
                had = [f"{name} {value}" for name, value in taken.items() if name != "not_taken"]
                what = "the whole algorithm" if taken.get("algorithm") == "whole" else ", ".join(had)
                left = f"; not taken: {taken['not_taken']}" if "not_taken" in taken else ""
                groups.setdefault(f"{what or 'nothing'} from the spec{left}", []).append(method.label)
        return " ".join(
            f"{listed(found, len(found))} {'takes' if len(found) == 1 else 'take'} {what}."
            for what, found in groups.items()
        )

    @property
    def notes(self) -> list[str]:
        """What methods have from their spec, and which of them are the same."""
        return [note for note in (self.from_spec, self.same) if note]

    @property
    def absences(self) -> str:
        """A sentence on methods without any readable run; empty if there are none."""
        return f"No run of {listed(self.absent)} has a readable round." if self.absent else ""

    def differing_conditions(self) -> tuple[str, ...]:
        """Fields other than the algorithm in which methods differ: their figures compare more than methods."""
        known = [method.experiment for method in self.methods if method.experiment is not None]
        return tuple(
            name
            for name in ("clients", "rounds", "task", "work", "link", "devices", "weights", "dtype")
            if any(getattr(experiment, name) != getattr(known[0], name) for experiment in known)
        )


def group_runs(runs: Sequence[ReportedRun]) -> Study:
    """Runs by method, in the order in which methods first appear."""
    groups: dict[tuple[str | None, str, bool], dict[int, list[ReportedRun]]] = {}
    for run in runs:
        if run.seed is not None:
            seeds = groups.setdefault((run.label, _identity(run.experiment), run.real), {})
            seeds.setdefault(run.seed, []).append(run)
    chosen, repeated = [], []
    for seeds in groups.values():
        # The one that got furthest stands for its seed: a repetition adds no independent number.
        ranked = {seed: sorted(members, key=_progress, reverse=True) for seed, members in seeds.items()}
        chosen.append(tuple(ranked[seed][0] for seed in sorted(ranked)))
        repeated += [run for members in ranked.values() for run in members[1:]]
    unusable = tuple(run for run in runs if run.seed is None)
    methods = []
    for label, kept in zip(_labels(chosen), chosen, strict=True):
        # Another study may give the same name to something else.
        names = {(run.study, run.label) for run in kept if run.label is not None}
        lost = tuple(run for run in unusable if (run.study, run.label) in names)
        methods.append(MethodRuns(label, kept, lost))
    return Study(tuple(methods), tuple(repeated), unusable)


def baseline_of(study: Study, label: str | None) -> MethodRuns:
    """The method to compare with: the one named, else the first of a comparison, else FedAvg, else the first.

    One that is not named has finished runs, if any method has.
    """
    if label is not None:
        named = study.method(label)
        if named.failed:
            raise FieldError(
                f"baseline must be a method that has not failed, got {label!r}: {named.shortfall}."
            )
        return named
    usable = [method for method in study.methods if any(run.finished for run in method.runs)] or study.methods
    if usable[0].runs[0].label is not None:
        return usable[0]
    for method in usable:
        if re.fullmatch(r"fed[-_ ]?avg", method.label, re.IGNORECASE):
            return method
    return usable[0]


def _identity(experiment: Experiment | None) -> str:
    """The fields that runs of one method share: all but seed, device and engine."""
    fields = {} if experiment is None else to_plain(experiment, Experiment)
    return repr({name: value for name, value in fields.items() if name not in _COMPUTING})


def _progress(run: ReportedRun) -> int:
    return len(run.records) + (1 if run.finished else 0)


def _labels(groups: Sequence[tuple[ReportedRun, ...]]) -> list[str]:
    """One label per group, all different."""
    labels = [_label(runs) for runs in groups]
    for label, count in Counter(labels).items():
        if count > 1:
            places = [place for place, other in enumerate(labels) if other == label]
            for place, text in zip(places, _distinctions([groups[p][0] for p in places]), strict=True):
                labels[place] = f"{label} ({text})"
    return labels


def _label(runs: Sequence[ReportedRun]) -> str:
    """The label of their study, or the common name of their folders without the seed; else their parts."""
    if runs[0].label is not None:
        return runs[0].label
    names, experiment = [_folder_label(run) for run in runs], runs[0].experiment
    if len(set(names)) == 1 or experiment is None:
        return names[0]
    return _parts(experiment)


def _folder_label(run: ReportedRun) -> str:
    """The name of the folder without the seed; of the folder around it, if nothing else is left."""
    pattern = re.compile(rf"(?:(?!seed)(.+?)[-_= ])?(?:seed)?[-_= ]?0*{run.seed}(?:-\d+)?")
    path = run.path.resolve()
    match = pattern.fullmatch(path.name)
    return path.name if match is None else match[1] or path.parent.name


def _parts(experiment: Experiment) -> str:
    algorithm = experiment.algorithm
    servers = [] if isinstance(algorithm.server, SGD) else [algorithm.server]
    parts = [algorithm.aggregator, *algorithm.solver.corrections, *algorithm.transforms, *servers]
    return " + ".join(type(part).__name__ for part in parts)


def _distinctions(runs: Sequence[ReportedRun]) -> list[str]:
    """The differences of experiments of one name, in as few fields as possible."""
    worlds = [{"clients": "real" if run.real else "simulated"} for run in runs]
    tables = [
        world | ({} if run.experiment is None else flat_spec(run.experiment))
        for run, world in zip(runs, worlds, strict=True)
    ]
    told: list[tuple[str, ...]] = [() for _ in tables]
    for path in dict.fromkeys(path for table in tables for path in table):
        if path.split(".")[0] in _COMPUTING:
            continue
        more = [
            (*words, f"{_short(path)}={table.get(path, 'default')}")
            for words, table in zip(told, tables, strict=True)
        ]
        if len(set(more)) > len(set(told)):
            told = more
    return [", ".join(words) for words in told]


def _short(path: str) -> str:
    """The last name of a path, or the last two where the last says only that it is a part."""
    names = path.split(".")
    return names[-2] if names[-1] == "type" and len(names) > 1 else names[-1]


def by_setting(runs: Sequence[ReportedRun]) -> dict[str, list[ReportedRun]]:
    """Runs by their setting, in the order of appearance; those whose study has none share the name ""."""
    studies = {run.study for run in runs if run.study is not None and run.setting is not None}
    names = _names(studies)
    groups: dict[str, list[ReportedRun]] = {}
    for run in runs:
        setting = run.setting or ""
        # The same setting of another study may have other data.
        if setting and len(studies) > 1 and run.study is not None:
            setting = f"{names[run.study]}, {setting}"
        groups.setdefault(setting, []).append(run)
    return groups


def _names(studies: set[Path]) -> dict[Path, str]:
    """The shortest unique end of each path, without the common ending of archives."""
    paths = {study: study.parent / table_name(study) for study in studies}
    if len(set(paths.values())) < len(studies):
        paths = {study: study for study in studies}
    ends = Counter(end for path in paths.values() for end in _ends(path))
    return {study: next(str(end) for end in _ends(path) if ends[end] == 1) for study, path in paths.items()}


def _ends(path: Path) -> Iterator[Path]:
    """`c`, `b/c` and `/b/c` of `/b/c`."""
    return (Path(*path.parts[-length:]) for length in range(1, len(path.parts) + 1))
