"""`fairlead diagnose` of a run on real clients: the folder tells it, without their data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from direct_grid import DirectGrid
from flwr.app import Message
from small_federation import QUICK, SIZES, build_model, client_apps, experiment, round_of
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.errors import DataError
from fairlead.flower.server import run_on_grid

METHOD = fl.presets.fedavg(lr=0.1, epochs=2, batch_size=5)
STEPS = np.array([6, 4, 8])
"""Two epochs of 12, 7 and 20 examples in batches of 5."""
OMEGA = np.array(SIZES) / sum(SIZES)


def kept_run(folder: Path, algorithm: fl.Algorithm = METHOD, *, rounds: int = 30, lost: int = 0) -> Path:
    """The folder of a run in which client 0 fails in the first `lost` rounds."""

    def fate(client: int, message: Message) -> str:
        asked_in = round_of(message)
        return "failed" if client == 0 and asked_in is not None and asked_in < lost else "answered"

    grid = DirectGrid(client_apps(), folder / "memory", fate)
    run_on_grid(grid, experiment(algorithm, rounds), build_model, folder / "run", QUICK)
    return folder / "run"


def diagnosed(run: Path, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["diagnose", str(run), *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_folder_tells_work_links_weights_and_a_method(tmp_path: Path) -> None:
    """FedAvg gives Ω ∝ ωτ; everybody arrives, so that FedNova, which divides by τ, is all that is needed."""
    run = kept_run(tmp_path)
    told: dict[str, Any] = json.loads(diagnosed(run, "--json", "--figures", str(tmp_path / "figures")))
    findings = {finding["kind"]: finding for finding in told["findings"]}
    surrogate = OMEGA * STEPS / (OMEGA @ STEPS)
    misplaced = np.abs(OMEGA - surrogate).sum() / 2
    for kind in ("foreseen", "measured"):
        assert findings[kind]["evidence"]["misplaced_weight"] == pytest.approx(misplaced)
    ratios = surrogate / OMEGA
    assert findings["clients"]["evidence"]["gain"] == {"client 2": pytest.approx(ratios[2])}
    assert findings["clients"]["evidence"]["lose"] == {
        "client 1": pytest.approx(ratios[1]),
        "client 0": pytest.approx(ratios[0]),
    }
    mean = OMEGA @ STEPS
    spread = np.sqrt(OMEGA @ (STEPS - mean) ** 2) / mean
    assert findings["work"]["evidence"]["coefficient_of_variation"] == pytest.approx(spread)
    assert findings["links"]["evidence"]["least"] == 1.0
    assert {"diversity", "dynamics"} <= set(findings)
    assert (told["advice"]["decision"], told["advice"]["preset"]) == ("change", "scaffold")
    assert told["advice"]["python"] == "fl.presets.scaffold(lr=0.1, epochs=2, batch_size=5)"
    assert [Path(path).stem for path in told["figures"]] == ["weights", "diversity"]


def test_what_needs_the_data_is_said_in_one_sentence(tmp_path: Path) -> None:
    """Nor is there a comparison to try: the spec's clients are not here."""
    run = kept_run(tmp_path)
    text = diagnosed(run)
    (sentence,) = (line for line in text.splitlines() if "clients' data" in line)
    assert sentence == (
        "- Consensus: not tested, because the clients' data stay with them; without them, data sizes, label mixes and "
        "the angles between all clients' updates are unknown too. [not enough data]"
    )
    assert "To try it out" not in text
    assert diagnosed(run / "rounds.jsonl").splitlines()[1:] == text.splitlines()[1:]


def test_lost_updates_are_counted(tmp_path: Path) -> None:
    """Client 0 fails in 20 of 30 rounds: work and links are unequal, and the server has to learn both."""
    found = fl.diagnose(kept_run(tmp_path, lost=20))
    links = found.finding("links")
    assert links is not None
    assert links.evidence["least"] == pytest.approx(1 / 3)
    assert found.advice.preset == "scaffold"


def test_three_rounds_are_too_few_for_advice(tmp_path: Path) -> None:
    found = fl.diagnose(kept_run(tmp_path, rounds=3))
    assert (found.advice.decision, found.advice.confidence) == ("undecided", "none")
    assert "fewer than 5 rounds were measured" in found.advice.reason


def test_the_folder_says_what_the_live_federation_says(tmp_path: Path) -> None:
    grid = DirectGrid(client_apps(), tmp_path / "memory")
    run = run_on_grid(grid, experiment(METHOD, 8), build_model, tmp_path / "run", QUICK)
    live, kept = fl.diagnose(run.federation), fl.diagnose(tmp_path / "run")
    assert live.findings == kept.findings
    assert live.advice == kept.advice


def test_few_rounds_do_not_tell_the_links(tmp_path: Path) -> None:
    """Eight answers of eight are no proof of a perfect link, although the world has estimates of its own by then."""
    found = fl.diagnose(kept_run(tmp_path, rounds=8))
    links = found.finding("links")
    assert links is not None
    assert (links.confidence, found.advice.decision) == ("none", "undecided")


def test_the_weights_of_aware_are_told(tmp_path: Path) -> None:
    """As aggregator and as projection, which share their memory's rule and so λ of the first round."""
    aware = fl.presets.fedaware(lr=0.1, epochs=2, batch_size=5)
    projected = fl.presets.with_aware(METHOD)
    first = [
        fl.load_records(kept_run(tmp_path / name, algorithm, rounds=6))[0].remembered
        for name, algorithm in (("aware", aware), ("projected", projected))
    ]
    assert first[0] == first[1]
    assert sum(first[0].values()) == pytest.approx(1.0)
    for name in ("aware", "projected"):
        assert "- AWARE's weights: over 6 rounds a step uses" in diagnosed(tmp_path / name / "run")


def test_a_spec_with_data_that_ran_on_real_clients_is_judged_by_its_rounds(tmp_path: Path) -> None:
    """As of an app that `fairlead flower init` wrote: the nodes did not do what the spec's simulation would."""
    spec = replace(experiment(METHOD, 6), clients=fl.Digits(len(SIZES)))
    grid = DirectGrid(client_apps(), tmp_path / "memory")
    run_on_grid(grid, spec, build_model, tmp_path / "run", QUICK)
    found = fl.diagnose(tmp_path / "run")
    assert (found.rounds, found.finding("sizes")) == (6, None)


def test_a_spec_of_real_clients_is_still_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="RealClients have no local data"):
        fl.diagnose(kept_run(tmp_path, rounds=1) / "spec.toml")
