"""`fairlead demo`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.console import JsonOption, print_json, print_table, say
from fairlead.cli.progress import RoundProgress

if TYPE_CHECKING:
    from fairlead.diagnostics.consistency import ConsistencyReport
    from fairlead.records import RoundRecord
    from fairlead.results.compared_method import ComparedMethod


def demo(
    rounds: Annotated[int, typer.Option(help="Rounds of each method.", min=1, max=10**9)] = 120,
    seed: Annotated[
        int, typer.Option(help="Seed of data, model, batches and links.", min=0, max=2**63 - 1)
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Compare methods on embedded data with unequal work and lossy links (takes seconds)."""
    import torch

    from fairlead.experiments.demo import demo_algorithms, demo_experiment
    from fairlead.experiments.live_figures import figures_of
    from fairlead.results.compared_method import compare

    # The matrices are so small that a second thread costs more than it gains.
    torch.set_num_threads(1)
    experiment = demo_experiment(rounds, seed)
    algorithms = demo_algorithms(experiment)
    if not as_json:
        say(_SCENE)
    started: set[str] = set()
    with RoundProgress(quiet=as_json) as progress:

        def advance(name: str, record: RoundRecord) -> None:
            if name not in started:
                started.add(name)
                progress.begin(name, experiment.rounds, evaluating=experiment.evaluate_every > 0)
            progress.advance(name, figures_of(record))

        methods = compare(experiment, algorithms, on_round=advance)
    if as_json:
        print_json({"seed": seed, "rounds": rounds, "methods": [_facts(method) for method in methods]})
    else:
        _report(methods)


_SCENE = (
    "Twenty clients learn to read handwritten digits; each has only a few of the ten classes. Five clients do\n"
    "eight epochs a round, and all their updates arrive. Fifteen do one epoch, and six of ten of their updates\n"
    "are lost. The objective weights clients by their data size; every method gets the same batches, work and\n"
    "losses. The example is chosen to show the effect; your own clients may differ less.\n"
)


def _report(methods: list[ComparedMethod]) -> None:
    from fairlead.results.estimates import show
    from fairlead.results.sentences import headline

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
        say(method.verdict())


def _misplacement(report: ConsistencyReport) -> tuple[str, str]:
    """Share of misplaced weight and chi-square, where they were measured."""
    from fairlead.text import divergence

    if report.restored:
        return "none by design", ""
    if report.total_variation is None or report.chi_square is None:
        return "unknown", "unknown"
    return f"{report.total_variation:.1%}", divergence(report.chi_square, digits=3)


def _facts(method: ComparedMethod) -> dict[str, Any]:
    return {
        "method": method.name,
        "test_accuracy": method.evaluation.metrics["accuracy"],
        "test_loss": method.evaluation.loss,
        "objective": method.objective,
        "misplaced_weight": method.consistency.total_variation,
        "misplaced_by_chance": method.chance,
        "chi_square": method.consistency.chi_square,
        "by_design": method.consistency.restored,
        "verdict": method.verdict(),
    }
