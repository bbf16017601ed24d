"""Diagnoses of federations whose right answer is known, with their numbers computed another way."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from constructed import (
    CASES,
    NUM_CLIENTS,
    RATES,
    STEPS,
    WEIGHTS,
    expected_shares,
    experiment,
    finding,
    logged,
    misplaced,
    number,
    skewed_labels,
)

import fairlead as fl
import fairlead.diagnostics.advice as rules
import fairlead.diagnostics.evidence as facts
from fairlead.diagnostics.findings import label_skew


@pytest.mark.parametrize(
    ("case", "preset", "decision"),
    [
        ("neither", "fedavg", "keep"),
        ("work", "scaffold", "change"),
        ("links", "scaffold", "change"),
        ("both", "scaffold", "change"),
    ],
)
def test_the_advice_for_a_spec(case: str, preset: str, decision: str) -> None:
    found = fl.diagnose(experiment(*CASES[case]))
    assert (found.advice.preset, found.advice.decision) == (preset, decision)
    assert found.advice.expected["misplaced_then"] == pytest.approx(0.0, abs=1e-12)
    assert found.advice.confidence == ("moderate" if case == "neither" else "high")


@pytest.mark.parametrize("case", CASES)
def test_fedavg_is_called_enough_only_where_nothing_else_is_unequal(case: str) -> None:
    found = fl.diagnose(experiment(*CASES[case]))
    assert found.evidence.consensus is not None
    assert found.evidence.consensus.verdict == "FedAvg is enough here"
    said = "FedAvg is enough here" if case == "neither" else "drift of local steps is harmless here"
    assert finding(found, "consensus").statement.startswith(f"Consensus over {NUM_CLIENTS} clients: {said}: ")


@pytest.mark.parametrize(
    ("case", "preset"),
    [("neither", None), ("work", "scaffold"), ("links", "scaffold"), ("both", "scaffold")],
)
def test_the_advice_for_records(case: str, preset: str | None, tmp_path: Path) -> None:
    """Of a server that must learn arrival rates; whether drift matters, records cannot tell."""
    path = logged(
        tmp_path / "records.jsonl", experiment(*CASES[case]), 80, ["effective_steps", "coefficients"]
    )
    found = fl.diagnose(path)
    assert found.advice.preset == preset
    assert (found.rounds, found.clients) == (80, NUM_CLIENTS)
    if preset is None:
        assert "whether drift matters is not known" in found.advice.reason
        assert found.advice.confidence == "none"


def test_records_and_spec_tell_the_same_story(tmp_path: Path) -> None:
    """Counted rates are off by about √(q(1 − q)/80) ≈ 0.05, and so are the weights that they foresee."""
    subject = experiment(*CASES["both"])
    spec = fl.diagnose(subject)
    records = fl.diagnose(logged(tmp_path / "records.jsonl", subject, 80))
    for kind in ("work", "links"):
        told, counted = (number(each, kind, "misplaced_alone") for each in (spec, records))
        assert counted == pytest.approx(told, abs=0.03)
    assert number(records, "foreseen", "misplaced_weight") == pytest.approx(
        number(spec, "foreseen", "misplaced_weight"), abs=0.03
    )


def test_the_numbers_of_work_and_links() -> None:
    found = fl.diagnose(experiment(*CASES["both"]))
    for kind, values in (("work", STEPS), ("links", RATES)):
        omega, x = WEIGHTS.numpy(), values.numpy()
        mean = omega @ x
        cv = np.sqrt(omega @ (x - mean) ** 2) / mean
        assert number(found, kind, "coefficient_of_variation") == pytest.approx(cv)
        assert number(found, kind, "misplaced_alone") == pytest.approx(misplaced(WEIGHTS * values))
        assert number(found, kind, "clients") == NUM_CLIENTS
        assert number(found, kind, "rounds") == 200
        assert f"coefficient of variation {cv:.2f}" in finding(found, kind).statement


def test_the_numbers_of_the_objective() -> None:
    """FedAvg over the received has Ω ∝ E[ω_i[i arrives]/Σ ω of arrivals]·‖a_i‖₁, by enumeration of all arrivals."""
    subject = experiment(*CASES["both"])
    found = fl.diagnose(subject)
    surrogate = expected_shares(WEIGHTS, RATES) * STEPS
    surrogate = surrogate / surrogate.sum()
    expected = float(((WEIGHTS - surrogate).square() / surrogate).sum())
    assert number(found, "foreseen", "misplaced_weight") == pytest.approx(misplaced(surrogate), rel=1e-6)
    assert number(found, "foreseen", "chi_square") == pytest.approx(expected, rel=1e-6)
    run = subject.build()
    list(run.train(20))
    measured = run.consistency()
    assert number(found, "measured", "misplaced_weight") == pytest.approx(measured.total_variation)
    assert number(found, "measured", "rounds") == 20
    ratio = surrogate / WEIGHTS
    gain, lose = (finding(found, "clients").evidence[name] for name in ("gain", "lose"))
    assert isinstance(gain, dict)
    assert isinstance(lose, dict)
    first, last = int(ratio.argmax()), int(ratio.argmin())
    assert gain[f"client {first}"] == pytest.approx(float(ratio[first]), rel=1e-6)
    assert lose[f"client {last}"] == pytest.approx(float(ratio[last]), rel=1e-6)
    assert len(gain) == len(lose) == 3


def test_the_expected_effect_is_that_of_the_advised_method_under_the_same_conditions() -> None:
    """FedAvg's misplaced weight, and none by control variates; FedACS, which misplaces none either, is kept."""
    found = fl.diagnose(experiment(*CASES["both"]))
    expected = found.advice.expected
    assert expected["misplaced_now"] == number(found, "foreseen", "misplaced_weight")
    assert expected["chi_square_then"] == pytest.approx(0.0, abs=1e-12)
    assert found.advice.arguments == {"lr": 0.01, "steps": 3}
    advised = fl.presets.fedacs(lr=0.01, steps=3, cohort_size=NUM_CLIENTS)
    after = fl.diagnose(experiment(*CASES["both"], algorithm=advised))
    assert after.advice.decision == "keep"
    assert after.advice.expected["misplaced_now"] == pytest.approx(0.0, abs=1e-12)


