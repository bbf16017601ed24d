"""The result of a comparison for people and for machines."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchmarks.machine import MEANING, describe_machine, peak_flops
from benchmarks.peers.comparison import REFERENCE, TOLERANCES, Outcome, Spread, ratios
from benchmarks.peers.problem import Problem
from benchmarks.peers.systems import LISTINGS


def as_data(name: str, problem: Problem, outcomes: dict[str, Outcome]) -> dict[str, Any]:
    """Everything that was measured, with what it was measured on."""
    workload, rounds = problem.workload, len(problem.cohorts)
    packages = sorted(
        {package for listing in LISTINGS.values() for package in listing.packages} - {"fairlead"}
    )
    sizes = problem.clients.sizes
    peak = peak_flops(problem.precision, problem.device)
    return {
        "workload": name,
        "title": workload.title,
        "clients": problem.clients.num_clients,
        "client sizes": [int(sizes.min()), float(sizes.median()), int(sizes.max())],
        "parameters": len(problem.start),
        "cohort": workload.cohort_size,
        "epochs": workload.epochs,
        "batch size": workload.batch_size,
        "lr": workload.lr,
        "evaluate every": workload.evaluate_every,
        "rounds": rounds,
        "steps a round": problem.num_steps / rounds,
        "steps of the busiest client": problem.longest / rounds,
        "precision": problem.precision,
        "tolerance": TOLERANCES[problem.precision],
        "machine": describe_machine(problem.device, packages),
        "peak flops": peak,
        "floor seconds": problem.flops / rounds / peak,
        "systems": {system: asdict(outcome) for system, outcome in outcomes.items()},
        "ratios": {system: spread._asdict() for system, spread in ratios(outcomes).items()},
    }


def as_text(data: dict[str, Any]) -> str:
    """A heading, a table with a line per system, and what the figures mean."""
    machine, systems = data["machine"], data["systems"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items() if number)
    lines = [
        f"## {data['title']}, {data['precision']}",
        "",
        f"{machine['processor']}, {machine['threads']} threads, {machine['device']}, load {machine['load']}; "
        f"Python {machine['python']}, {versions}.",
        f"{data['clients']} clients, {data['cohort']} a round, {data['parameters']:,} parameters, "
        f"{data['steps a round']:.0f} client-steps a round; {data['rounds']} rounds a pass.",
        "",
        "| system | ms a round | us a client-step | fairlead is faster | processor ms | deviation | after all rounds |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, outcome in systems.items():
        if outcome["problem"] is not None:
            lines.append(f"| {name} | {outcome['problem']} | | | | {_figure(outcome['deviation'])} | |")
            continue
        spread = Spread.of(outcome["seconds"])
        per_step = 1e6 * spread.median / data["steps a round"]
        busy = outcome["processor_seconds"]
        processor = _spread(Spread.of(busy), 1e3) if busy else "–"
        ratio = data["ratios"].get(name)
        faster = "–" if ratio is None else _spread(Spread(**ratio), 1.0, " x")
        lines.append(
            f"| {name} | {_spread(spread, 1e3)} | {per_step:.1f} | {faster} | {processor} | "
            f"{_figure(outcome['deviation'])} | {_figure(outcome['final_deviation'])} |"
        )
    own, floor = systems[REFERENCE]["seconds"], data["floor seconds"]
    lines += [
        "",
        f"Floor: {1e3 * floor:.2f} ms a round at the {data['peak flops'] / 1e9:,.0f} GFLOP/s of a large matrix "
        "product" + (f"; fairlead takes {Spread.of(own).median / floor:.1f} times that." if own else "."),
        f"Precision: {MEANING[data['precision']]}.",
        f"Deviations are distances from fairlead's model in units of its step; after one round at most "
        f"{data['tolerance']:g} is taken for the same update.",
    ]
    for name, outcome in systems.items():
        facts = [outcome["setup"], outcome["choice"]]
        if outcome["replaced"]:
            facts.append(f"missing and never called: {', '.join(outcome['replaced'])}")
        lines.append(f"- {name}: " + "; ".join(fact for fact in facts if fact))
    return "\n".join(lines)


def _spread(spread: Spread, scale: float, unit: str = "") -> str:
    middle, least, most = (_number(scale * value) for value in spread)
    return f"{middle}{unit} ({least}–{most})"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.0e}"
