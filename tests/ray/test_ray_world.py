"""`RayWorld` gives the bits of the simulation that it lets actors compute, whoever dies on the way."""

from __future__ import annotations

import dataclasses
import gc
import logging
import os
import re
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import torch
from torch import nn

import fairlead as fl
from fairlead.errors import ClashError, EngineError, EngineWarning, FieldError
from fairlead.records import RoundRecord
from fairlead.testing import check_world
from fairlead.testing.rounds import contents
from fairlead.worlds.base import EngineName
from fairlead.worlds.ray.actor import Recipe
from fairlead.worlds.ray.executor import ActorPool

NUM_CLIENTS, ROUNDS = 23, 4

ALGORITHMS = {
    "FedAvg": fl.presets.fedavg(lr=0.05, cohort_size=17, batch_size=4),
    # All examples at every step: batches of unequal length side by side, whose padding can move bits.
    "SCAFFOLD": fl.presets.scaffold(lr=0.05, cohort_size=17),
    "SCAFFOLD by gradients": fl.presets.scaffold(lr=0.05, cohort_size=17, estimate="anchor"),
    "FedNova": fl.presets.fednova(lr=0.05, momentum=0.9, cohort_size=17, batch_size=4),
    "FedAWARE": fl.presets.fedaware(lr=0.05, cohort_size=17, batch_size=4),
}


