"""AWARE as an extension: projection of any method's step (Zeng 2025, Proposition 3.1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from aware_reference import (
    ALL_ARRIVED,
    COHORTS,
    SAMPLER,
    SOLVER,
    Array,
    Memory,
    aware_direction,
    federation,
    mean_update,
    path,
    shortest,
    transcribed,
)
from torch import Tensor

from fairlead.aggregators.remembered import FedAWARE
from fairlead.aggregators.weighted import FedNova, WeightedMean
from fairlead.algorithm import Algorithm
from fairlead.errors import ClashError, FieldError
from fairlead.memory.update_memory import UpdateMemory
from fairlead.optimizers.base import Optimizer
from fairlead.optimizers.descent import SGD, Yogi
from fairlead.plain_data import from_plain, to_plain
from fairlead.presets import fedavg, fedaware, feddyn, with_aware
from fairlead.records import Population, Transformed
from fairlead.samplers.adaptive import FedACS
from fairlead.testing.rounds import make_conditions, make_updates
from fairlead.transforms.projections import AwareProjection, Clip


def algorithm(projection: AwareProjection, server: Optimizer | None = None) -> Algorithm:
    base = Algorithm(SOLVER, SAMPLER, WeightedMean(), server=server or SGD(1.0))
    return replace(base, transforms=(projection,))


def projected(step: Array, direction: Array) -> Array:
    result: Array = (step @ direction) / (direction @ direction) * direction
    return result


@pytest.mark.parametrize("engine", ["loop", "batched"])
@pytest.mark.parametrize("rows", ["raw", "unit"])
def test_momentum_keeps_its_own_state(
    engine: Literal["loop", "batched"], rows: Literal["raw", "unit"]
) -> None:
    """FedAvgM × AWARE: v ← 0.9v + Σp̂g unprojected, x ← x − 0.5·proj(v on d)."""
    velocity = np.zeros(6)

    def step(memory: Memory) -> Array:
        nonlocal velocity
        velocity = 0.9 * velocity + mean_update(memory)
        return projected(0.5 * velocity, aware_direction(memory, rows))

    part = algorithm(AwareProjection(0.4, rows=rows), SGD(0.5, momentum=0.9))
    models = path(federation(part, engine))
    np.testing.assert_allclose(models, transcribed(0.4, step), rtol=0, atol=1e-10)


def test_second_moments_keep_their_own_state() -> None:
    """FedYogi × AWARE: both moments see the unprojected mean; only the step that they make is projected.

    m ← β₁m + (1−β₁)g, v ← v − (1−β₂)g² sign(v − g²), step = η m/(√v + ε).
    """
    first, second = np.zeros(6), np.full(6, 0.2)

    def step(memory: Memory) -> Array:
        nonlocal first, second
        mean = mean_update(memory)
        first = 0.9 * first + 0.1 * mean
        second = second - 0.01 * mean**2 * np.sign(second - mean**2)
        return projected(0.3 * first / (np.sqrt(second) + 0.1), aware_direction(memory))

    part = algorithm(AwareProjection(0.4), Yogi(0.3, beta1=0.9, beta2=0.99, eps=0.1, initial_v=0.2))
    np.testing.assert_allclose(path(federation(part)), transcribed(0.4, step), rtol=0, atol=1e-10)


def test_waits_for_everyone_where_asked() -> None:
    """`start` = "all_seen", as in released code: the base method's own step until everyone arrived."""

    def step(memory: Memory) -> Array:
        mean = mean_update(memory)
        return projected(mean, aware_direction(memory)) if len(memory.rows) == 4 else mean

    run = federation(algorithm(AwareProjection(0.4, start="all_seen")))
    np.testing.assert_allclose(path(run), transcribed(0.4, step), rtol=0, atol=1e-10)
    told = ["aware_zero" in record.facts for record in run.records]
    assert told == [False] * ALL_ARRIVED + [True] * (len(COHORTS) - ALL_ARRIVED)
    early = run.records[:ALL_ARRIVED]
    assert [record.coefficients for record in early] == [(0.5, 0.5), (2 / 3, 1 / 3), (), (1 / 3, 2 / 3)]
    assert not any(record.remembered for record in early)


