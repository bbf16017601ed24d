"""Live progress on a terminal and in notebooks with ipywidgets, plain lines anywhere else."""

from collections.abc import Iterable
from importlib.util import find_spec
from time import monotonic
from typing import Self

from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from fairlead.cli.console import console
from fairlead.experiments.study import PlannedRun
from fairlead.experiments.tracking import RoundFigures, figures_of
from fairlead.experiments.workers import Advanced, Began, Event, Said
from fairlead.records import Evaluation, RoundRecord

_LINES = 10
"""Lines of a piped run that evaluates nothing."""


class _Bars(Progress):
    """Bars, with the figures of each in a line of its own: beside a bar they would not fit."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        telling = [task for task in self.tasks if task.fields.get("facts")]
        for task in telling:
            name = f"{task.description}  " if len(telling) > 1 else ""
            yield Text(f"  {name}{task.fields['facts']}", style="dim", no_wrap=True, overflow="ellipsis")


class _Shown:
    """Something that is shown on standard error while it lasts."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet, made = quiet, console(stderr=True)
        self._bars = _Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=made,
            disable=quiet or not (made.is_terminal or (made.is_jupyter and find_spec("ipywidgets"))),
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        # Notebooks would keep the bars as they were a moment ago.
        self._bars.refresh()
        self._bars.stop()

    def note(self, text: str) -> None:
        """Print a line between the rounds."""
        if not self._quiet:
            self._bars.console.print(text, soft_wrap=True)

    def _line(self, text: str) -> None:
        """A line if there are no bars."""
        if self._bars.disable:
            self.note(text)


class RoundProgress(_Shown):
    """Shows how one run after another advances."""

    def begin(self, name: str, total: int, done: int = 0, *, evaluating: bool = False) -> None:
        """Announce a run of `total` rounds, of which some may be done already and some are evaluated."""
        self._name, self._total, self._evaluating = name, total, evaluating
        self._begun, self._first = monotonic(), done
        self._task = self._bars.add_task(name, total=total, completed=done, facts="")

    def show(self, name: str, record: RoundRecord, total: int, *, evaluating: bool = False) -> None:
        """Show a round of a run in this process, which begins with its first record."""
        if record.round == 0:
            self.begin(name, total, evaluating=evaluating)
        self.advance(figures_of(record))

    def advance(self, figures: RoundFigures) -> None:
        """Show a round by its figures."""
        done, total = figures.done, self._total
        facts = "" if done == total else describe_round(figures, figures.evaluation)
        self._bars.update(self._task, completed=done, facts=facts)
        if figures.evaluated if self._evaluating else done % max(total // _LINES, 1) == 0:
            facts = describe_round(figures, figures.evaluation if figures.evaluated else None)
            left = (monotonic() - self._begun) / max(done - self._first, 1) * (total - done)
            rest = f"  {duration(left)} left" if left >= 1 else ""
            self._line(f"{self._name}  round {done}/{total}  {facts}{rest}")


class StudyProgress(_Shown):
    """Shows how the runs of a study advance, several at a time.

    With the `rounds` of all runs, lines have the time left.
    """

    def __init__(self, total: int, *, quiet: bool = False, rounds: int = 0) -> None:
        super().__init__(quiet=quiet)
        self._total, self._ended = total, 0
        self._rounds_left, self._rounds_done, self._since = rounds, 0, 0.0
        self._first: dict[str, int] = {}
        self._tasks: dict[str, TaskID] = {}
        self._begun: dict[str, float] = {}
        self._figures: dict[str, RoundFigures] = {}
        self._overall = self._bars.add_task("runs", total=total, facts="")

    def watch(self, run: PlannedRun, event: Event) -> None:
        """Show an event of a run."""
        if isinstance(event, Began):
            self._since = self._since or monotonic()
            self._begun[run.folder], self._first[run.folder] = monotonic(), event.done
            self._tasks[run.folder] = self._bars.add_task(
                run.name, total=run.experiment.rounds, completed=event.done, facts=""
            )
        elif isinstance(event, Advanced):
            figures = self._figures[run.folder] = event.figures
            facts = describe_round(figures, figures.evaluation)
            self._bars.update(self._tasks[run.folder], completed=figures.done, facts=facts)
        elif isinstance(event, Said):
            self.note(f"{run.name}: {event.text}")
        else:
            self._end(run, event.outcome, before=event.before)

    def _end(self, run: PlannedRun, outcome: str, *, before: bool) -> None:
        self._ended += outcome != "interrupted"
        rounds = run.experiment.rounds - self._first.pop(run.folder, 0)
        self._rounds_left -= rounds
        self._rounds_done += 0 if before else rounds
        self._bars.update(self._overall, completed=self._ended)
        if run.folder in self._tasks:
            self._bars.remove_task(self._tasks.pop(run.folder))
        if outcome.startswith("failed"):
            self.note(f"{self._ended}/{self._total}  {run.name} {outcome}")
            return
        facts = "was done before" if before else outcome
        if not before and run.folder in self._begun:
            facts += f" in {duration(monotonic() - self._begun[run.folder])}"
        figures = self._figures.get(run.folder)
        if figures is not None and figures.evaluation is not None:
            facts += f"  {describe_evaluation(figures.evaluation)}"
        if self._rounds_left > 0 and self._rounds_done:
            left = (monotonic() - self._since) / self._rounds_done * self._rounds_left
            facts += f"  {duration(left)} left"
        self._line(f"{self._ended}/{self._total}  {run.name} {facts}")


def describe_round(figures: RoundFigures, evaluation: Evaluation | None) -> str:
    """A round in one line, with an evaluation if there is one to show."""
    facts = (
        f"arrived {figures.arrived}/{figures.asked}",
        None if figures.train_loss is None else f"train loss {figures.train_loss:.4g}",
        None if evaluation is None else describe_evaluation(evaluation),
    )
    return "  ".join(filter(None, facts))


def describe_evaluation(evaluation: Evaluation) -> str:
    """Loss and metrics in one line."""
    figures = {"loss": evaluation.loss, **evaluation.metrics}
    return "  ".join(f"{name} {value:.4g}" for name, value in figures.items())


def duration(seconds: float) -> str:
    """A time as people say it: 4.2 s, 3:07 or 1:02:45."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
