"""Checks the advice of `diagnose` on varied federations: is the advised method at least as good as FedAvg?

    python -m benchmarks.advice [--only NUMBER ...] [--table]

Federations are drawn from the axes below, each by its number. The rules were designed on even numbers; odd ones were
not looked at before the rules were final. Both methods run on three seeds with the same clients, batches, work and
links, and the difference is judged as in `fairlead compare`. Where FedAvg is called enough, the method that the rules
would advise otherwise runs too, to see whether it would have been better. Results are kept in
`benchmarks/results/advice.json`, and the table in `docs/choosing.md` is written from them; `--table` does only that.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

import fairlead as fl
from fairlead.diagnostics.advice import rule_for, situation_of
from fairlead.experiments.method_list import on_client_side
from fairlead.results.estimates import paired_difference

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "advice.json"
PAGE = ROOT / "docs" / "choosing.md"
BEGIN, END = "<!-- written by benchmarks/advice.py -->\n", "<!-- end -->\n"
NUMBERS, SEEDS = (*range(27), *range(28, 48), 49), range(3)
"""Number 27 draws the federation of 9 again."""


class Size(NamedTuple):
    """Numbers of clients, and of those asked in a round."""

    clients: int
    asked: int | None

    def groups(self, first: float, others: float) -> tuple[float, ...]:
        """A figure of the first quarter of the clients, and one of the others."""
        return (first,) * (self.clients // 4) + (others,) * (self.clients - self.clients // 4)

    def epochs(self, first: int, others: int) -> fl.FixedEpochs:
        return fl.FixedEpochs(tuple(int(number) for number in self.groups(first, others)))


class Data(NamedTuple):
    clients: fl.ClientSource
    task: fl.Task | None
    rates: tuple[float, float]
    """Learning rates of the clients: a careful and a bold one."""


SIZES = {
    "20 of 20": Size(20, None),
    "10 of 20": Size(20, 10),
    "5 of 20": Size(20, 5),
    "10 of 60": Size(60, 10),
    "4 of 60": Size(60, 4),
}
SKEWS: Mapping[str, fl.Partitioner] = {
    "no skew": fl.IidPartitioner(),
    "Dirichlet 1": fl.DirichletPartitioner(1.0, min_partition_size=5),
    "Dirichlet 0.3": fl.DirichletPartitioner(0.3, min_partition_size=5),
    "Dirichlet 0.1": fl.DirichletPartitioner(0.1, min_partition_size=5),
    "classes by group": fl.PathologicalPartitioner(2, "in-order"),
}
SOURCES = ("Digits, logistic", "Digits, logistic", "Digits, MLP", "Digits, MLP", "Synthetic", "regression")
WORK = ("equal", "random 1–8", "8 or 1", "1 or 5")
LINKS = ("perfect", "30 % lost", "0–60 % lost", "0 or 60 % lost", "80 or 10 % lost")
SOLVERS = ("SGD", "SGD", "SGD", "momentum", "Adam")
ROUNDS = (40, 100)


def _data(source: str, size: Size, draw: random.Random) -> tuple[str, Data]:
    """Data and model: the source with the way in which its clients differ."""
    if source == "Synthetic":
        level = draw.choice((0.0, 0.5, 1.0))
        logistic = fl.SyntheticLogistic(level, level, num_clients=size.clients, max_examples=200)
        return f"Synthetic({level:g}, {level:g})", Data(logistic, None, (0.01, 0.05))
    if source == "regression":
        shift = draw.choice((0.5, 2.0))
        regression = fl.SyntheticRegression(size.clients, num_examples=40, shift=shift)
        return f"regression, shift {shift:g}", Data(regression, None, (0.05, 0.3))
    skew = draw.choice(list(SKEWS))
    model = fl.LogisticRegression() if source.endswith("logistic") else fl.MLP(hidden=(32,))
    rates = (0.03, 0.2) if source.endswith("logistic") else (0.03, 0.1)
    return f"{source}, {skew}", Data(fl.Digits(size.clients, SKEWS[skew]), fl.Task(model), rates)


def _work(name: str, size: Size) -> fl.WorkModel:
    made = {"random 1–8": fl.RandomEpochs(1, 8), "8 or 1": size.epochs(8, 1), "1 or 5": size.epochs(1, 5)}
    return made.get(name, fl.EqualWork())


def _link(name: str, size: Size) -> fl.LinkModel:
    made: dict[str, fl.LinkModel] = {
        "30 % lost": fl.BernoulliLink(0.3),
        "0–60 % lost": fl.UniformBernoulliLink(0.0, 0.6),
        "0 or 60 % lost": fl.BernoulliLink(size.groups(0.0, 0.6)),
        "80 or 10 % lost": fl.BernoulliLink(size.groups(0.8, 0.1)),
    }
    return made.get(name, fl.PerfectLink())


def _optimizer(name: str, lr: float) -> fl.Optimizer:
    if name == "Adam":
        return fl.Adam(0.1 * lr)
    return fl.SGD(0.2 * lr, momentum=0.9) if name == "momentum" else fl.SGD(lr)


class Federation(NamedTuple):
    """A drawn federation, with FedAvg."""

    name: str
    experiment: fl.Experiment


def drawn(number: int) -> Federation:
    """The federation of a number."""
    draw = random.Random(number)
    asked, work, link = draw.choice(list(SIZES)), draw.choice(WORK), draw.choice(LINKS)
    size, solver, bold, rounds = SIZES[asked], draw.choice(SOLVERS), draw.choice((0, 1)), draw.choice(ROUNDS)
    source, data = _data(draw.choice(SOURCES), size, draw)
    optimizer = _optimizer(solver, data.rates[bold])
    algorithm = fl.presets.fedavg(lr=1.0, batch_size=16, cohort_size=size.asked)
    experiment = fl.Experiment(
        data.clients,
        replace(algorithm, solver=replace(algorithm.solver, optimizer=optimizer)),
        rounds=rounds,
        task=data.task,
        work=_work(work, size),
        link=_link(link, size),
        evaluate_every=max(rounds // 20, 1),
    )
    name = f"{source}; work {work}; links {link}; {asked} asked; {solver} {optimizer.lr:g}; {rounds} rounds"
    return Federation(name, experiment)


def judged(number: int) -> dict[str, Any]:
    """The advice for a federation, and the advised method against FedAvg."""
    name, experiment = drawn(number)
    diagnosis = fl.diagnose(experiment)
    advice, rule = diagnosis.advice, rule_for(situation_of(diagnosis.evidence))
    advised = "fedavg" if advice.decision == "keep" else advice.preset
    found: dict[str, Any] = {
        "number": number,
        "name": name,
        "held_out": number % 2 == 1,
        "advised": advised,
        "when": dict(rule.when),
    }
    linear = experiment.algorithm.solver.is_linear
    tried, values = advised, advice.values
    if tried in (None, "fedavg"):
        tried, values = ("scaffold", ()) if linear else ("feddyn", ("alpha=0.01",))
    assert tried is not None
    method, _ = on_client_side(tried, experiment.algorithm, values)
    figures: dict[str, list[float]] = {"fedavg": [], tried: []}
    for seed in SEEDS:
        for compared in fl.compare(
            replace(experiment, seed=seed), {"fedavg": experiment.algorithm, tried: method}
        ):
            assert compared.value is not None
            figures[compared.name].append(compared.value)
            measure = compared.summary.measure
    difference = paired_difference(*(dict(enumerate(figures[name])) for name in (tried, "fedavg")))
    assert difference is not None
    better = difference.mean > 0 if measure.higher else difference.mean < 0
    verdict = ("better" if better else "worse") if difference.excludes_zero else "unclear"
    return found | {
        "tried": tried,
        "metric": measure.name,
        "fedavg": sum(figures["fedavg"]) / len(SEEDS),
        "difference": difference.mean,
        "half_width": difference.half_width,
        "gain": better or difference.mean == 0,
        "verdict": verdict,
    }


class Score(NamedTuple):
    """How often the advice held in some federations."""

    federations: int
    advised: int
    """With a method other than FedAvg advised."""
    better: int
    worse: int
    gained: int
    """Federations in which the mean of the advised method is at least FedAvg's, noise or not."""
    enough: int
    """FedAvg called enough."""
    missed: int
    """FedAvg called enough, though the other method was better beyond noise."""

    @property
    def kept(self) -> float:
        """Share of federations with advice in which the advised method is not worse beyond noise."""
        return 1 - self.worse / max(self.advised + self.enough, 1)


