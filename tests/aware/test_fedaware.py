"""FedAWARE and FedAWARE-NA: against their transcription, by hand, in special cases and in the limit."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from aware_reference import (
    ALL_ARRIVED,
    COHORTS,
    SAMPLER,
    SOLVER,
    WEIGHTS,
    Memory,
    aware_direction,
    federation,
    mean_update,
    path,
    problem,
    transcribed,
)
from torch import Tensor

from fairlead.aggregators.remembered import MIFA, FedAWARE, RememberedMean
from fairlead.aggregators.weighted import FedMGDA
from fairlead.algorithm import Algorithm
from fairlead.client_table import table_in
from fairlead.clients.quadratics import QuadraticProblem
from fairlead.errors import FieldError
from fairlead.federation import Federation
from fairlead.memory.update_memory import UpdateMemory
from fairlead.numerics.minimum_norm import shortest_in_hull
from fairlead.plain_data import from_plain, to_plain
from fairlead.presets import fedavg, fedaware, fedaware_na
from fairlead.records import ClientUpdates, Population
from fairlead.samplers.fixed import FullFirstRound, UniformWithoutReplacement
from fairlead.testing.rounds import make_conditions, make_updates
from fairlead.worlds.simulated import SimulatedWorld

Engine = Literal["loop", "batched"]


def algorithm(aggregator: FedAWARE | RememberedMean | MIFA | FedMGDA) -> Algorithm:
    return Algorithm(SOLVER, SAMPLER, aggregator)


@pytest.mark.parametrize("engine", ["loop", "batched"])
@pytest.mark.parametrize("alpha", [0.3, 0.5, 1.0])
@pytest.mark.parametrize("rows", ["raw", "unit"])
@pytest.mark.parametrize("first_visit", ["update", "scaled"])
def test_matches_the_transcription(
    alpha: float,
    rows: Literal["raw", "unit"],
    first_visit: Literal["update", "scaled"],
    engine: Engine,
) -> None:
    """Nine rounds with repeated draws, uneven steps, losses and an empty round, on both engines."""
    part = FedAWARE(alpha, rows=rows, first_visit=first_visit)
    models = path(federation(algorithm(part), engine))
    expected = transcribed(alpha, lambda memory: aware_direction(memory, rows), first_visit)
    np.testing.assert_allclose(models, expected, rtol=0, atol=1e-10)
    assert np.array_equal(models[2], models[1]), "nothing arrived in round 2"


def test_remembers_by_000s_convention_too() -> None:
    """Zeng 2023 writes m ← αm + (1 − α)g: its α = 0.8 is Zeng 2025's 0.2, and the two names cannot be mixed up."""
    part = FedAWARE(retention=0.8)
    assert part.alpha == pytest.approx(0.2)
    expected = transcribed(0.2, aware_direction)
    np.testing.assert_allclose(path(federation(algorithm(part))), expected, rtol=0, atol=1e-10)
    assert FedAWARE() == FedAWARE(alpha=0.5) == FedAWARE(retention=0.5)
    with pytest.raises(FieldError, match=r"not both; got alpha=0.2 and retention=0.8"):
        FedAWARE(alpha=0.2, retention=0.8)


def test_fedavg_until_everyone_arrived() -> None:
    """`start` = "all_seen": the mean of arrivals up to the round in which the last client first arrives."""

    def step(memory: Memory) -> np.ndarray:
        return aware_direction(memory) if len(memory.rows) == 4 else mean_update(memory)

    run = federation(algorithm(FedAWARE(0.4, start="all_seen")))
    np.testing.assert_allclose(path(run), transcribed(0.4, step), rtol=0, atol=1e-10)
    early, late = run.records[:ALL_ARRIVED], run.records[ALL_ARRIVED:]
    assert [record.coefficients for record in early] == [(0.5, 0.5), (2 / 3, 1 / 3), None, (1 / 3, 2 / 3)]
    assert not any(record.remembered for record in early)
    assert all(record.coefficients is None and record.remembered for record in late)


def test_zero_start_waits_for_everyone() -> None:
    """`start` = "zero": a client that never arrived is a zero vector in the hull, so d = 0 until all have."""

    def step(memory: Memory) -> np.ndarray:
        return aware_direction(memory) if len(memory.rows) == 4 else np.zeros(6)

    run = federation(algorithm(FedAWARE(0.4, start="zero")))
    models = path(run)
    np.testing.assert_allclose(models, transcribed(0.4, step), rtol=0, atol=1e-10)
    assert np.all(models[:ALL_ARRIVED] == 2.0)
    assert np.all(models[ALL_ARRIVED] != 2.0)
    assert [record.facts["aware_seen"] for record in run.records if record.facts] == [2, 3, 3, 4, 4, 4, 4, 4]


