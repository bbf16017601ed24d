"""Settings: methods are compared within one, since others are other conditions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from fairlead.reports.runs import ReportedRun
from fairlead.studies.kept_runs import table_name


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
    """The shortest end of each path that no other one has, without what the names of all such files end with."""
    paths = {study: study.parent / table_name(study) for study in studies}
    if len(set(paths.values())) < len(studies):
        paths = {study: study for study in studies}
    ends = Counter(end for path in paths.values() for end in _ends(path))
    return {study: next(str(end) for end in _ends(path) if ends[end] == 1) for study, path in paths.items()}


def _ends(path: Path) -> Iterator[Path]:
    """`c`, `b/c` and `/b/c` of `/b/c`."""
    return (Path(*path.parts[-length:]) for length in range(1, len(path.parts) + 1))
