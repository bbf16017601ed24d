"""Diagnoses of federations whose right answer is known, with their numbers computed another way."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from constructed import (
    EQUAL_WORK,
    NUM_CLIENTS,
    PERFECT,
    RATES,
    STEPS,
    UNEQUAL_LINKS,
    UNEQUAL_WORK,
    WEIGHTS,
    experiment,
    logged,
    minimal_lines,
    skewed_labels,
    write_lines,
)
from torch import Tensor

import fairlead as fl
from fairlead.diagnostics import Diagnosis, Finding
from fairlead.diagnostics.unequal import label_skew
from fairlead.errors import FairleadError, FieldError
from fairlead.experiments import probe
from fairlead.testing.quadratic_theory import expected_shares

CASES: dict[str, tuple[fl.WorkModel, fl.LinkModel]] = {
    "neither": (EQUAL_WORK, PERFECT),
    "work": (UNEQUAL_WORK, PERFECT),
    "links": (EQUAL_WORK, UNEQUAL_LINKS),
    "both": (UNEQUAL_WORK, UNEQUAL_LINKS),
}


def finding(found: Diagnosis, kind: Any) -> Finding:
    answer = found.finding(kind)
    assert answer is not None
    return answer


def number(found: Diagnosis, kind: Any, name: str) -> float:
    value = finding(found, kind).evidence[name]
    assert isinstance(value, int | float)
    return value


def misplaced(surrogate: Tensor) -> float:
    return float((WEIGHTS - surrogate / surrogate.sum()).abs().sum() / 2)


@pytest.mark.parametrize(
    ("case", "preset", "decision"),
    [
        ("neither", "fedavg", "keep"),
        ("work", "fednova", "change"),
        ("links", "fedacs", "change"),
        ("both", "fedacs", "change"),
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
    said = "FedAvg is enough here" if case == "neither" else "drift of local steps does no harm here"
    assert finding(found, "consensus").statement.startswith(f"Consensus over {NUM_CLIENTS} clients: {said}: ")


@pytest.mark.parametrize(
    ("case", "preset"),
    [("neither", None), ("work", "fednova"), ("links", "fedau"), ("both", "fedacs_estimated")],
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
    """FedAvg's misplaced weight, and none by FedACS, whose step is 1/Σ(ω/((1−q)‖a‖₁)) (Weng 2025 (16))."""
    found = fl.diagnose(experiment(*CASES["both"]))
    expected = found.advice.expected
    assert expected["misplaced_now"] == number(found, "foreseen", "misplaced_weight")
    assert expected["chi_square_then"] == pytest.approx(0.0, abs=1e-12)
    assert expected["step_length_then"] == pytest.approx(float(1 / (WEIGHTS / (RATES * STEPS)).sum()))
    assert found.advice.arguments == {"lr": 0.01, "steps": 3, "cohort_size": NUM_CLIENTS}
    advised = fl.presets.fedacs(lr=0.01, steps=3, cohort_size=NUM_CLIENTS)
    after = fl.diagnose(experiment(*CASES["both"], algorithm=advised))
    assert after.advice.decision == "keep"
    assert after.advice.expected["misplaced_now"] == pytest.approx(0.0, abs=1e-12)


def test_the_factor_that_makes_up_for_shorter_rounds_is_a_number() -> None:
    """FedAvg's Σ E[p̂_i]‖a_i‖₁ over FedACS's 1/Σ(ω/((1−q)‖a‖₁)); the server adds its own learning rate of ½."""
    halved = replace(fl.presets.fedavg(lr=0.01, steps=3), server=fl.SGD(0.5))
    factor = float(
        (expected_shares(WEIGHTS, RATES) * STEPS).sum() * (WEIGHTS / (RATES * STEPS)).sum(),
    )
    for algorithm, server_lr in ((None, 1.0), (halved, 0.5)):
        advice = fl.diagnose(experiment(*CASES["both"], algorithm=algorithm)).advice
        assert advice.expected["rounds_factor"] == pytest.approx(factor)
        assert advice.remarks[0].endswith(
            f"takes ×{factor:.2g} rounds, or server.lr={factor * server_lr:.2g} as below."
        )
        assert advice.server_lr == pytest.approx(factor * server_lr, rel=0.05)
        assert advice.python is not None
        assert advice.python.endswith(f", server=fl.SGD(lr={advice.server_lr}))")