def test_full_first_round_asks_everyone_once() -> None:
    part = fedaware(lr=0.1, steps=1, cohort_size=2, start="full_first_round")
    assert part.sampler == FullFirstRound(UniformWithoutReplacement(2))
    run = federation(part)
    path(run)
    assert [len(record.asked) for record in run.records] == [4] + [2] * 8


@pytest.mark.parametrize("engine", ["loop", "batched"])
def test_static_weights_match_the_transcription(engine: Engine) -> None:
    """FedAWARE-NA: Σ ω_i m_i over all N clients, those that never arrived at zero."""

    def step(memory: Memory) -> np.ndarray:
        total: np.ndarray = np.sum([WEIGHTS[i] * row for i, row in memory.rows.items()], axis=0)
        return total

    models = path(federation(algorithm(RememberedMean(0.3)), engine))
    np.testing.assert_allclose(models, transcribed(0.3, step), rtol=0, atol=1e-10)


def test_static_weights_and_no_average_are_mifa() -> None:
    models = path(federation(algorithm(RememberedMean(1.0))))
    np.testing.assert_allclose(models, path(federation(algorithm(MIFA()))), rtol=0, atol=1e-12)


def aggregated(
    part: FedAWARE | RememberedMean, *rounds: dict[int, list[float]], num_clients: int = 3
) -> tuple[Tensor, dict[int, float], dict[str, float]]:
    """Direction, weights by client and facts after rounds in which the given updates arrive."""
    weights = torch.full((num_clients,), 1 / num_clients, dtype=torch.float64)
    dim = len(next(iter(rounds[0].values())))
    state = part.init(Population(weights, {"x": dim}, torch.device("cpu"), torch.float64))
    for number, given in enumerate(rounds):
        updates = updates_of(given, weights)
        result = part.aggregate(updates, state, make_conditions(weights, number))
        state = result.state
    assert result.remembered is not None
    by_client = dict(zip(result.remembered.clients.tolist(), result.remembered.weights.tolist(), strict=True))
    return result.direction, by_client, dict(result.facts)


def updates_of(given: dict[int, list[float]], weights: Tensor) -> ClientUpdates:
    clients = sorted(given)
    delta = torch.tensor([given[i] for i in clients], dtype=torch.float64)
    return make_updates(clients, clients, weights[clients], delta)


def test_two_rounds_by_hand() -> None:
    """α = ½; round 1: Δ_0 = (2, 0), Δ_1 = (0, 1); round 2: Δ_0 = (0, 0), Δ_2 = (3, 3).

    Round 1: the hull of (2, 0) and (0, 1) is nearest to 0 at (0.4, 0.8), λ = (0.2, 0.8).
    Round 2: m_0 = ½(2, 0) = (1, 0), m_1 = (0, 1), m_2 = (3, 3): d = (½, ½), which has ⟨m_2, d⟩ = 3 ≥ ½, so
    λ = (½, ½, 0), ‖d‖² = ½.
    """
    first = {0: [2.0, 0.0], 1: [0.0, 1.0]}
    direction, weights, facts = aggregated(FedAWARE(0.5), first)
    np.testing.assert_allclose(direction, [0.4, 0.8], atol=1e-15)
    assert weights == pytest.approx({0: 0.2, 1: 0.8}, abs=1e-15)
    direction, weights, facts = aggregated(FedAWARE(0.5), first, {0: [0.0, 0.0], 2: [3.0, 3.0]})
    np.testing.assert_allclose(direction, [0.5, 0.5], atol=1e-15)
    assert weights == pytest.approx({0: 0.5, 1: 0.5}, abs=1e-15)
    assert facts["aware_squared_norm"] == pytest.approx(0.5, abs=1e-15)
    assert (facts["aware_support"], facts["aware_seen"]) == (2, 3)
    assert facts["aware_gap"] < 1e-15


def test_unit_rows_by_hand() -> None:
    """Rows (4, 0) and (0, 1) become unit vectors: d = (½, ½), which is ⅛(4, 0) + ½(0, 1)."""
    direction, weights, _ = aggregated(FedAWARE(rows="unit"), {0: [4.0, 0.0], 2: [0.0, 1.0]})
    np.testing.assert_allclose(direction, [0.5, 0.5], atol=1e-15)
    assert weights == pytest.approx({0: 0.125, 2: 0.5}, abs=1e-15)


