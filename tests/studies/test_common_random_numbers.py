"""Methods that are compared meet the same chance: data, initial model, cohorts, batches, work and links."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fairlead as fl
from fairlead.experiments.method_list import listed_methods
from fairlead.experiments.study import planned_comparison
from fairlead.worlds import executor
from fairlead.worlds.executor import draw_batches

SPEC = """
rounds = 4
evaluate_every = 0
[clients]
type = "Digits"
num_clients = 8
[clients.partition]
type = "DirichletPartitioner"
alpha = 0.5
[algorithm]
preset = "fedavg"
lr = 0.1
batch_size = 8
cohort_size = 5
[work]
type = "RandomSteps"
low = 1
high = 4
[link]
type = "BernoulliLink"
drop = 0.3
"""
METHODS = "fedavg,fednova:lr=0.01,fedprox:mu=0.1,scaffold,fedyogi,fedvarp"


class Met:
    """What the clients of one run met."""

    def __init__(self) -> None:
        self.data: list[torch.Tensor] = []
        self.initial: list[torch.Tensor] = []
        self.batches: list[tuple[int, list[int]]] = []


@pytest.fixture(scope="module")
def met(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], tuple[Met, list[fl.RoundRecord]]]:
    """By method and seed, from a comparison whose batches were recorded."""
    folder = tmp_path_factory.mktemp("common")
    (folder / "spec.toml").write_text(SPEC)
    planned = planned_comparison(listed_methods(folder / "spec.toml", METHODS), [0, 1])
    study, found, met = fl.StudyFolder(folder / "runs"), {}, [Met()]
    build = fl.Experiment.build

    def recorded(offset: int, size: int, steps: int, batch_size: int, key: fl.Key) -> Any:
        batches = draw_batches(offset, size, steps, batch_size, key)
        met[0].batches.append((offset, torch.cat([torch.as_tensor(b) for b in batches]).tolist()))
        return batches

    def built(self: fl.Experiment, data: Any = None) -> fl.Federation:
        federation = build(self, data)
        assert isinstance(federation.world, fl.SimulatedWorld)
        met[0].data.append(federation.world.clients.targets)
        met[0].initial.append(federation.params)
        return federation

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(executor, "draw_batches", recorded)
        patched.setattr(fl.Experiment, "build", built)
        for run in planned:
            met[0] = Met()
            assert set(fl.run_study(study, [run], jobs=1).values()) == {"finished"}
            key = str(run.labels["method"]), int(run.labels["seed"])
            found[key] = met[0], study.store(run).records()
    return found


@pytest.mark.full
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("method", METHODS.split(",")[1:])
def test_every_method_meets_what_the_first_met(met: Any, method: str, seed: int) -> None:
    (ours, records), (theirs, reference) = met[method, seed], met["fedavg", seed]
    assert torch.equal(ours.data[0], theirs.data[0])
    assert torch.equal(ours.initial[0], theirs.initial[0])
    assert ours.batches == theirs.batches
    assert len(ours.batches) == sum(len(record.arrived) for record in reference)
    for record, other in zip(records, reference, strict=True):
        assert (record.asked, record.arrived, record.num_steps) == (
            other.asked,
            other.arrived,
            other.num_steps,
        )


def test_seeds_differ_in_all_of_it(met: Any) -> None:
    (ours, records), (theirs, others) = met["fedavg", 0], met["fedavg", 1]
    assert not torch.equal(ours.data[0], theirs.data[0])
    assert not torch.equal(ours.initial[0], theirs.initial[0])
    assert ours.batches != theirs.batches
    for fact in ("asked", "arrived", "num_steps"):
        assert [getattr(r, fact) for r in records] != [getattr(r, fact) for r in others]


def test_methods_differ_in_what_they_do(met: Any) -> None:
    ends = {records[-1].train_loss for (_, seed), (_, records) in met.items() if seed == 0}
    assert len(ends) == len(METHODS.split(","))