def score(rows: list[dict[str, Any]]) -> Score:
    """The advice in some federations, counted."""
    changed = [row for row in rows if row["advised"] not in (None, "fedavg")]
    enough = [row for row in rows if row["advised"] == "fedavg"]
    verdicts = [row["verdict"] for row in changed]
    return Score(
        len(rows),
        len(changed),
        verdicts.count("better"),
        verdicts.count("worse"),
        sum(row["gain"] for row in changed),
        len(enough),
        sum(row["verdict"] == "better" for row in enough),
    )


def table(rows: list[dict[str, Any]]) -> str:
    """The section of the page."""
    lines = [
        "| federations | advised a change | better | no clear difference | worse | mean at least FedAvg's | "
        "FedAvg enough | missed | at least as good |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    groups = {
        "for the design": [row for row in rows if not row["held_out"]],
        "held out": [row for row in rows if row["held_out"]],
        "all": rows,
    }
    for title, some in groups.items():
        found = score(some)
        lines.append(
            f"| {found.federations} {title} | {found.advised} | {found.better} | "
            f"{found.advised - found.better - found.worse} | {found.worse} | {found.gained} | {found.enough} | "
            f"{found.missed} | {100 * found.kept:.0f} % |"
        )
    lines += ["", "| federation | advised | FedAvg | difference | |", "|---|---|---|---|---|"]
    for row in rows:
        scale, unit = (100, " %") if row["metric"] == "accuracy" else (1, "")
        figure, gap, width = (scale * (row[key] or 0) for key in ("fedavg", "difference", "half_width"))
        digits = 1 if unit else 4
        advised = {None: "no advice", "fedavg": f"`fedavg` ({row['tried']} tried)"}.get(
            row["advised"], f"`{row['tried']}`"
        )
        held = " (held out)" if row["held_out"] else ""
        lines.append(
            f"| {row['name']}{held} | {advised} | {figure:.{digits}f}{unit} | {gap:+.{digits}f} ± {width:.{digits}f} | "
            f"{row['verdict'].replace('unclear', '')} |"
        )
    return "\n".join(lines) + "\n"


def write_page() -> None:
    """Put the table of the kept results into the page."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(f"{before}{BEGIN}{table(rows)}{END}{after}", encoding="utf-8")


def main() -> None:
    """Judge federations, keep the results and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", type=int, nargs="+", default=None, help="judge these numbers and keep the others"
    )
    parser.add_argument("--table", action="store_true", help="write the table from the kept results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if not arguments.table:
        kept = json.loads(RESULTS.read_text(encoding="utf-8")) if arguments.only and RESULTS.exists() else []
        rows = {row["number"]: row for row in kept}
        for number in arguments.only or NUMBERS:
            rows[number] = judged(number)
            print(
                *(rows[number][key] for key in ("number", "name", "advised", "difference", "verdict")),
                flush=True,
            )
            ordered = [rows[each] for each in sorted(rows)]
            RESULTS.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_page()


if __name__ == "__main__":
    main()