def test_a_tiny_gain_is_said_not_to_matter() -> None:
    """Client 0, with 1/15 of the weight, loses a quarter: 1/15 − (1/15)(3/4)/(1 − 1/60) = 1.6 % is misplaced."""
    found = fl.diagnose(experiment(link=fl.BernoulliLink((0.25, *(0.0,) * 11))))
    now = 1 / 15 - 1 / 15 * 0.75 / (1 - 1 / 60)
    assert finding(found, "links").statement.startswith("Links: unequal")
    assert found.advice.expected["misplaced_now"] == pytest.approx(now, abs=0.001)
    assert (found.advice.preset, found.advice.decision) == ("fedacs", "keep")
    assert "a difference of 2.0% or less hardly matters" in found.advice.reason
    assert found.advice.python is None


def test_who_counts_too_much_is_said_with_its_source(tmp_path: Path) -> None:
    subject = experiment(*CASES["both"])
    path = logged(tmp_path / "records.jsonl", subject, 40, ["effective_steps", "coefficients"])
    for found, source, said in (
        (fl.diagnose(subject), "foreseen", "By theory"),
        (fl.diagnose(path), "measured", "As measured"),
    ):
        divergence = number(found, source, "chi_square")
        assert number(found, "clients", "chi_square") == divergence
        assert finding(found, "clients").statement.startswith(
            f"{said} (chi-square {divergence:.2g}), who counts"
        )


def test_the_advice_quotes_what_was_measured_beside_theory() -> None:
    found = fl.diagnose(experiment(*CASES["both"]))
    theory, measured = (number(found, kind, "misplaced_weight") for kind in ("foreseen", "measured"))
    assert f"misplaced weight {theory:.0%} (measured {measured:.0%}) → 0%" in found.advice.reason


def test_theory_for_large_cohorts_is_trusted_less_where_they_are_small() -> None:
    crowd = fl.Experiment(
        fl.Quadratics(num_clients=400),
        fl.presets.fedavg(lr=0.01, steps=1, cohort_size=8),
        rounds=20,
        work=fl.FixedSteps((1, 9) * 200),
        link=fl.BernoulliLink(0.3),
    )
    found = fl.diagnose(crowd, quick=True)
    assert finding(found, "work").confidence == "high"
    assert "for large cohorts" in finding(found, "foreseen").statement
    assert finding(found, "foreseen").confidence == "moderate"
    assert found.advice.confidence == "moderate"


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
    assert (found.advice.preset, found.advice.decision) == ("fednova", "keep")
    assert found.finding("foreseen") is None


@pytest.mark.parametrize("case", CASES)
def test_one_round_is_too_little(case: str, tmp_path: Path) -> None:
    subject = experiment(*CASES[case])
    for found in (fl.diagnose(subject, rounds=1), fl.diagnose(logged(tmp_path / "one.jsonl", subject, 1))):
        assert (found.advice.preset, found.advice.decision) == (None, "undecided")
        assert "fewer than 5 rounds" in found.advice.reason
        assert finding(found, "measured").confidence == "none"
        assert finding(found, "measured").statement.startswith("Measured: 1 round cannot tell")


def test_two_clients_do_not_tell_whether_drift_matters(tmp_path: Path) -> None:
    two = fl.Experiment(fl.Quadratics(num_clients=2), fl.presets.fedavg(lr=0.01, steps=3), rounds=20)
    logged_two = write_lines(
        tmp_path / "two.jsonl", minimal_lines(list(two.build().train(20)), weights=False)
    )
    for found in (fl.diagnose(two), fl.diagnose(logged_two)):
        assert found.advice.preset is None
        assert finding(found, "consensus").confidence == "none"


