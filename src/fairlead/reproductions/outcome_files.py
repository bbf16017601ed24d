"""Outcomes as small JSON files, which can be kept beside the code."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from fairlead.errors import FieldError
from fairlead.experiments.record_lines import decoded, strict
from fairlead.reproductions.reproduction import Outcome


def outcome_file(folder: Path, outcome: Outcome) -> Path:
    """Where an outcome is kept in a folder: one file for each scale of a reproduction."""
    return folder / f"{outcome.name}-{outcome.scale}.json"


def save_outcome(folder: Path, outcome: Outcome) -> Path:
    """Write an outcome into a folder, in the place of an earlier one of the same scale."""
    folder.mkdir(parents=True, exist_ok=True)
    file = outcome_file(folder, outcome)
    content = json.dumps(strict(asdict(outcome)), indent=1, allow_nan=False, ensure_ascii=False)
    file.write_text(content + "\n", encoding="utf-8")
    return file


def seeds_to_lose(folder: Path, outcome: Outcome) -> list[int]:
    """Seeds of the outcome that a folder has, which this one would replace without having them."""
    file = outcome_file(folder, outcome)
    return sorted(set(load_outcome(file).seeds) - set(outcome.seeds)) if file.is_file() else []


def load_outcome(file: Path) -> Outcome:
    """The outcome in a file."""
    try:
        return decoded(Outcome, json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise FieldError(f"{file} is not the outcome of a reproduction.") from error


def load_outcomes(folder: Path) -> list[Outcome]:
    """All outcomes in a folder, by name and scale."""
    return [load_outcome(file) for file in sorted(folder.glob("*.json"))]