def test_one_client_follows_its_own_memory() -> None:
    direction, weights, _ = aggregated(FedAWARE(0.25), {1: [4.0, -8.0]}, {1: [0.0, 4.0]})
    np.testing.assert_allclose(direction, [3.0, -5.0], atol=1e-15)
    assert weights == {1: 1.0}


def test_opposite_clients_cancel_and_stay() -> None:
    """Zero lies between Δ and −Δ: Zeng 2025's claim that ‖d‖ > 0 fails, and the server rests."""
    direction, weights, facts = aggregated(FedAWARE(), {0: [1.0, 2.0], 1: [-2.0, -4.0]})
    np.testing.assert_allclose(direction, [0.0, 0.0], atol=1e-15)
    assert weights == pytest.approx({0: 2 / 3, 1: 1 / 3}, abs=1e-12)
    assert facts["aware_squared_norm"] < 1e-15


def test_everyone_fresh_with_unit_rows_is_fedmgda() -> None:
    """α = 1 forgets, unit rows normalize: with all present that is FedMGDA+ with ε = 1."""
    rows = np.random.default_rng(0).normal(size=(5, 8)) + 0.4
    given = {i: row.tolist() for i, row in enumerate(rows)}
    weights = torch.full((5,), 0.2, dtype=torch.float64)
    direction, _, _ = aggregated(FedAWARE(1.0, rows="unit"), given, num_clients=5)
    mgda = FedMGDA(epsilon=1.0).aggregate(updates_of(given, weights), {}, make_conditions(weights))
    np.testing.assert_allclose(direction, mgda.direction, atol=1e-13)


def gradients_at(run: Federation, quadratics: QuadraticProblem) -> Tensor:
    return quadratics.gradients(run.params)


@pytest.mark.parametrize(
    "method",
    [
        fedaware(lr=0.3, steps=1, alpha=1.0),
        fedaware(lr=0.3, steps=1, alpha=0.5, cohort_size=2, server_lr=0.5),
    ],
    ids=["everyone", "two a round"],
)
def test_limit_is_pareto_stationary_and_not_the_optimum(method: Algorithm) -> None:
    """With one local step Δ_i = −η∇F_i: the server rests where zero is in the hull of the gradients."""
    quadratics = problem()
    world = SimulatedWorld(
        quadratics.task(2.0), quadratics.data(), weights=quadratics.weights, dtype=torch.float64
    )
    run = Federation(method, world)
    for _ in run.train(400):
        pass
    gradients = gradients_at(run, quadratics)
    point = shortest_in_hull(gradients @ gradients.T)
    assert point.squared_norm < 1e-10 * float(gradients.square().sum())
    assert float((run.params - quadratics.optimum).norm()) > 0.1


@pytest.mark.parametrize("dtype", ["model", "bfloat16"])
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_kept_inner_products_are_those_of_the_rows(
    dtype: Literal["model", "bfloat16"], precision: torch.dtype
) -> None:
    """After 60 rounds, each changing a few rows, to 1e-13 of ‖m_i‖‖m_j‖: they are float64 sums."""
    generator = torch.Generator().manual_seed(0)
    part, clients = FedAWARE(0.3, memory=UpdateMemory(dtype=dtype)), 12
    weights = torch.full((clients,), 1 / clients, dtype=torch.float64)
    state = part.init(Population(weights, {"x": 3000}, torch.device("cpu"), precision))
    for number in range(60):
        arrived = torch.randperm(clients, generator=generator)[:3].sort().values.tolist()
        delta = torch.randn((3, 3000), generator=generator).to(precision)
        result = part.aggregate(
            make_updates(arrived, arrived, weights[arrived], delta), state, make_conditions(weights, number)
        )
        state = result.state
    averages, products = table_in(state, "averages"), table_in(state, "products")
    assert averages.clients.tolist() == products.clients.tolist()
    assert averages.rows.dtype == (torch.bfloat16 if dtype == "bfloat16" else precision)
    rows = averages.rows.double()
    lengths = rows.norm(dim=1)
    error = (products.rows[:, products.clients] - rows @ rows.T) / (lengths[:, None] * lengths)
    assert float(error.abs().max()) < 1e-13
    assert result.facts["aware_gap"] < 1e-12


def test_bfloat16_rows_stay_close() -> None:
    """Rows rounded to 8 bits move the path by a few thousandths of its length, not more."""
    exact = path(federation(algorithm(FedAWARE(0.5))))
    rounded = path(federation(algorithm(FedAWARE(0.5, memory=UpdateMemory(dtype="bfloat16")))))
    assert 0 < float(np.abs(exact - rounded).max()) < 0.01 * float(np.abs(exact - 2.0).max())