def test_the_factor_that_makes_up_for_shorter_rounds_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """FedAvg's Σ E[p̂_i]‖a_i‖₁ over FedACS's 1/Σ(ω/((1−q)‖a‖₁)); the server adds its own learning rate of ½.

    FedACS is advised where the bias is large and clients return too rarely for memory.
    """
    monkeypatch.setattr(facts.Evidence, "visits", 0.5)
    monkeypatch.setattr(rules, "_LARGE", 0.1)
    halved = replace(fl.presets.fedavg(lr=0.01, steps=3), server=fl.SGD(0.5))
    factor = float(
        (expected_shares(WEIGHTS, RATES) * STEPS).sum() * (WEIGHTS / (RATES * STEPS)).sum(),
    )
    for algorithm, server_lr in ((None, 1.0), (halved, 0.5)):
        advice = fl.diagnose(experiment(*CASES["both"], algorithm=algorithm)).advice
        assert advice.expected["rounds_factor"] == pytest.approx(factor)
        assert advice.remarks[1].endswith(
            f"takes {factor:.2g}× the rounds, or server.lr={factor * server_lr:.2g} as below."
        )
        assert advice.server_lr == pytest.approx(factor * server_lr, rel=0.05)
        assert advice.python is not None
        assert advice.python.endswith(f", server=fl.SGD(lr={advice.server_lr}))")


def test_who_counts_too_much_is_said_with_its_source(tmp_path: Path) -> None:
    subject = experiment(*CASES["both"])
    path = logged(tmp_path / "records.jsonl", subject, 40, ["effective_steps", "coefficients"])
    for found, source, said in (
        (fl.diagnose(subject), "foreseen", "Predicted"),
        (fl.diagnose(path), "measured", "Measured"),
    ):
        divergence = number(found, source, "chi_square")
        assert number(found, "clients", "chi_square") == divergence
        assert finding(found, "clients").statement.startswith(
            f"{said} (chi-square {divergence:.2g}): over-weighted"
        )


def test_a_factor_near_one_is_never_shown_as_one() -> None:
    """24 clients take 25 steps and one takes a single step, so that each of the 24 counts 25/24.04 of its weight."""
    work = fl.FixedSteps((1, *[25] * 24))
    subject = fl.Experiment(
        fl.Quadratics(num_clients=25), fl.presets.fedavg(lr=0.01, steps=1), rounds=20, work=work
    )
    said = finding(fl.diagnose(subject), "clients").statement
    assert "over-weighted: client 24 (1.04×), client 23 (1.04×)" in said
    assert "(1×)" not in said


def test_the_advice_quotes_what_was_measured_beside_theory() -> None:
    found = fl.diagnose(experiment(*CASES["both"]))
    theory, measured = (number(found, kind, "misplaced_weight") for kind in ("foreseen", "measured"))
    assert f"misplaced weight {theory:.0%} (measured {measured:.0%}) → 0%" in found.advice.reason


def test_updates_are_compared_whatever_the_links_lose() -> None:
    subject = experiment(link=fl.BernoulliLink(0.9))
    found = fl.diagnose(subject, quick=True).evidence.cosines
    assert found is not None
    assert found.clients == tuple(range(NUM_CLIENTS))


def test_skewed_labels_alone_call_for_control_variates() -> None:
    """6 clients hold label 0 and 18 label 1: mixes differ from (¼, ¾) by ¾ and ¼, on average ¼·¾ + ¾·¼."""
    found = fl.diagnose(skewed_labels(), rounds=10)
    assert number(found, "labels", "label_skew") == pytest.approx(0.375)
    assert (finding(found, "work").confidence, finding(found, "links").confidence) == ("high", "high")
    assert "drift matters" in finding(found, "consensus").statement
    assert number(found, "consensus", "low") > 0.5
    assert (found.advice.preset, found.advice.decision) == ("scaffold", "change")
    rise = found.advice.expected["drift_price_now"]
    assert rise is not None
    assert rise > 0
    assert f"raise the objective by {rise:.2g}" in found.advice.reason