def test_the_record_holds_lambda_in_the_place_of_coefficients() -> None:
    """The step goes along Σλ_i m_i, of which FedAvg's own coefficients say nothing; an empty round has none."""
    expected: list[dict[int, float]] = []

    def step(memory: Memory) -> Array:
        clients = sorted(memory.rows)
        shares = shortest(np.array([memory.rows[i] for i in clients]))
        expected.append({i: share for i, share in zip(clients, shares, strict=True) if share > 0})
        return projected(mean_update(memory), aware_direction(memory))

    transcribed(0.4, step)
    run = federation(algorithm(AwareProjection(0.4)))
    path(run)
    nonempty = [record for record in run.records if record.arrived]
    assert all(record.coefficients is None for record in nonempty)
    for record, shares in zip(nonempty, expected, strict=True):
        assert record.remembered == pytest.approx(shares, abs=1e-9)
    assert not any(record.remembered for record in run.records if not record.arrived)


def test_zero_start_stands_still() -> None:
    run = federation(algorithm(AwareProjection(0.4, start="zero")))
    models = path(run)
    assert np.all(models[:ALL_ARRIVED] == 2.0)
    assert np.all(models[ALL_ARRIVED] != 2.0)
    assert [record.facts.get("aware_zero") for record in run.records] == [1, 1, None, 1, 0, 0, 0, 0, 0]


def transformed(
    projection: AwareProjection,
    step: list[float],
    rows: list[list[float]],
    dtype: torch.dtype = torch.float64,
) -> Transformed:
    """A step after one round in which the given updates arrive."""
    weights = torch.full((len(rows),), 1 / len(rows), dtype=torch.float64)
    layout = {"a": 1, "b": len(step) - 1}
    state = projection.init(Population(weights, layout, torch.device("cpu"), dtype))
    everyone = list(range(len(rows)))
    updates = make_updates(everyone, everyone, weights, torch.tensor(rows, dtype=dtype))
    return projection.transform(torch.tensor(step, dtype=dtype), updates, state, make_conditions(weights))


def test_by_hand() -> None:
    """Rows (2, 0) and (0, 1): d = 0.2(2, 0) + 0.8(0, 1) ∝ (1, 2). ⟨(5, 0), (1, 2)⟩/5 = 1, so (5, 0) becomes (1, 2).

    Its cosine is 1/√5. A step across d, (2, −1), becomes zero; one against it, (−1, −2), stays.
    """
    rows = [[2.0, 0.0], [0.0, 1.0]]
    result = transformed(AwareProjection(), [5.0, 0.0], rows)
    np.testing.assert_allclose(result.direction, [1.0, 2.0], atol=1e-14)
    assert result.facts["aware_cosine"] == pytest.approx(1 / np.sqrt(5))
    assert result.facts["aware_zero"] == 0
    assert result.facts["aware_squared_norm"] == pytest.approx(0.8)
    assert result.remembered is not None
    assert result.remembered.clients.tolist() == [0, 1]
    np.testing.assert_allclose(result.remembered.weights, [0.2, 0.8], atol=1e-14)
    across = transformed(AwareProjection(), [2.0, -1.0], rows).direction
    np.testing.assert_allclose(across, [0.0, 0.0], atol=1e-14)
    against = transformed(AwareProjection(), [-1.0, -2.0], rows)
    np.testing.assert_allclose(against.direction, [-1.0, -2.0], atol=1e-14)
    assert against.facts["aware_cosine"] == pytest.approx(-1)


