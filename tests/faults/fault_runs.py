"""What the fault tests run: small federations with losses, unequal work and methods that remember."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import chdir
from pathlib import Path

import fairlead as fl
from fairlead.reports import summarize_settings
from fairlead.reports.page import render_page

FULL = os.environ.get("FAIRLEAD_FAULTS") == "full"
"""Whether the full forms of the tests are wanted (`make test-faults`)."""

METHODS: dict[str, fl.Algorithm] = {
    "SCAFFOLD": fl.presets.scaffold(lr=0.1, steps=3, cohort_size=4),
    "FedAWARE": fl.presets.fedaware(lr=0.1, steps=3, cohort_size=4),
    "FedVARP": fl.presets.fedvarp(lr=0.1, steps=3, cohort_size=4),
    "FedAU": fl.presets.fedau(lr=0.1, steps=3),
    "FedACS": fl.presets.fedacs_estimated(lr=0.1, steps=3, cohort_size=4),
}
"""Methods whose clients, aggregators or samplers remember."""


def experiment(method: str, rounds: int = 20) -> fl.Experiment:
    """Lossy links and random work, evaluated often."""
    return fl.Experiment(
        fl.Digits(6, fl.DirichletPartitioner(0.3)),
        METHODS[method],
        rounds,
        work=fl.RandomSteps(1, 4),
        link=fl.BernoulliLink((0.0, 0.1, 0.2, 0.3, 0.4, 0.5)),
        evaluate_every=3,
        per_client=True,
    )


def outcome(run: Path, scratch: Path) -> dict[str, bytes]:
    """All that a run leaves and that its seed determines: model, memory, records, summary and report page.

    Measured seconds are set to zero, and so are the times, numbers and paths of starts: they are facts of a machine.
    """
    copy = scratch / run.parent.name / "run"
    copy.mkdir(parents=True)
    shutil.copy(run / "spec.toml", copy)
    lines = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    (copy / "rounds.jsonl").write_text("".join(json.dumps({**line, "seconds": 0.0}) + "\n" for line in lines))
    summary = json.loads((run / "summary.json").read_text())
    (copy / "summary.json").write_text(json.dumps({**summary, "seconds": 0.0}))
    start = json.loads((run / "provenance.json").read_text())[0]
    timeless = {
        "started": "",
        "ended": "",
        "first_round": 0,
        "next_round": 0,
        "outcome": "finished",
        "paths": [],
    }
    (copy / "provenance.json").write_text(json.dumps([{**start, **timeless}]))
    newest = max((run / "checkpoint").glob("manifest-*.json"))
    tensors = run / "checkpoint" / json.loads(newest.read_text())["tensors"]
    with chdir(copy.parent):
        page = render_page(summarize_settings([Path("run")]), "run")
    return {
        "checkpoint": newest.read_bytes() + tensors.read_bytes(),
        "records": (copy / "rounds.jsonl").read_bytes(),
        "summary": (copy / "summary.json").read_bytes(),
        "page": page.encode(),
    }