def test_control_variates_are_kept_where_drift_matters() -> None:
    given = skewed_labels()
    algorithm = fl.presets.scaffold(lr=0.05, steps=5, batch_size=None)
    found = fl.diagnose(fl.Federation(algorithm, given.world), rounds=10)
    assert (found.advice.preset, found.advice.decision) == ("scaffold", "keep")


def test_label_skew_by_hand() -> None:
    """Mixes (1, 0) and (½, ½) of equal weight: common (¾, ¼), both differ by ¼; chance 2√(3/16)/√(2π·8)."""
    counts, weights = torch.tensor([[8, 0], [4, 4]]), torch.tensor([0.5, 0.5], dtype=torch.float64)
    skew, chance = label_skew(counts, weights)
    assert skew == pytest.approx(0.25)
    assert chance == pytest.approx(2 * math.sqrt(3 / 16 / (2 * math.pi * 8)))


def test_records_of_a_right_method_are_told_to_keep_it(tmp_path: Path) -> None:
    """Their coefficients undo the work, whatever the method is called."""
    subject = experiment(*CASES["work"], algorithm=fl.presets.fednova(lr=0.01, steps=3))
    path = logged(tmp_path / "records.jsonl", subject, 20, ["effective_steps", "coefficients"])
    found = fl.diagnose(path)
    assert found.advice.decision == "keep"
    assert found.finding("foreseen") is None


def test_a_right_method_is_kept() -> None:
    algorithm = fl.presets.fednova(lr=0.01, steps=3)
    found = fl.diagnose(experiment(*CASES["work"], algorithm=algorithm))
    assert found.advice.decision == "keep"
    assert found.advice.reason == (
        "Keep the present method, which misplaces 0% of the weight. The method for such clients, scaffold, would "
        "misplace no less."
    )
    assert found.advice.remarks == ()


def test_full_gradients_are_told_where_the_run_was_asked_for_them() -> None:
    run = experiment(*CASES["work"]).build()
    assert fl.diagnose(run, rounds=5, quick=True).finding("gradients") is None
    *_, last = run.train(6, gradients_every=4)
    found, figures = fl.diagnose(run, quick=True).finding("gradients"), last.gradients
    assert found is not None
    assert figures is not None
    assert found.statement.startswith(
        f"Full gradients after 6 rounds: the objective's gradient has length {figures.norm:.3g}, and the clients' "
        f"diversity is {figures.diversity:.3g} (1 if all agree); under the weights of that round's step"
    )
    assert found.evidence["surrogate_gradient_diversity"] == figures.surrogate_diversity


def test_the_consensus_dynamics_are_those_of_the_updates() -> None:
    """ρ = ‖Σ ω_i Δ_i‖² with η = 0.01 and K = 3: one round recomputed from the quadratics, A = I and b a row each.

    The model starts at 0, so that Δ_i = (1 − 0.99³)b_i, and their distance from the plain mean follows.
    """
    source = fl.Quadratics(linear=((3.0, 0.0), (0.0, 4.0)), start=0.0)
    subject = fl.Experiment(source, fl.presets.fedavg(lr=0.01, steps=3), rounds=1, dtype="float64")
    found = fl.diagnose(subject, rounds=1, quick=True)
    delta = (1 - 0.99**3) * np.array([[3.0, 0.0], [0.0, 4.0]])
    mean = delta.mean(0)
    rho = float(mean @ mean)
    apart = np.linalg.norm(delta - mean, axis=1).mean() / np.linalg.norm(delta, axis=1).mean()
    assert number(found, "dynamics", "rho") == pytest.approx(rho)
    assert number(found, "dynamics", "psi") == pytest.approx(rho / (0.01**2 * 3))
    assert number(found, "dynamics", "distance_from_mean") == pytest.approx(apart)


def test_a_sampler_that_prefers_clients_is_found_though_all_are_equal() -> None:
    """Clients 0 to 5, with 15 of 30 parts of the weight, are asked in two rounds of three: in 134 of 200."""
    script = fl.ScriptedSampler((tuple(range(6)), tuple(range(6)), tuple(range(6, 12))))
    algorithm = replace(fl.presets.fedavg(lr=0.01, steps=3), sampler=script)
    found = fl.diagnose(experiment(algorithm=algorithm), rounds=30)
    assert number(found, "foreseen", "misplaced_weight") == pytest.approx(134 / 200 - 1 / 2)
    assert (found.advice.preset, found.advice.decision) == ("fedavg", "change")
    assert "The sampling or averaging of clients" in found.advice.reason


def test_partial_participation_is_remarked_upon() -> None:
    given = skewed_labels()
    algorithm = fl.presets.fedavg(lr=0.05, steps=5, batch_size=None, cohort_size=6)
    found = fl.diagnose(fl.Federation(algorithm, given.world), rounds=12)
    assert found.advice.arguments["cohort_size"] == 6
    (remark,) = (remark for remark in found.advice.remarks if "are asked in a round" in remark)
    assert remark.startswith("6 of 24 clients")
    assert "about 4 rounds old" in remark
    assert any("fedaware_ridge gives more weight" in remark for remark in found.advice.remarks)