def test_rows_in_a_file_change_nothing(tmp_path: Path) -> None:
    """Up to the last bit, which depends on how rows lie in memory; the file goes when the run does."""
    run = federation(algorithm(FedAWARE(0.5, memory=UpdateMemory(folder=str(tmp_path / "rows")))))
    models = path(run)
    (file,) = (tmp_path / "rows").iterdir()
    assert file.stat().st_size == 4 * 6 * 8
    np.testing.assert_allclose(models, path(federation(algorithm(FedAWARE(0.5)))), rtol=0, atol=1e-14)
    del run
    gc.collect()
    assert not file.exists()


def test_runs_that_share_a_folder_do_not_share_rows(tmp_path: Path) -> None:
    part = FedAWARE(0.5, memory=UpdateMemory(folder=str(tmp_path)))
    first, second = federation(algorithm(part)), federation(algorithm(part))
    for _ in range(len(COHORTS)):
        models = [path(run, 1) for run in (first, second)]
        np.testing.assert_array_equal(models[0], models[1])
    assert len(list(tmp_path.iterdir())) == 2


def test_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    part = FedAWARE(memory=UpdateMemory(folder=str(tmp_path / "file")))
    with pytest.raises(FieldError, match="folder must be a folder that can be written to"):
        part.init(population({"x": 2}))


def population(layout: dict[str, int], num_clients: int = 4) -> Population:
    weights = torch.full((num_clients,), 1 / num_clients, dtype=torch.float64)
    return Population(weights, layout, torch.device("cpu"), torch.float64)


def test_named_layers_are_remembered_and_others_averaged() -> None:
    """Of (a | b | c) only a and c are remembered: there d is that of FedAWARE, b is the mean of arrivals.

    Round 1: Δ_0 = (2 | 5 | 0), Δ_1 = (0 | 7 | 1): hull of (2, 0) and (0, 1) gives (0.4, 0.8), b = 6.
    Round 2: Δ_1 = (0 | 9 | 1): same memory, b = 9.
    """
    people = population({"a.weight": 1, "b.weight": 1, "c.weight": 1})
    part = FedAWARE(0.5, memory=UpdateMemory(layers=("a.*", "c.*")))
    state = part.init(people)
    assert table_in(state, "averages").dim == 2
    for given, expected in (
        ({0: [2.0, 5.0, 0.0], 1: [0.0, 7.0, 1.0]}, [0.4, 6.0, 0.8]),
        ({1: [0.0, 9.0, 1.0]}, [0.4, 9.0, 0.8]),
    ):
        result = part.aggregate(updates_of(given, people.weights), state, make_conditions(people.weights))
        np.testing.assert_allclose(result.direction, expected, atol=1e-15)
        state = result.state


def test_clusters_share_a_memory() -> None:
    """Clients {0, 1} and {2, 3}; uniform ω.

    Round 1: Δ_0 = (1, 0), Δ_1 = (3, 0), Δ_2 = (0, 1): rows (2, 0) and (0, 1), d = (0.4, 0.8), λ = (0.2, 0.8),
    which its members share equally. Round 2, α = ½: Δ_3 = (0, 3): row (0, 2), d = (1, 1), λ = (½, ½).
    """
    people = population({"x": 2})
    part = FedAWARE(0.5, memory=UpdateMemory(clusters=(7, 7, 2, 2)))
    state = part.init(people)
    cases: tuple[tuple[dict[int, list[float]], list[float], dict[int, float]], ...] = (
        (
            {0: [1.0, 0.0], 1: [3.0, 0.0], 2: [0.0, 1.0]},
            [0.4, 0.8],
            {0: 0.1, 1: 0.1, 2: 0.4, 3: 0.4},
        ),
        ({3: [0.0, 3.0]}, [1.0, 1.0], dict.fromkeys(range(4), 0.25)),
    )
    for given, direction, shares in cases:
        result = part.aggregate(updates_of(given, people.weights), state, make_conditions(people.weights))
        state = result.state
        np.testing.assert_allclose(result.direction, direction, atol=1e-15)
        assert result.remembered is not None
        found = dict(zip(result.remembered.clients.tolist(), result.remembered.weights.tolist(), strict=True))
        assert found == pytest.approx(shares, abs=1e-15)