def test_few_questions_do_not_tell_the_links(tmp_path: Path) -> None:
    """Six rounds of three clients out of twelve: some are never asked, and nobody more than thrice or so."""
    subject = experiment(algorithm=fl.presets.fedavg(lr=0.01, steps=3, cohort_size=3))
    found = fl.diagnose(logged(tmp_path / "few.jsonl", subject, 6))
    assert finding(found, "links").confidence == "none"
    assert found.advice.preset is None
    assert "not enough data on" in found.advice.reason


def test_a_client_that_never_arrives_is_beyond_any_method(tmp_path: Path) -> None:
    drop = (*(1 - RATES).tolist()[:-1], 1.0)
    subject = experiment(link=fl.BernoulliLink(drop))
    for found in (fl.diagnose(subject), fl.diagnose(logged(tmp_path / "dead.jsonl", subject, 40))):
        assert found.advice.preset is None
        assert "never heard" in found.advice.reason
        assert number(found, "unheard", "clients") == 1
        assert number(found, "unheard", "weight") == pytest.approx(3 / 30)


def test_random_work_is_not_taken_for_unequal_work() -> None:
    """Steps from 1 to 5 drawn anew in every round differ between clients by chance alone."""
    found = fl.diagnose(experiment(work=fl.RandomSteps(1, 5)))
    assert "equal" in finding(found, "work").statement
    assert found.advice.preset == "fedavg"
    assert found.finding("clients") is None


def test_a_right_method_is_kept() -> None:
    algorithm = fl.presets.fednova(lr=0.01, steps=3)
    found = fl.diagnose(experiment(*CASES["work"], algorithm=algorithm))
    assert (found.advice.preset, found.advice.decision) == ("fednova", "keep")
    assert found.advice.reason.startswith("Keep the present method, which misplaces 0% of the weight.")


def test_one_local_step_cannot_drift() -> None:
    algorithm = fl.presets.fedavg(lr=0.01, steps=1)
    found = fl.diagnose(experiment(work=fl.EqualWork(), algorithm=algorithm))
    assert finding(found, "consensus").confidence == "high"
    assert (found.advice.preset, found.advice.confidence) == ("fedavg", "high")


def test_clients_without_a_measure_of_work_get_no_advice_on_it() -> None:
    adam = fl.Algorithm(fl.LocalSolver(fl.Adam(0.01), steps=3))
    unequal = fl.diagnose(experiment(*CASES["work"], algorithm=adam))
    work = unequal.finding("work")
    assert work is not None
    assert "1 to 9 local steps a round" in work.statement
    assert "misplace" not in work.statement
    assert work.evidence["misplaced_alone"] is None
    assert unequal.advice.preset is None
    assert "use SGD without clipping" in unequal.advice.reason
    assert fl.diagnose(experiment(*CASES["links"], algorithm=adam)).advice.preset == "fedau"