@pytest.fixture(scope="module")
def _ray_on_this_machine() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(
            address="local",
            num_cpus=7,
            object_store_memory=100 * 2**20,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        yield
        ray.shutdown()
        with warnings.catch_warnings():
            # Ray ends its processes without waiting for them, of which Python warns when it forgets them.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def simulation(engine: EngineName = "batched", block: int | None = 5) -> fl.SimulatedWorld:
    """Clients with 1 to 12 examples, 1 to 4 epochs and links that lose up to half of their updates."""
    draw = torch.Generator().manual_seed(3)
    sizes = [1 + (7 * client) % 12 for client in range(NUM_CLIENTS)]
    data = fl.ClientData.from_lists(
        [torch.randn((size, 6), generator=draw) for size in sizes],
        [torch.randint(0, 3, (size,), generator=draw) for size in sizes],
    )
    return fl.SimulatedWorld(
        fl.Task(fl.MLP(hidden=(9,))),
        data,
        work=fl.RandomEpochs(1, 4),
        link=fl.BernoulliLink(tuple(0.25 * (client % 3) for client in range(NUM_CLIENTS))),
        engine=engine,
        lanes=4,
        block=block,
    )


def trained(world: fl.World, algorithm: fl.Algorithm) -> fl.Federation:
    federation = fl.Federation(algorithm, world, seed=5)
    list(federation.train(ROUNDS, evaluate_every=ROUNDS))
    return federation


def facts(records: Any) -> list[dict[str, Any]]:
    """Records without the time that they took."""

    def timeless(record: RoundRecord) -> dict[str, Any]:
        return {name: value for name, value in vars(record).items() if name != "seconds"}

    return [timeless(record) for record in records]


def assert_same(one: fl.Federation, other: fl.Federation) -> None:
    """The same bits in all that the next round would start from, and in what people read."""
    assert torch.equal(one.params, other.params)
    for part in ("shared", "aggregator", "memory", "sampler"):
        left, right = contents(getattr(one.state, part)), contents(getattr(other.state, part))
        assert left.keys() == right.keys()
        assert all(torch.equal(left[name], right[name]) for name in left)
    assert facts(one.records) == facts(other.records)


@pytest.fixture(scope="module", autouse=True)
def two(_ray_on_this_machine: None) -> fl.RayWorld:
    """A world of two actors; all other worlds with two share them, since it lives as long as the tests."""
    return fl.RayWorld(simulation(), fl.RayCluster(actors=2))


@pytest.mark.parametrize("actors", [1, 2, 4])
def test_any_number_of_actors_gives_the_bits_of_one_process(actors: int) -> None:
    world = fl.RayWorld(simulation(), fl.RayCluster(actors))
    for algorithm in ALGORITHMS.values():
        assert_same(trained(world, algorithm), trained(simulation(), algorithm))


def test_actors_without_room_are_announced() -> None:
    """Of 7 CPUs the two actors of all tests have 2: there is room for one of 5, and never for two."""
    pool = ActorPool(fl.RayCluster(2, threads=5))
    with pytest.warns(
        EngineWarning, match=r"RayCluster.actors=2, and 1 have started: the others join"
    ) as told:
        pool.wait([])
    pool._announce_missing()
    assert len(told) == 1


def test_one_client_after_the_other_needs_no_block() -> None:
    world = fl.RayWorld(simulation("loop", block=None), fl.RayCluster(actors=2))
    for name in ("FedAvg", "SCAFFOLD"):
        assert_same(trained(world, ALGORITHMS[name]), trained(simulation("loop", None), ALGORITHMS[name]))


def test_clients_of_a_round_are_trained_in_blocks_of_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seventeen clients in blocks of at most five: whoever trains them, 5 + 5 + 5 + 2."""
    world, seen = simulation(), list[int]()
    run = world.engine.run

    def noting(objective: Any, jobs: Any) -> Any:
        seen.append(len(jobs.clients))
        return run(objective, jobs)

    monkeypatch.setattr(type(world.engine), "run", lambda _, objective, jobs: noting(objective, jobs))
    perfect = fl.SimulatedWorld(world.task, world.clients, engine="batched", block=5)
    list(fl.Federation(ALGORITHMS["FedAvg"], perfect).train(1))
    assert seen == [5, 5, 5, 2]


def by_signal(world: fl.RayWorld) -> None:
    os.kill(world.executor.pool.processes()[0], signal.SIGKILL)


def by_ray(world: fl.RayWorld) -> None:
    ray.kill(world.executor.pool.actors[0].handle)


@pytest.mark.parametrize("kill", [by_signal, by_ray])
def test_an_actor_killed_at_work_changes_nothing(
    two: fl.RayWorld, kill: Callable[[fl.RayWorld], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies with blocks in its hands, in the second round; another takes its place."""
    pool, lost, waits = two.executor.pool, list[int](), 0
    wait, collect, before = pool.wait, pool.collect, pool.processes()

    def wait_and_kill(work: Any) -> list[Any]:
        nonlocal waits
        at_work = bool(work)
        waits += at_work
        # Four blocks or fewer a round: the fifth wait belongs to a later round than the first.
        if at_work and waits == 5:
            # In a run of more than a minute the time to join is over; the new actor has its own.
            monkeypatch.setattr(pool, "_announce_at", 0.0)
            kill(two)
        return wait(work)

    def collect_and_note(reference: Any, member: Any) -> Any:
        returns = collect(reference, member)
        if returns is None:
            lost.append(1)
        return returns

    monkeypatch.setattr(pool, "wait", wait_and_kill)
    monkeypatch.setattr(pool, "collect", collect_and_note)
    long = fl.presets.scaffold(lr=0.01, steps=300, cohort_size=17)
    assert_same(trained(two, long), trained(simulation(), long))
    assert lost
    after = pool.processes()
    assert len(after) == 2
    assert set(after) != set(before)


def test_actors_belong_to_one_start_of_ray(two: fl.RayWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray on this machine, started anew, has a new node and the same first job; the actors of before are gone."""
    assert ActorPool.of(two.cluster) is two.executor.pool
    here = ray.get_runtime_context()
    anew = SimpleNamespace(
        gcs_address=here.gcs_address, get_job_id=here.get_job_id, get_node_id=lambda: "another"
    )
    monkeypatch.setattr(ray, "get_runtime_context", lambda: anew)
    assert ActorPool.of(two.cluster) is not two.executor.pool


def test_work_that_kills_every_actor_is_given_up(two: fl.RayWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two.executor.pool, "collect", lambda reference, member: None)
    with pytest.raises(EngineError, match=r"^4 Ray actors died while training clients \d+ to \d+, "):
        trained(two, ALGORITHMS["FedAvg"])


def test_an_error_of_a_client_is_the_same_sentence_as_in_one_process() -> None:
    """Batch normalization cannot train on the single example of client 0."""
    task = fl.Task(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)))
    data = fl.ClientData(
        torch.ones(13, 6), torch.zeros(13, dtype=torch.int64), torch.tensor([0, 1, 5, 9, 13])
    )
    world = fl.SimulatedWorld(task, data, engine="loop")
    algorithm = fl.presets.fedavg(lr=0.1)
    with pytest.raises(FieldError, match=r"^LocalSolver.batch_size must leave no batch of one") as here:
        trained(world, algorithm)
    with pytest.raises(FieldError) as there:
        trained(fl.RayWorld(world, fl.RayCluster(actors=2)), algorithm)
    assert str(there.value) == str(here.value)


def test_checkpoints_go_on_in_the_other_world(two: fl.RayWorld, tmp_path: Path) -> None:
    algorithm = ALGORITHMS["SCAFFOLD"]
    whole = trained(simulation(), algorithm)
    for first, second in ((two, simulation()), (simulation(), two)):
        begun = fl.Federation(algorithm, first, seed=5)
        list(begun.train(ROUNDS // 2))
        folder = tmp_path / type(first).__name__
        begun.save(folder)
        ended = fl.Federation(algorithm, second, seed=5)
        ended.resume(folder)
        list(ended.train(ROUNDS - ROUNDS // 2))
        assert torch.equal(ended.params, whole.params)


def test_the_contract_of_a_world(two: fl.RayWorld) -> None:
    check_world(simulation())
    check_world(two)


def test_diagnoses_look_at_the_simulation(two: fl.RayWorld) -> None:
    runs = [fl.Federation(ALGORITHMS["FedAvg"], world, seed=5) for world in (two, simulation())]
    for run in runs:
        list(run.train(2, gradients_every=1))
    assert facts(runs[0].records) == facts(runs[1].records)
    assert runs[0].records[-1].gradients is not None
    reports = [run.consistency() for run in runs]
    assert reports[0].factors == reports[1].factors
    assert reports[0].factors is not None


def test_very_many_clients_are_a_few_shards() -> None:
    """Half a million clients with one example each."""
    number = 500_000
    inputs = (torch.arange(number, dtype=torch.float32)[:, None] % 7) / 7
    data = fl.ClientData(inputs, inputs * 2, torch.arange(number + 1))
    task = fl.Task(nn.Linear(1, 1), loss="squared_error", metrics=())
    world = fl.SimulatedWorld(task, data, engine="batched", block=8)
    algorithm = fl.presets.fedavg(lr=0.1, steps=2, cohort_size=20)
    here, there = (
        fl.Federation(algorithm, place) for place in (world, fl.RayWorld(world, fl.RayCluster(actors=2)))
    )
    list(here.train(2))
    list(there.train(2))
    assert torch.equal(here.params, there.params)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"actors": 0}, "RayCluster.actors must be a whole number of at least 1, got 0."),
        ({"actors": True}, "RayCluster.actors must be a whole number of at least 1, got True."),
        ({"actors": 2.5}, "RayCluster.actors must be a whole number of at least 1, got 2.5."),
        ({"actors": 2, "threads": 0}, "RayCluster.threads must be a whole number of at least 1, got 0."),
        ({"actors": 2, "gpus": -1}, "RayCluster.gpus must be a finite number of at least 0, got -1."),
        ({"actors": 2, "address": ""}, "RayCluster.address must be None, 'auto' or 'host:port', got ''."),
        (
            {"actors": 2, "address": "here"},
            "RayCluster.address must be None, 'auto' or 'host:port', got 'here'.",
        ),
        ({"actors": 2, "address": 8}, "RayCluster.address must be None, 'auto' or 'host:port', got 8."),
    ],
)
def test_bad_values_are_refused_in_one_sentence(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FieldError) as refusal:
        fl.RayCluster(**fields)
    assert str(refusal.value) == sentence


def test_an_address_where_nobody_listens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(
        FieldError,
        match=r"^RayCluster.address must be where a Ray cluster can be reached, got '127.0.0.1:1': ",
    ):
        fl.RayWorld(simulation(), fl.RayCluster(actors=2, address="127.0.0.1:1"))


def test_another_cluster_than_the_connected_one_is_refused() -> None:
    with pytest.raises(FieldError, match=r"which this process is connected to, '.+', got '127.0.0.1:1'\.$"):
        fl.RayWorld(simulation(), fl.RayCluster(actors=2, address="127.0.0.1:1"))


def test_gpus_fit_the_device_of_the_simulation() -> None:
    with pytest.raises(FieldError, match=r"^RayCluster.gpus must be 0 for a world on cpu, got 1.0\.$"):
        fl.RayWorld(simulation(), fl.RayCluster(actors=2, gpus=1.0))


def test_clients_side_by_side_need_a_block() -> None:
    with pytest.raises(ClashError, match=r"set SimulatedWorld.block, such as block=32\.$"):
        fl.RayWorld(simulation(block=None), fl.RayCluster(actors=2))


@pytest.mark.parametrize("block", [0, True, 1.5])
def test_a_block_is_at_least_one_client(block: Any) -> None:
    with pytest.raises(
        FieldError, match=r"^SimulatedWorld.block must be None or a whole number of at least 1, "
    ):
        simulation(block=block)


SPEC = """
rounds = 2
block = 4

[clients]
type = "Digits"
num_clients = 10

[algorithm]
preset = "fednova"
lr = 0.1
cohort_size = 6

[ray]
actors = 2
"""


def test_a_spec_says_which_actors(tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC, encoding="utf-8")
    experiment = fl.load_experiment(spec)
    assert experiment.ray == fl.RayCluster(actors=2)
    assert fl.from_toml(fl.Experiment, fl.to_toml(experiment)) == experiment
    run = fl.run_experiment(experiment, tmp_path / "spread")
    alone = fl.run_experiment(fl.load_experiment(spec, ["ray=none"]), tmp_path / "alone")
    assert isinstance(run.federation.world, fl.RayWorld)
    assert torch.equal(run.federation.params, alone.federation.params)
    with pytest.raises(
        FieldError, match=r"^In ray: RayCluster.actors must be a whole number of at least 1, got 0\.$"
    ):
        fl.load_experiment(spec, ["ray.actors=0"])


PAGE = (Path(__file__).parents[2] / "docs" / "ray.md").read_text(encoding="utf-8")


def test_the_page_on_scaling_out_runs_as_it_says() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    (spec,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/ray.md", "exec"), names)
    assert len(names["records"]) == 3
    assert names["world"].executor.pool.actors
    experiment = fl.from_toml(fl.Experiment, spec)
    assert (experiment.ray, experiment.block) == (fl.RayCluster(actors=2), 8)
    fields = re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE)
    assert fields == [field.name for field in dataclasses.fields(fl.RayCluster)]


def test_the_recipe_of_an_actor_holds_no_examples() -> None:
    """Four megabytes of examples, and a recipe of a few times the 4 kB that the model takes."""
    data = fl.ClientData(torch.zeros(1000, 1000), torch.zeros(1000), torch.arange(1001))
    world = fl.SimulatedWorld(fl.Task(nn.Linear(1000, 1), loss="squared_error", metrics=()), data, block=8)
    recipe: bytes = ray.cloudpickle.dumps(Recipe.of(world))  # type: ignore[no-untyped-call]
    assert len(recipe) < 40_000