@pytest.mark.parametrize("factor", [-1.0, 1e-6, -3e5])
def test_sign_and_length_of_the_direction_do_not_matter(factor: float) -> None:
    rows = (np.random.default_rng(3).normal(size=(4, 7)) + 0.2).tolist()
    scaled = (factor * np.array(rows)).tolist()
    step = [1.0, -2.0, 0.5, 0.0, 3.0, 1.0, -1.0]
    plain = transformed(AwareProjection(), step, rows).direction
    np.testing.assert_allclose(transformed(AwareProjection(), step, scaled).direction, plain, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_direction_means_no_step(dtype: torch.dtype) -> None:
    """Zero in the hull: decided as the projection on {0}, with the fact on the record."""
    for rows in ([[0.1, 0.7], [-0.3, -2.1]], [[0.0, 0.0], [1.0, 1.0]]):
        result = transformed(AwareProjection(), [5.0, 1.0], rows, dtype)
        assert result.direction.tolist() == [0.0, 0.0]
        assert result.facts["aware_zero"] == 1
        assert "aware_cosine" not in result.facts


def test_parallel_step_is_unchanged() -> None:
    """One client and no average: d is its update, and FedAvg's step is already along it."""
    step, row = [0.3, -0.1, 0.2], [3.0, -1.0, 2.0]
    np.testing.assert_allclose(transformed(AwareProjection(1.0), step, [row]).direction, step, atol=1e-15)


def test_other_layers_keep_their_step() -> None:
    """Only b of (a | b) is remembered: b is projected as above, a stays 9."""
    projection = AwareProjection(memory=UpdateMemory(layers=("b",)))
    result = transformed(projection, [9.0, 5.0, 0.0], [[1.0, 2.0, 0.0], [-4.0, 0.0, 1.0]])
    np.testing.assert_allclose(result.direction, [9.0, 1.0, 2.0], atol=1e-14)


def test_resumed_run_is_the_uninterrupted_one(tmp_path_factory: pytest.TempPathFactory) -> None:
    part = algorithm(AwareProjection(0.3), SGD(0.5, momentum=0.9))
    whole = federation(part)
    path(whole)
    folder = tmp_path_factory.mktemp("checkpoint")
    first = federation(part)
    path(first, 5)
    first.save(folder)
    second = federation(part)
    second.resume(folder)
    path(second, len(COHORTS) - 5)
    assert torch.equal(second.params, whole.params)
    assert second.records == whole.records[5:]


def test_preset_wraps_any_method() -> None:
    base = fedavg(lr=0.1)
    clipped = replace(base, transforms=(Clip(1.0),))
    assert with_aware(clipped, alpha=0.9).transforms == (Clip(1.0), AwareProjection(0.9))
    assert with_aware(base, retention=0.9).transforms == (AwareProjection(retention=0.9),)
    assert with_aware(base) == replace(base, transforms=(AwareProjection(0.5),))


def test_preset_takes_the_arguments_of_fedaware() -> None:
    """The projection is on the direction that the preset `fedaware` with the same arguments would take."""
    base = fedavg(lr=0.1, cohort_size=3)
    memory = UpdateMemory(dtype="bfloat16")
    released = with_aware(base, start="all_seen", rows="unit", first_visit="scaled", memory=memory)
    aggregator = fedaware(
        lr=0.1, start="all_seen", rows="unit", first_visit="scaled", memory=memory
    ).aggregator
    assert released.sampler == base.sampler
    (projection,) = released.transforms
    assert isinstance(projection, AwareProjection)
    assert isinstance(aggregator, FedAWARE)
    assert vars(projection) == vars(aggregator)
    full = with_aware(base, start="full_first_round")
    assert full.sampler == fedaware(lr=0.1, cohort_size=3, start="full_first_round").sampler
    assert full.transforms == (AwareProjection(0.5),)


def test_everything_together_runs() -> None:
    """Momentum SGD, FedNova, the projection and Yogi: parts that do not know each other."""
    part = Algorithm(
        replace(SOLVER, optimizer=SGD(0.1, momentum=0.9)),
        SAMPLER,
        FedNova(),
        (AwareProjection(0.5),),
        Yogi(0.05),
    )
    models = path(federation(part))
    assert np.isfinite(models).all()
    with_draws = replace(part, sampler=FedACS(2), aggregator=WeightedMean(over="asked"))
    assert with_draws.transforms == (AwareProjection(0.5),)


def test_feddyn_is_refused() -> None:
    """Zeng 2025 excludes it, since its new model is no step along an estimate of the gradient."""
    with pytest.raises(ClashError, match="AwareProjection changes the step of a method that descends"):
        with_aware(feddyn(alpha=0.1, lr=0.1))
    assert replace(feddyn(alpha=0.1, lr=0.1), transforms=(Clip(1.0),)).transforms == (Clip(1.0),)


def test_fields_are_checked_and_survive_a_spec() -> None:
    with pytest.raises(FieldError, match="AwareProjection takes alpha, the share of the new update"):
        AwareProjection(alpha=0.2, retention=0.8)
    with pytest.raises(FieldError, match=r"AwareProjection.start must be one of"):
        AwareProjection(start="late")  # type: ignore[arg-type]
    part = AwareProjection(retention=0.8, start="all_seen", memory=UpdateMemory(layers=("fc.*",)))
    assert from_plain(AwareProjection, to_plain(part, AwareProjection)) == part


def test_does_not_touch_what_it_is_given() -> None:
    step = torch.tensor([5.0, 0.0])
    weights = torch.tensor([0.5, 0.5], dtype=torch.float64)
    projection = AwareProjection()
    state = projection.init(Population(weights, {"x": 2}, torch.device("cpu"), torch.float32))
    delta = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    kept: tuple[Tensor, Tensor] = (step.clone(), delta.clone())
    projection.transform(step, make_updates([0, 1], [0, 1], weights, delta), state, make_conditions(weights))
    assert torch.equal(step, kept[0])
    assert torch.equal(delta, kept[1])
