"""Which methods are content with sums: what parts claim, what they do, and what is refused when asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from part_examples import examples
from torch import Tensor

import fairlead as fl
from fairlead.client_table import PartState
from fairlead.component import parts_of
from fairlead.errors import ClashError, FieldError
from fairlead.presets import METHODS
from fairlead.privacy import part_needing_single_updates
from fairlead.records import Poll
from fairlead.testing import example_of_preset
from fairlead.testing.rounds import contents, draws, make_conditions, make_population, make_updates

N, D = 7, 5
SUMS = {
    "apfl",
    "ditto",
    "fedavg_finetuned",
    "fedbn",
    "fedbuff",
    "fedper",
    "fedrep",
    "per_fedavg",
    "pfedme",
    "anonymous_fednova",
    "communication_aware_fedavg",
    "communication_aware_fednova",
    "fedacs",
    "fedacs_estimated",
    "fedadagrad",
    "fedadam",
    "fedams",
    "fedau",
    "fedavg",
    "fedavgm",
    "fedawe",
    "fedcm",
    "feddyn",
    "fednova",
    "fednova_vr",
    "fedprox",
    "fedyogi",
    "full_participation",
    "importance_sampling",
    "scaffold",
    "uniform_sampling",
    "vrlsgd",
}
"""Presets that need sums alone; all others need what single clients sent."""

WEIGHTS = torch.arange(1.0, N + 1, dtype=torch.float64) / 28
STEPS = torch.tensor([1, 4, 2, 3, 1, 2, 5])
ARRIVAL = torch.linspace(0.4, 1.0, N, dtype=torch.float64)


def indistinguishable_rows() -> tuple[Tensor, Tensor]:
    """Two sets of updates with the same sums Σ c_i Δ_i for every c that depends on weights, work and rates.

    The difference of the two is orthogonal to ω, ω/τ, ω/(1 − q) and ω/(τ(1 − q)), which leaves three dimensions.
    """
    known = torch.stack([WEIGHTS, WEIGHTS / STEPS, WEIGHTS / ARRIVAL, WEIGHTS / (STEPS * ARRIVAL)])
    _, _, basis = torch.linalg.svd(known)
    rows = draws("rows", N, D)
    return rows, rows + basis[len(known) :].T @ draws("hidden", N - len(known), D)


def updates_of(rows: Tensor) -> fl.ClientUpdates:
    everyone = list(range(N))
    return make_updates(everyone, everyone, WEIGHTS, rows, STEPS, messages={"control_change": rows})


CONDITIONS = make_conditions(WEIGHTS, arrival=ARRIVAL, work=STEPS.to(torch.float64))


def alike(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        one[name].shape == other[name].shape and torch.allclose(one[name], other[name], atol=1e-10)
        for name in one
    )


def library_parts(role: type[fl.Aggregator] | type[fl.Sampler] | type[fl.Correction]) -> list[type]:
    return [cls for cls in parts_of(role).values() if cls.__module__.startswith("fairlead.")]


@pytest.mark.parametrize("cls", library_parts(fl.Aggregator), ids=lambda cls: cls.__name__)
def test_aggregators_see_what_they_say_they_see(cls: type[fl.Aggregator]) -> None:
    """Other updates with the same sums change nothing for a method of sums, and something for the others."""
    for part in examples(cls):
        found = []
        for rows in indistinguishable_rows():
            state: PartState = part.init(make_population(WEIGHTS))
            result = part.aggregate(updates_of(rows), state, CONDITIONS)
            found.append({"direction": result.direction, **contents(result.state)})
        assert alike(*found) == (part_needing_single_updates(part) is None), part


@pytest.mark.parametrize("cls", library_parts(fl.Sampler), ids=lambda cls: cls.__name__)
def test_samplers_see_what_they_say_they_see(cls: type[fl.Sampler]) -> None:
    """Likewise for updates and, where a sampler asks for losses, for other losses with the same sums."""
    key = fl.Key.from_seed(0)
    for part in examples(cls):
        found = []
        for rows in indistinguishable_rows():
            state = part.init(make_population(WEIGHTS))
            updates, polled = updates_of(rows), part.polled(state, CONDITIONS, key)
            assert (polled is not None) == part.needs_losses
            poll = None if polled is None else Poll(polled, rows[polled, 0])
            cohort = part.draw(state, replace(CONDITIONS, poll=poll), key)
            observed = contents(part.observe(state, CONDITIONS, updates.cohort, updates))
            found.append({"asked": cohort.clients, **observed})
        assert alike(*found) == (part_needing_single_updates(part) is None), part


@pytest.mark.parametrize("cls", library_parts(fl.Correction), ids=lambda cls: cls.__name__)
def test_corrections_broadcast_sums(cls: type[fl.Correction]) -> None:
    """No correction asks for more: what clients remember stays with them, and uploads are added up."""
    for part in examples(cls):
        shared = {name: draws(f"shared {name}", D) for name in part.shared_names}
        one, other = (
            dict(part.update_shared(shared, updates_of(rows), WEIGHTS)) for rows in indistinguishable_rows()
        )
        assert alike(one, other), part


@pytest.mark.parametrize("name", METHODS)
def test_every_preset_is_accepted_or_refused(name: str) -> None:
    algorithm = example_of_preset(METHODS[name].build)
    if algorithm.sampler.buffering is not None:
        with pytest.raises(
            ClashError, match="adds up the updates of one round, and BufferedSampling lets clients"
        ):
            replace(algorithm, secure_aggregation=True)
    elif name in SUMS:
        assert replace(algorithm, secure_aggregation=True).secure_aggregation
    else:
        with pytest.raises(ClashError, match="needs single updates, and secure aggregation"):
            replace(algorithm, secure_aggregation=True)


def test_parts_within_parts_are_looked_at() -> None:
    inside = fl.FullFirstRound(fl.OptimalSampling(2))
    assert part_needing_single_updates(inside) == "OptimalSampling"
    with pytest.raises(ClashError, match="OptimalSampling needs"):
        fl.Algorithm(fl.LocalSolver(fl.SGD(0.1)), inside, secure_aggregation=True)
    with pytest.raises(ClashError, match="AwareProjection needs"):
        fl.Algorithm(fl.LocalSolver(fl.SGD(0.1)), transforms=(fl.AwareProjection(),), secure_aggregation=True)


def test_the_question_is_yes_or_no() -> None:
    with pytest.raises(FieldError, match=r"Algorithm\.secure_aggregation must be a bool, got 'yes'"):
        fl.Algorithm(fl.LocalSolver(fl.SGD(0.1)), secure_aggregation="yes")  # type: ignore[arg-type]


def test_the_page_has_the_table_of_every_method() -> None:
    """docs/privacy.md lists each preset once, on the side that the code puts it."""
    page = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text(encoding="utf-8")
    begin, end = page.index("<!-- methods -->"), page.index("<!-- end of methods -->")
    rows = [line.split("|") for line in page[begin:end].splitlines() if line.startswith("| `")]
    told = {row[1].strip().strip("`"): row[2].strip() for row in rows}
    assert told.keys() == METHODS.keys()
    for name, method in METHODS.items():
        algorithm = example_of_preset(method.build)
        parts = (
            algorithm.sampler,
            algorithm.aggregator,
            *algorithm.transforms,
            *algorithm.solver.corrections,
        )
        seen = next((part for part in map(part_needing_single_updates, parts) if part is not None), None)
        assert told[name] == ("sums" if seen is None else f"single updates (`{seen}`)"), name
