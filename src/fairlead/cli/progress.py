"""Live progress on a terminal, plain lines anywhere else."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fairlead.cli.console import console

if TYPE_CHECKING:
    from fairlead.records import Evaluation, RoundRecord

_LINES = 10
"""Lines of a piped run that evaluates nothing."""


class RoundProgress:
    """Shows how one or several runs advance, on standard error."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = console(stderr=True)
        self._quiet = quiet
        self._tasks: dict[str, TaskID] = {}
        self._totals: dict[str, int] = {}
        self._evaluations: dict[str, Evaluation] = {}
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(compact=True),
            console=self._console,
            disable=quiet or not self._console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def begin(self, name: str, total: int, done: int = 0) -> None:
        """Announce a run of `total` rounds, of which some may be done already."""
        self._totals[name] = total
        self._tasks[name] = self._bars.add_task(name, total=total, completed=done, facts="")

    def advance(self, name: str, record: RoundRecord) -> None:
        """Show a round."""
        done, total = record.round + 1, self._totals[name]
        if record.evaluation is not None:
            self._evaluations[name] = record.evaluation
        facts = _facts(record, self._evaluations.get(name))
        self._bars.update(self._tasks[name], completed=done, facts=facts)
        due = record.evaluation is not None or done % max(total // _LINES, 1) == 0
        if self._bars.disable and not self._quiet and due:
            facts = _facts(record, record.evaluation)
            self._console.print(f"{name}  round {done}/{total}  {facts}", soft_wrap=True)

    def note(self, text: str) -> None:
        """Say something between the rounds."""
        if not self._quiet:
            self._bars.console.print(text, soft_wrap=True)


def _facts(record: RoundRecord, evaluation: Evaluation | None) -> str:
    facts = [f"arrived {len(record.arrived)}/{len(record.asked)}"]
    if record.train_loss is not None:
        facts.append(f"train loss {record.train_loss:.4g}")
    if evaluation is not None:
        facts.append(describe_evaluation(evaluation))
    return "  ".join(facts)


def describe_evaluation(evaluation: Evaluation) -> str:
    """Loss and metrics in one line."""
    figures = {"loss": evaluation.loss, **evaluation.metrics}
    return "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
