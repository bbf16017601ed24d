"""The virtual clock by hand: durations, deadlines, over-selection, and what stays the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path

import pytest
import torch
from torch import Tensor

import fairlead as fl
from fairlead.conditions.base import refuse_misfits
from fairlead.conditions.devices import (
    DeviceProfile,
    FixedDevices,
    LogNormalDevices,
    Payload,
    elapsed,
    time_to,
)
from fairlead.conditions.links import MarkovLink
from fairlead.conditions.timed_links import CombinedLink, DeadlineLink, FirstArrivals
from fairlead.conditions.work import TimeBudget
from fairlead.errors import ClashError, FieldError
from fairlead.testing import check_work

KEY = fl.Key.from_seed(0)
SIZES = (4, 10, 25)


def data(sizes: tuple[int, ...] = SIZES) -> fl.ClientData:
    generator = KEY.fold("data").generator()
    inputs = [torch.from_numpy(generator.normal(size=(size, 2))) for size in sizes]
    targets = [torch.from_numpy(generator.integers(0, 3, size)) for size in sizes]
    return fl.ClientData.from_lists(inputs, targets)


def run(
    *,
    link: fl.LinkModel | None = None,
    work: fl.WorkModel | None = None,
    devices: fl.DeviceModel | None = None,
    sizes: tuple[int, ...] = SIZES,
    algorithm: fl.Algorithm | None = None,
    rounds: int = 3,
) -> list[fl.RoundRecord]:
    task = fl.Task(fl.LogisticRegression())
    world = fl.SimulatedWorld(task, data(sizes), work=work, link=link, devices=devices)
    algorithm = algorithm or fl.presets.fedavg(lr=0.1, epochs=2, batch_size=10)
    return list(fl.Federation(algorithm, world, seed=1).train(rounds, evaluate_every=1))


def test_a_round_lasts_as_long_as_its_slowest_client() -> None:
    """9 parameters of 4 bytes each way; two epochs in batches of 10.

    Client 0: 4 examples, 2 steps:   1 + 36/36 + 2·0.5 + 8·0.1 + 36/12 = 6.8 s, of which 1.8 s computing.
    Client 1: 10 examples, 2 steps:  2 + 36/36 + 2·0.5 + 20·0.1 + 36/12 = 9.0 s, of which 3.0 s.
    Client 2: 25 examples, 6 steps:  0 + 36/36 + 6·0.1 + 50·0.1 + 36/12 = 9.6 s, of which 5.6 s.
    """
    devices = FixedDevices(
        step_seconds=(0.5, 0.5, 0.1), example_seconds=0.1, latency=(1.0, 2.0, 0.0), download=36.0, upload=12.0
    )
    for record in run(devices=devices):
        assert record.virtual_seconds == pytest.approx(9.6)
        assert record.device_seconds == pytest.approx(1.8 + 3.0 + 5.6)


def test_without_devices_there_is_no_clock() -> None:
    records = run()
    assert [record.virtual_seconds for record in records] == [None] * 3
    assert [record.device_seconds for record in records] == [None] * 3
    with pytest.raises(FieldError, match="The records have no virtual seconds: give the world devices"):
        elapsed(records)


def test_a_clock_alone_changes_nothing_else() -> None:
    plain, timed = run(), run(devices=FixedDevices(step_seconds=1.0))
    stripped = [replace(record, virtual_seconds=None, device_seconds=None) for record in timed]
    assert stripped == plain


def test_deadline_in_a_run() -> None:
    """With 1 s a step the clients take 2, 2 and 6 s: at 5 s the third is late, in every round."""
    for record in run(devices=FixedDevices(step_seconds=1.0), link=DeadlineLink(5.0)):
        assert record.arrived == (0, 1)
        assert record.virtual_seconds == 5.0
        assert record.device_seconds == 10.0


def test_over_selection_in_a_run() -> None:
    """3, 1 and 6 s: the first two are there after 3 s."""
    devices = FixedDevices(step_seconds=(1.5, 0.5, 1.0))
    for record in run(devices=devices, link=FirstArrivals(2)):
        assert record.arrived == (0, 1)
        assert record.virtual_seconds == 3.0


def test_clients_without_examples_are_not_the_first_to_arrive() -> None:
    devices = FixedDevices(step_seconds=(1.5, 0.5, 1.0))
    link = CombinedLink((fl.PerfectLink(), FirstArrivals(1)))
    for record in run(devices=devices, link=link, sizes=(4, 0, 25)):
        assert record.arrived == (0,)
        assert record.virtual_seconds == 3.0


def test_a_round_that_asks_for_nothing_takes_no_time() -> None:
    devices = FixedDevices(step_seconds=1.0)
    algorithm = replace(
        fl.presets.fedavg(lr=0.1, epochs=1), sampler=fl.ScriptedSampler(((), (0,)), importance="weights")
    )
    seconds = [record.virtual_seconds for record in run(devices=devices, algorithm=algorithm, rounds=2)]
    assert seconds == [0.0, 1.0]


def test_budgeted_work_in_a_run() -> None:
    """3 s at 0.5, 1 and 2 s a step: 6, 3 and 1 steps, whatever the data."""
    devices = FixedDevices(step_seconds=(0.5, 1.0, 2.0), latency=1.0)
    for record in run(devices=devices, work=TimeBudget(3.0)):
        assert record.num_steps == (6, 3, 1)
        assert record.virtual_seconds == 4.0


@dataclass(frozen=True)
class _FastTwiceSlowOnce(fl.WorkModel):
    """Devices faster than a second a step take two steps, the others one."""

    needs_devices = True

    def workload(
        self,
        clients: Tensor,
        sizes: Tensor,
        solver: fl.LocalSolver,
        round: int,
        key: fl.Key,
        devices: DeviceProfile | None = None,
    ) -> fl.Workload:
        assert devices is not None
        return fl.Workload((1 + (devices.step_seconds < 1).long()) * (sizes > 0), solver.batches(sizes))


def test_own_work_can_use_devices() -> None:
    work = _FastTwiceSlowOnce()
    check_work(work)
    for record in run(devices=FixedDevices(step_seconds=(0.5, 1.0, 0.9)), work=work):
        assert record.num_steps == (2, 1, 2)
        assert record.virtual_seconds == 1.8
    with pytest.raises(ClashError, match=r"_FastTwiceSlowOnce needs the speed of clients"):
        run(work=work)
    with pytest.raises(
        FieldError, match=r"must be independent of the speed of devices, got _FastTwiceSlowOnce\(\)\."
    ):
        fl.FixedBatchSizes((1, 2, 3), work)


def test_deadline_arrival_is_known_beforehand() -> None:
    """FedACS must be told that the late client cannot arrive, and refuses to ask for it."""
    task = fl.Task(fl.LogisticRegression())
    world = fl.SimulatedWorld(task, data(), link=DeadlineLink(5.0), devices=FixedDevices(step_seconds=1.0))
    solver = fl.LocalSolver(fl.SGD(0.1), epochs=2, batch_size=10)
    conditions = world.conditions(0, solver, KEY)
    assert conditions.arrival is not None
    assert conditions.arrival.tolist() == [1.0, 1.0, 0.0]
    assert conditions.effective_steps is not None
    assert conditions.effective_steps.tolist() == [2.0, 2.0, 6.0]


@pytest.mark.parametrize("estimate", ["path", "anchor"])
def test_payload_is_what_the_record_counts(estimate: str) -> None:
    """Control variates double the way down and up, and the clock must know before the work is done."""
    algorithm = fl.presets.scaffold(lr=0.1, epochs=1, estimate=estimate)  # type: ignore[arg-type]
    world = fl.SimulatedWorld(fl.Task(fl.LogisticRegression()), data())
    for chosen in (algorithm, fl.presets.fedavg(lr=0.1)):
        record = next(iter(fl.Federation(chosen, world).train(1)))
        payload = world.payload(chosen.solver)
        assert payload == Payload(record.bytes_down // 3, record.bytes_up // 3)
    assert world.payload(algorithm.solver) == Payload(72, 72)


@pytest.mark.parametrize("preset", sorted(fl.presets.METHODS))
def test_every_method_has_a_payload(preset: str) -> None:
    """The sizes of what is sent are computed without running the method, for corrections of every kind."""
    arguments = {"lr": 0.1, "cohort_size": 3, "mu": 0.1, "alpha": 0.1, "own": ("*",)}
    method = fl.presets.METHODS[preset]
    own = signature(method.build).parameters.values()
    needed = {"lr"} | {
        p.name for p in own if p.kind is p.KEYWORD_ONLY and (p.default is p.empty or p.name == "own")
    }
    if preset != "full_participation":
        needed.add("cohort_size")
    algorithm = method.build(**{name: arguments[name] for name in needed})
    world = fl.SimulatedWorld(
        fl.Task(fl.LogisticRegression()), data(), devices=FixedDevices(upload=4.0, download=4.0)
    )
    record = next(iter(fl.Federation(algorithm, world).train(1)))
    payload = world.payload(algorithm.solver)
    # A polled client receives the model and sends its loss, a number of four bytes, before the round.
    polled = int(record.facts.get("polled", 0))
    assert payload.down * (len(record.asked) + polled) == record.bytes_down
    assert payload.up * len(record.arrived) + 4 * polled == record.bytes_up
    poll_bytes = payload.down + 4 if polled else 0
    assert record.virtual_seconds == (payload.down + payload.up + poll_bytes) / 4


def test_time_to_accuracy() -> None:
    records = run(devices=FixedDevices(step_seconds=1.0), rounds=4)
    assert elapsed(records) == (6.0, 12.0, 18.0, 24.0)
    measured = [record.evaluation.metrics["accuracy"] for record in records if record.evaluation]
    best = max(measured)
    assert time_to(records, best) == 6.0 * (measured.index(best) + 1)
    assert time_to(records, 1.1) is None
    with pytest.raises(FieldError, match=r"'acuracy' was not measured. Did you mean 'accuracy'\?"):
        time_to(records, 0.5, "acuracy")


def test_resumed_runs_meet_the_same_conditions(tmp_path: Path) -> None:
    """Ten rounds in one go, and five, a checkpoint and five more: the same records, clock included."""

    def federation() -> fl.Federation:
        world = fl.SimulatedWorld(
            fl.Task(fl.LogisticRegression()),
            data((4, 10, 25, 7, 8)),
            work=fl.RandomEpochsAndBatches(),
            link=CombinedLink((MarkovLink(0.3, 0.3), DeadlineLink(40.0))),
            devices=LogNormalDevices(step_seconds=1.0, speed_sigma=0.5, jitter=0.5),
        )
        return fl.Federation(fl.presets.fedavg(lr=0.1, cohort_size=4), world, seed=2)

    whole = list(federation().train(10))
    first = federation()
    head = list(first.train(5))
    first.save(tmp_path / "checkpoint")
    second = federation()
    second.resume(tmp_path / "checkpoint")
    assert head + list(second.train(5)) == whole
    assert len({record.arrived for record in whole}) > 3
    assert len({record.virtual_seconds for record in whole}) > 3


def test_methods_meet_the_same_conditions() -> None:
    """Two methods under one seed: the same cohorts, arrivals, steps and virtual seconds."""
    devices = LogNormalDevices(step_seconds=1.0, speed_sigma=0.2, jitter=0.2)
    link = CombinedLink((fl.TwoGroupLink(2), DeadlineLink(15.0)))
    fedavg, fedprox = (
        run(devices=devices, link=link, work=fl.RandomSteps(1, 20), algorithm=algorithm, rounds=6)
        for algorithm in (fl.presets.fedavg(lr=0.1), fl.presets.fedprox(lr=0.1, mu=1.0))
    )
    for one, other in zip(fedavg, fedprox, strict=True):
        assert (one.arrived, one.num_steps) == (other.arrived, other.num_steps)
        assert (one.virtual_seconds, one.device_seconds) == (other.virtual_seconds, other.device_seconds)
    assert [record.step_norm for record in fedavg] != [record.step_norm for record in fedprox]
    assert len({record.arrived for record in fedavg}) > 2


def test_misfits_are_refused_before_any_work() -> None:
    task = fl.Task(fl.LogisticRegression())
    with pytest.raises(ClashError, match=r"DeadlineLink needs the speed of clients: give the world dev"):
        fl.SimulatedWorld(task, data(), link=CombinedLink((fl.BernoulliLink(0.1), DeadlineLink(1.0))))
    with pytest.raises(ClashError, match=r"TimeBudget needs the speed of clients"):
        fl.SimulatedWorld(task, data(), work=TimeBudget(1.0))
    with pytest.raises(FieldError, match=r"FixedSteps.steps must have one entry per client \(3\), got 2\."):
        fl.SimulatedWorld(task, data(), work=fl.FixedSteps((1, 2)))
    with pytest.raises(
        FieldError, match=r"FixedDevices.latency must have one entry per client \(3\), got 4\."
    ):
        fl.SimulatedWorld(task, data(), devices=FixedDevices(latency=(1.0, 2.0, 3.0, 4.0)))
    with pytest.raises(FieldError, match=r"ScriptedWork.steps must have one entry per client \(3\), got 1\."):
        fl.SimulatedWorld(task, data(), work=fl.ScriptedWork(((1, 2, 3), (1,))))
    refuse_misfits(fl.BernoulliLink((0.1, 0.2, 0.3)), 3, has_devices=False)
