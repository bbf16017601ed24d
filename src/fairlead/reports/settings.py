"""Settings: methods are compared within one, since others are other conditions."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.reports.runs import ReportedRun
from fairlead.studies.kept_runs import table_name


def by_setting(runs: Sequence[ReportedRun]) -> dict[str, list[ReportedRun]]:
    """Runs by their setting, in the order of appearance; those whose study has none share the name ""."""
    studies = {run.study for run in runs if run.study is not None and run.setting is not None}
    names = {study: table_name(study) for study in studies}
    if len(set(names.values())) < len(studies):
        names = {study: str(study) for study in studies}
    groups: dict[str, list[ReportedRun]] = {}
    for run in runs:
        setting = run.setting or ""
        # The same setting of another study may have other data.
        if setting and len(studies) > 1 and run.study is not None:
            setting = f"{names[run.study]}, {setting}"
        groups.setdefault(setting, []).append(run)
    return groups
