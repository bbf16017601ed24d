"""Writes the tables of docs/benchmark.md from the kept results of `fairlead benchmark`.

python docs/benchmark.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = {suite: ROOT / "benchmarks" / "results" / f"benchmark-{suite}.json" for suite in ("quick", "full")}
PAGE = ROOT / "docs" / "benchmark.md"
BEGIN, END = "<!-- {}: written by docs/benchmark.py -->\n", "<!-- end -->\n"


def tables(facts: dict[str, Any]) -> str:
    """A table over all cells, one for each task, and one of costs and sensitivity."""
    return "\n".join([*overall(facts), "", *by_task(facts), *costs(facts)]) + "\n"


def overall(facts: dict[str, Any]) -> list[str]:
    total = len(facts["cells"])
    lines = [
        "| method | mean rank | best or within noise | better than FedAvg | worse | clearly worse | lost |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in facts["summary"]:
        counts = " | ".join(str(len(row[key])) for key in ("better", "worse", "behind", "lost"))
        rank = f"{row['rank']['mean']:.1f} ± {row['rank']['half_width'] or 0:.1f}"
        lines.append(f"| `{row['label']}` | {rank} | {len(row['leads'])} of {total} | {counts} |")
    return lines


def by_task(facts: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    order = [row["label"] for row in facts["summary"]]
    for task in dict.fromkeys(cell["task"] for cell in facts["cells"]):
        cells = [cell for cell in facts["cells"] if cell["task"] == task]
        lines += [
            f"| {task} | {' | '.join(cell['kind'] for cell in cells)} |",
            "|---" * (len(cells) + 1) + "|",
        ]
        for method in order:
            row = [shown(each) for cell in cells for each in cell["methods"] if each["method"] == method]
            lines.append(f"| `{method}` | {' | '.join(row)} |")
        lines.append("")
    return lines


def shown(method: dict[str, Any]) -> str:
    """The accuracy in percent with its margin: bold if it is among the best, with the word if it is beyond noise."""
    text = f"{100 * method['value']['mean']:.1f} ± {100 * (method['value']['half_width'] or 0):.1f}"
    word = f" {method['standing']}" if method["standing"] in ("better", "worse") else ""
    return f"**{text}**{word}" if method["leads"] else f"{text}{word}"


def costs(facts: dict[str, Any]) -> list[str]:
    """Means over cells: worst clients, misplaced weight, ratios of costs to FedAvg's, and sensitivity."""
    lines = [
        "| method | worst tenth of clients | misplaced weight | objective | rounds to target | local steps | bytes | "
        "cells that reach it | sensitivity | lost settings |",
        "|---" * 10 + "|",
    ]
    baseline = {cell["cell"]: cell["methods"][0] for cell in facts["cells"]}
    for label in [row["label"] for row in facts["summary"]]:
        found = [
            (cell["cell"], each)
            for cell in facts["cells"]
            for each in cell["methods"]
            if each["method"] == label
        ]
        tuned = [each for cell in facts["cells"] for each in cell["tuning"] if each["method"] == label]
        reached = [
            (cell, each)
            for cell, each in found
            if all(
                cost is not None and cost["count"] == len(each["by_seed"])
                for one in (each, baseline[cell])
                for cost in [one["to_target"]["rounds"]]
            )
        ]
        ratios = [
            mean(
                [
                    each["to_target"][axis]["mean"] / baseline[cell]["to_target"][axis]["mean"]
                    for cell, each in reached
                ]
            )
            for axis in ("rounds", "steps", "bytes")
        ]
        worst = mean([100 * each["worst_tenth"]["mean"] for _, each in found if each["worst_tenth"]])
        misplaced = mean(
            [100 * each["misplaced_weight"]["mean"] for _, each in found if each["misplaced_weight"]]
        )
        by_design = all(each["by_design"] for _, each in found)
        objective = mean([each["objective"]["mean"] for _, each in found])
        spread = mean([100 * each["spread"] for each in tuned if each["spread"] is not None])
        cells = [
            f"{worst:.1f} %",
            "by design" if by_design else "–" if misplaced is None else f"{misplaced:.1f} %",
            f"{objective:.3f}",
            *("–" if ratio is None else f"{ratio:.2f}×" for ratio in ratios),
            str(len(reached)),
            f"{spread:.1f}",
            str(sum(each["lost"] for each in tuned)),
        ]
        lines.append(f"| `{label}` | {' | '.join(cells)} |")
    return lines


def mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def write() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for suite, file in RESULTS.items():
        before, rest = text.split(BEGIN.format(suite))
        facts = json.loads(file.read_text(encoding="utf-8"))
        text = f"{before}{BEGIN.format(suite)}{tables(facts)}{END}{rest.split(END, 1)[1]}"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