def test_clusters_of_one_and_all_layers_change_nothing() -> None:
    plain = path(federation(algorithm(FedAWARE(0.5))))
    for memory in (UpdateMemory(clusters=(3, 1, 2, 0)), UpdateMemory(layers=("*",))):
        models = path(federation(algorithm(FedAWARE(0.5, memory=memory))))
        np.testing.assert_allclose(models, plain, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "part",
    [
        FedAWARE(0.3),
        FedAWARE(0.3, start="all_seen", rows="unit"),
        FedAWARE(memory=UpdateMemory(dtype="bfloat16")),
        FedAWARE(memory=UpdateMemory(clusters=(0, 1, 0, 1), folder="rows")),
        RememberedMean(0.3),
    ],
    ids=str,
)
def test_resumed_run_is_the_uninterrupted_one(
    part: FedAWARE | RememberedMean, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every bit of model and record, before and after everyone arrived."""
    monkeypatch.chdir(tmp_path_factory.mktemp("run"))
    whole = federation(algorithm(part))
    path(whole)
    for stop in (3, 6):
        folder = tmp_path_factory.mktemp("checkpoint")
        first = federation(algorithm(part))
        path(first, stop)
        first.save(folder)
        second = federation(algorithm(part))
        second.resume(folder)
        path(second, len(COHORTS) - stop)
        assert torch.equal(second.params, whole.params)
        assert second.records == whole.records[stop:]


def test_specs_survive() -> None:
    memory = UpdateMemory(layers=("a.*",), clusters=(0, 1, 1), dtype="bfloat16", folder="rows")
    for part in (FedAWARE(), FedAWARE(retention=0.9, start="zero"), FedAWARE(memory=memory)):
        assert from_plain(FedAWARE, to_plain(part, FedAWARE)) == part
    assert from_plain(FedAWARE, {"retention": 0.9}) == FedAWARE(retention=0.9)
    assert from_plain(RememberedMean, {"alpha": 0.9}) == RememberedMean(alpha=0.9)


def test_presets_are_the_parts_they_name() -> None:
    memory = UpdateMemory(dtype="bfloat16")
    part = fedaware(lr=0.1, alpha=0.9, start="zero", rows="unit", memory=memory, server_lr=0.5)
    assert part.aggregator == FedAWARE(0.9, start="zero", rows="unit", memory=memory)
    assert fedaware_na(lr=0.1, retention=0.9).aggregator == RememberedMean(retention=0.9)
    assert replace(fedaware(lr=0.1), aggregator=fedavg(lr=0.1).aggregator) == fedavg(lr=0.1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"alpha": 0.0}, r"FedAWARE.alpha must be a finite number above 0 and at most 1, got 0.0."),
        (
            {"retention": 1.0},
            r"FedAWARE.retention must be a finite number of at least 0 and below 1, got 1.0.",
        ),
        ({"start": "mean"}, r"FedAWARE.start must be one of 'seen', 'all_seen', 'zero', got 'mean'."),
        ({"rows": "short"}, r"FedAWARE.rows must be one of 'raw', 'unit', 'equal', got 'short'."),
        ({"first_visit": "no"}, r"FedAWARE.first_visit must be one of 'update', 'scaled', got 'no'."),
        (
            {"rows": "unit", "memory": UpdateMemory(layers=("a",))},
            r"FedAWARE.rows must be 'raw' where UpdateMemory.layers restricts the memory",
        ),
    ],
)
def test_wrong_fields_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        FedAWARE(**fields)  # type: ignore[arg-type]


def test_memory_that_does_not_fit_the_federation_is_refused() -> None:
    people = population({"conv.weight": 3, "fc.weight": 2})
    with pytest.raises(FieldError, match=r"layers must match names of parameters, got 'fc.wight'. Did you"):
        FedAWARE(memory=UpdateMemory(layers=("fc.wight",))).init(people)
    with pytest.raises(FieldError, match="clusters must have one id for each of 4 clients, got 2"):
        FedAWARE(memory=UpdateMemory(clusters=(0, 1))).init(people)
    with pytest.raises(FieldError, match=r"UpdateMemory.dtype must be one of 'model', 'bfloat16'"):
        UpdateMemory(dtype="half")  # type: ignore[arg-type]
    with pytest.raises(FieldError, match=r"UpdateMemory.clusters must be one whole number per client"):
        UpdateMemory(clusters=(0.5, 1))  # type: ignore[arg-type]


def test_empty_round_leaves_everything() -> None:
    part, people = FedAWARE(), population({"x": 2})
    state = part.init(people)
    nobody = make_updates([0, 1], [], people.weights[:2], torch.zeros((0, 2), dtype=torch.float64))
    result = part.aggregate(nobody, state, make_conditions(people.weights))
    assert result.state is state
    np.testing.assert_array_equal(result.direction, [0.0, 0.0])