def test_full_gradients_are_told_where_the_run_was_asked_for_them() -> None:
    run = experiment(*CASES["work"]).build()
    assert fl.diagnose(run, rounds=5, quick=True).finding("gradients") is None
    *_, last = run.train(6, gradients_every=4)
    found, figures = fl.diagnose(run, quick=True).finding("gradients"), last.gradients
    assert found is not None
    assert figures is not None
    assert found.statement.startswith(
        f"Full gradients after 6 rounds: the objective's has length {figures.norm:.3g}, and the clients' diversity is "
        f"{figures.diversity:.3g} (1 where all agree); under the weights of that round's step"
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


def test_records_of_single_steps_do_not_hide_that_there_were_no_data(tmp_path: Path) -> None:
    """With the data at hand nothing is missing, and nothing is said."""
    federation = experiment(fl.FixedSteps((1,) * NUM_CLIENTS)).build()
    list(federation.train(6))
    without = fl.diagnose(write_lines(tmp_path / "records.jsonl", minimal_lines(federation.records)))
    said = "Consensus: every update is a single local step, and a single step cannot drift."
    beside = " The data were not looked at, since records do not hold the clients' data and model."
    assert finding(fl.diagnose(federation), "consensus").statement == said
    assert finding(without, "consensus").statement == said + beside


def test_methods_without_weights_are_said_to_have_none() -> None:
    found = fl.diagnose(experiment(*CASES["work"], algorithm=fl.presets.fedaware(lr=0.01, steps=3)))
    assert finding(found, "foreseen").confidence == "high"
    assert "Pareto-stationary point" in finding(found, "foreseen").statement
    assert found.advice.preset == "fednova"
    assert found.advice.expected["misplaced_now"] is None


def test_a_sampler_that_prefers_clients_is_found_though_all_are_equal() -> None:
    """Clients 0 to 5, with 15 of 30 parts of the weight, are asked in two rounds of three: in 134 of 200."""
    script = fl.ScriptedSampler((tuple(range(6)), tuple(range(6)), tuple(range(6, 12))))
    algorithm = replace(fl.presets.fedavg(lr=0.01, steps=3), sampler=script)
    found = fl.diagnose(experiment(algorithm=algorithm), rounds=30)
    assert number(found, "foreseen", "misplaced_weight") == pytest.approx(134 / 200 - 1 / 2)
    assert (found.advice.preset, found.advice.decision) == ("fedavg", "change")
    assert "by the way clients are sampled" in found.advice.reason


def test_partial_participation_is_remarked_upon() -> None:
    given = skewed_labels()
    algorithm = fl.presets.fedavg(lr=0.05, steps=5, batch_size=None, cohort_size=6)
    found = fl.diagnose(fl.Federation(algorithm, given.world), rounds=12)
    assert found.advice.arguments["cohort_size"] == 6
    (remark,) = (remark for remark in found.advice.remarks if "are asked in a round" in remark)
    assert remark.startswith("6 of 24 clients")
    assert "about 4 rounds old" in remark


def test_rounds_that_asked_few_of_the_clients_do_not_measure_the_weights() -> None:
    crowd = fl.Experiment(fl.Quadratics(num_clients=100), fl.presets.fedavg(lr=0.01, cohort_size=3), rounds=9)
    found = fl.diagnose(crowd, quick=True)
    assert finding(found, "measured").confidence == "none"
    assert number(found, "measured", "weight_asked") < 0.31
    assert number(found, "unheard", "never_asked") >= 70


def test_a_search_that_would_take_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_SEARCHABLE", 10)
    found = fl.diagnose(experiment())
    assert found.evidence.consensus is None
    assert "it would take long with 12 examples" in finding(found, "consensus").statement


def test_links_that_tell_no_rates_are_counted() -> None:
    """Of twelve clients the eight fastest are taken: the four slowest never arrive."""
    subject = replace(
        experiment(link=fl.FirstArrivals(8)),
        devices=fl.FixedDevices(step_seconds=tuple(0.1 * (i + 1) for i in range(12))),
    )
    found = fl.diagnose(subject)
    assert not found.evidence.rates_told
    assert found.evidence.unreachable == (8, 9, 10, 11)
    assert found.advice.preset is None


def test_a_federation_is_not_changed_and_its_own_rounds_are_used() -> None:
    run = experiment(*CASES["both"]).build()
    fresh = fl.diagnose(run, rounds=7)
    assert (fresh.rounds, run.state.round, run.records) == (7, 0, [])
    list(run.train(9))
    params = run.params.clone()
    assert fl.diagnose(run).rounds == 9
    assert torch.equal(run.params, params)
    assert run.state.round == 9


def test_the_folder_of_a_run_is_judged_by_its_rounds(tmp_path: Path) -> None:
    subject = replace(experiment(*CASES["both"]), rounds=12, evaluate_every=0)
    fl.run_experiment(subject, tmp_path / "run")
    found = fl.diagnose(tmp_path / "run")
    assert (found.rounds, found.advice.preset) == (12, "fedacs")
    again = fl.diagnose(tmp_path / "run" / "rounds.jsonl")
    assert again.to_dict() == {**found.to_dict(), "source": again.source}


def test_against_compares_presets_by_theory() -> None:
    found = fl.diagnose(
        experiment(*CASES["both"]), against=["importance_sampling", "anonymous_fednova", "fedaware"]
    )
    shares = {method.preset: method.misplaced for method in found.against}
    assert shares["importance_sampling"] == pytest.approx(misplaced(WEIGHTS * RATES * STEPS))
    assert shares["anonymous_fednova"] == pytest.approx(misplaced(WEIGHTS * RATES))
    assert shares["fedaware"] is None


@pytest.mark.parametrize("preset", sorted(fl.presets.METHODS))
def test_every_preset_can_be_compared(preset: str) -> None:
    (method,) = fl.diagnose(experiment(*CASES["both"]), rounds=5, quick=True, against=[preset]).against
    assert method.surrogate.says
    if method.misplaced is None:
        robust = ("coordinate_median", "norm_bounded_mean", "trimmed_mean")
        assert preset in ("fedaware", "fedmgda_plus", *robust)
    else:
        assert 0 <= method.misplaced < 0.5


def test_quick_leaves_the_consensus_test_out() -> None:
    found = fl.diagnose(experiment(*CASES["neither"]), quick=True)
    assert (found.rounds, found.evidence.consensus) == (10, None)
    assert "the quick probe leaves it out" in finding(found, "consensus").statement
    assert found.advice.preset is None


def test_the_same_subject_has_the_same_diagnosis() -> None:
    subject = experiment(*CASES["both"])
    assert fl.diagnose(subject).to_dict() == fl.diagnose(subject).to_dict()


SCHEMA = {
    "source": str,
    "rounds": int,
    "clients": int,
    "findings": list,
    "advice": dict,
    "against": list,
}


@pytest.mark.parametrize("case", CASES)
def test_plain_data_have_a_fixed_shape(case: str) -> None:
    plain = json.loads(json.dumps(fl.diagnose(experiment(*CASES[case])).to_dict()))
    assert {name: type(value) for name, value in plain.items()} == SCHEMA
    for each in plain["findings"]:
        assert set(each) == {"kind", "statement", "evidence", "confidence"}
        assert each["confidence"] in ("high", "moderate", "low", "none")
    assert set(plain["advice"]) == {
        "decision",
        "preset",
        "arguments",
        "server_lr",
        "reason",
        "expected",
        "confidence",
        "alternatives",
        "remarks",
        "python",
        "toml",
        "command",
    }
    kinds = [each["kind"] for each in plain["findings"]]
    assert [kind for kind in kinds if kind not in ("clients", "unheard")] == [
        "sizes",
        "work",
        "links",
        "foreseen",
        "measured",
        "consensus",
        "diversity",
        "dynamics",
    ]


@pytest.mark.parametrize("case", CASES)
def test_the_text_holds_every_statement(case: str) -> None:
    found = fl.diagnose(experiment(*CASES[case]))
    text = str(found)
    assert all(each.statement in text for each in found.findings)
    assert found.advice.reason in text


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        ({"rounds": 0}, "diagnose needs rounds of at least 1, got 0."),
        ({"against": ["fednowa"]}, "'fednowa' is not a preset. Did you mean 'fednova'?"),
    ],
)
def test_senseless_questions_are_refused(subject: dict[str, Any], message: str) -> None:
    with pytest.raises(FieldError) as refusal:
        fl.diagnose(experiment(), **subject)
    assert str(refusal.value) == message


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FairleadError, match="is not the folder of a run"):
        fl.diagnose(tmp_path)
