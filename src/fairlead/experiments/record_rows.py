"""A round as one row of numbers, for frames and for programs that draw curves."""

from __future__ import annotations

from dataclasses import asdict, fields

from fairlead.records import RoundRecord

Cell = float | int | None

_COUNTED = ("asked", "arrived", "refused", "late")
_LISTS = ("multiplicity", "num_steps", "effective_steps", "coefficients", "remembered")
_TABLES = ("facts", "evaluation", "gradients")


def row_of(record: RoundRecord) -> dict[str, Cell]:
    """The single numbers of a record by name.

    `asked`, `arrived`, `refused` and `late` are counts, `local_steps` is the sum over what arrived; loss and metrics
    of an evaluation stand under their own names, figures of full gradients under `gradients.`, other facts under
    `facts.`.
    """
    row: dict[str, Cell] = {}
    if record.evaluation is not None:
        row |= {"loss": record.evaluation.loss, **record.evaluation.metrics}
    for field in fields(record):
        if field.name in _COUNTED:
            row[field.name] = len(getattr(record, field.name))
        elif field.name not in (*_LISTS, *_TABLES):
            row[field.name] = getattr(record, field.name)
    row["local_steps"] = sum(record.num_steps)
    if record.gradients is not None:
        row |= {f"gradients.{name}": value for name, value in asdict(record.gradients).items()}
    return {**row, **{f"facts.{name}": value for name, value in record.facts.items()}}
