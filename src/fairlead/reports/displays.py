"""What notebooks show of federations and comparisons: their tables and curves, as the report has them."""

from pathlib import Path

from fairlead.charts.chart import Chart
from fairlead.charts.display import Display
from fairlead.federation import Federation
from fairlead.reports.charts import learning_curves
from fairlead.reports.tables import report_tables
from fairlead.results.comparison import Summary, summarize
from fairlead.results.curves import ROUNDS, TRAIN_LOSS
from fairlead.results.runs import ReportedRun
from fairlead.results.sentences import headline, standings, tunings
from fairlead.text import counted

_COLUMNS = 5
"""Seeds, the measure, the objective, and both differences."""


def summary_display(summary: Summary) -> Display:
    """The first table of the report, its headline, and the curves of the measure and of the training loss."""
    tables = report_tables(summary)
    table = {"method": [method.label for method in summary.methods]}
    # Other figures of the same metric follow in the report.
    for column in tables[0].columns[:_COLUMNS] if tables else ():
        table[column.title] = [f"{cell.text} {cell.detail}".strip() for cell in column.cells]
    lines = (headline(summary), *standings(summary), *tunings(summary), *summary.study.notes)
    return Display("Comparison", lines, table, _charts(summary))


def federation_display(federation: Federation) -> Display:
    """The rounds of a federation so far, with its latest evaluation."""
    population, records = federation.world.population, federation.records
    title = (
        f"Federation of {counted(population.num_clients, 'client')} after {counted(len(records), 'round')}"
    )
    parts = federation.algorithm
    lines = [f"{type(parts.sampler).__name__}, {type(parts.aggregator).__name__}, seed {federation.seed}"]
    if not records:
        return Display(title, tuple(lines))
    run = ReportedRun(
        "run", Path("run"), seed=federation.seed, state="finished", records=tuple(records),
        weights=population.weights, names=population.names, detailed=True,
    )  # fmt: skip
    (summary,) = summarize([run])
    evaluations = [(record.round + 1, record.evaluation) for record in records if record.evaluation][-5:]
    names = list(dict.fromkeys(name for _, each in evaluations for name in each.metrics))
    table = {
        "round": [str(done) for done, _ in evaluations],
        "loss": [f"{each.loss:.4g}" for _, each in evaluations],
        **{name: [f"{each.metrics[name]:.4g}" for _, each in evaluations] for name in names},
    }
    lines.append(str(federation.consistency()))
    return Display(title, tuple(lines), table if evaluations else {}, _charts(summary))


def _charts(summary: Summary) -> tuple[Chart, ...]:
    """Curves over rounds: of the measure, and of the training loss."""
    drawn = learning_curves(summary)
    wanted = dict.fromkeys((summary.measure.over_rounds.key, TRAIN_LOSS.key))
    found = {quantity.key: charts[ROUNDS.key] for quantity, charts in drawn.items() if ROUNDS.key in charts}
    return tuple(found[key] for key in wanted if key in found)
