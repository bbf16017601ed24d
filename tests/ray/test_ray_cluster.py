"""A Ray cluster of two nodes, joined by its address: one of them is lost in the middle of a run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
from time import sleep

import ray
import torch
from ray.cluster_utils import Cluster

import fairlead as fl


def simulation():
    data = fl.Digits(num_clients=12).load(fl.Key.from_seed(0))
    return fl.SimulatedWorld(fl.Task(fl.MLP(hidden=(8,))), data.train, engine="batched", block=2)


if __name__ == "__main__":
    torch.set_num_threads(1)
    room = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**room, "include_dashboard": False})
    node = cluster.add_node(**room)
    algorithm = fl.presets.scaffold(lr=0.1, steps=3)
    alone = fl.Federation(algorithm, simulation())
    list(alone.train(6))
    world = fl.RayWorld(simulation(), fl.RayCluster(actors=2, address=cluster.address))
    run = fl.Federation(algorithm, world)
    # An actor occupies a CPU and each node has one: both actors ready means one on each.
    world.executor.pool.processes()
    list(run.train(2))
    cluster.remove_node(node, allow_graceful=False)
    # At once, before Ray has noticed, and afterwards.
    list(run.train(2))
    while sum(each["Alive"] for each in ray.nodes()) > 1:
        sleep(0.2)
    list(run.train(2))
    print("The same bits:", torch.equal(run.params, alone.params))
    ray.shutdown()
    cluster.shutdown()
"""


@pytest.mark.full
def test_a_node_that_is_lost_changes_nothing() -> None:
    """In a process of its own, since one process belongs to one Ray at a time."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"},
    )
    assert done.returncode == 0, done.stderr
    assert "The same bits: True" in done.stdout
