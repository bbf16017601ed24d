"""Draws docs/speed.svg from benchmarks/results: how many times faster than other simulators a round is.

python docs/speed.py        (needs matplotlib)
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib.pyplot as plt

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
PEERS = {"pfl": "pfl 0.6", "fedlab": "FedLab 1.3", "flower": "Flower"}
PRECISION = {"float32": "", "tf32": ", TF32", "bfloat16": ", bf16"}


def ratio(result: dict[str, Any], peer: str) -> float | None:
    """The peer's time over ours, pass by pass."""
    found = result["systems"].get(peer, {}).get("seconds")
    ours = result["systems"]["fairlead"]["seconds"]
    return median(their / own for their, own in zip(found, ours, strict=True)) if found else None


def main() -> None:
    """Write the figure beside this file."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("peers-*.json"))]
    devices = {result["machine"]["device"]: None for result in results}
    figure, panels = plt.subplots(1, len(devices), figsize=(10.0, 3.2), squeeze=False)
    for axes, device in zip(panels[0], devices, strict=True):
        own = [result for result in results if result["machine"]["device"] == device]
        labels = [result["title"].split(",")[0] + PRECISION[result["precision"]] for result in own]
        present = [peer for peer in PEERS if any(ratio(result, peer) for result in own)]
        for place, peer in enumerate(present):
            ratios = [ratio(result, peer) or 0.0 for result in own]
            height = 0.8 / len(present)
            bars = axes.barh(
                [row + (place - (len(present) - 1) / 2) * height for row in range(len(own))],
                ratios,
                height=height,
                label=PEERS[peer],
            )
            axes.bar_label(bars, [f" {value:.1f}" if value else "" for value in ratios], fontsize=8)
        axes.set_yticks(range(len(own)), labels, fontsize=8)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set_xlim(1, 400)
        axes.set_title(device if device != "cpu" else "two CPU cores", fontsize=9)
        axes.set_xlabel("times faster per round", fontsize=8)
        axes.legend(fontsize=8, frameon=False, loc="lower right")
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(Path(__file__).with_name("speed.svg"))


if __name__ == "__main__":
    main()
