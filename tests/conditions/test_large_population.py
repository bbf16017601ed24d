"""A million clients: the conditions of a round for all of them fit into 2 GiB."""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import json, resource
import torch
import fairlead as fl
from fairlead.clients.synthetic import LinearModel

N = 1_000_000
data = fl.ClientData(torch.zeros(N, 1), torch.zeros(N), torch.arange(N + 1))
conditions = dict(
    work=fl.RandomEpochsAndBatches(),
    link=fl.CombinedLink(
        (fl.MarkovLink(0.05, 0.2, forecast="previous"), fl.TwoGroupLink(N // 2), fl.DeadlineLink(20.0))
    ),
    devices=fl.LogNormalDevices(step_seconds=1.0, speed_sigma=0.3, jitter=0.1, upload=100.0),
)
task = fl.Task(LinearModel(), loss="squared_error", metrics=())
world = fl.SimulatedWorld(task, data, **conditions)
solver = fl.LocalSolver(fl.SGD(lr=0.1))
algorithm = fl.Algorithm(solver, fl.FedACSEstimated(cohort_size=50, planned_work=True))
run = fl.Federation(algorithm, world)
known = world.conditions(100, solver, run.key)
arrival, work = known.arrival, known.effective_steps
records = list(run.train(2))
print(json.dumps({
    "clients": len(arrival),
    "rate": float(arrival.mean()),
    "work": float(work.mean()),
    "arrived": sum(len(record.arrived) for record in records),
    "virtual": [record.virtual_seconds for record in records],
    "gibibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
}))
"""


LAUNCHER = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
"""A small process in between: the peak that a process reports includes that of the one that started it."""


def test_a_million_clients_fit_into_two_gibibytes() -> None:
    """Work, links and devices of everyone are planned in each round, since the sampler asks for them.

    With one example per client K_i = E_i ~ U{2..5}, so that the mean work is 3.5.
    """
    command = [sys.executable, "-c", LAUNCHER, SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["clients"] == 1_000_000
    assert abs(found["work"] - 3.5) < 0.01
    assert 0.5 < found["rate"] < 0.8
    assert 0 < found["arrived"] <= 100
    assert all(0 < seconds <= 20 for seconds in found["virtual"])
    assert found["gibibytes"] < 2
