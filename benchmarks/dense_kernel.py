"""Paths by which a CPU takes the local steps of small dense models: the compiled loop against closed forms.

    python -m benchmarks.dense_kernel

On one thread, by processor time, interleaved, so that other work on the machine changes little.
"""

from itertools import pairwise
from time import process_time

import torch
from torch import nn

import fairlead as fl
from fairlead.models.augmentation import InputPipeline
from fairlead.parameters import FlatModule
from fairlead.task import cross_entropy
from fairlead.worlds.engines import paths
from fairlead.worlds.engines.base import Engine, LocalJobs, LocalSteps, Objective
from fairlead.worlds.engines.dense import ClosedForm
from fairlead.worlds.engines.dense_cpu import DenseCpu
from fairlead.worlds.engines.dense_numba import DenseNumba

CASES = (
    ((60, 10), 20, 10),
    ((784, 10), 32, 10),
    ((13, 2), 16, 4),
    ((64, 32, 10), 16, 10),
    ((43, 64, 6), 32, 10),
    ((43, 64, 6), 32, 2),
    ((64, 64, 64, 10), 16, 10),
    ((200, 50, 10), 32, 10),
    ((128, 128, 10), 32, 10),
)
"""Widths of the layers, examples a step, and clients side by side."""
STEPS, REPETITIONS, EXAMPLES = 30, 7, 2_000


def work(widths: tuple[int, ...], batch_size: int, clients: int) -> tuple[Objective, LocalJobs]:
    torch.manual_seed(0)
    layers = [layer for ends in pairwise(widths) for layer in (nn.Linear(*ends), nn.ReLU())]
    data = fl.ClientData(
        torch.randn(EXAMPLES, widths[0]),
        torch.randint(0, widths[-1], (EXAMPLES,)),
        torch.linspace(0, EXAMPLES, clients + 1).long(),
    )
    model = FlatModule(nn.Sequential(*layers[:-1]), InputPipeline(()))
    objective = Objective.build(model, cross_entropy, data)
    solver = fl.LocalSolver(fl.SGD(0.05), batch_size=batch_size)
    batches = [torch.randint(0, EXAMPLES, (STEPS, batch_size)) for _ in range(clients)]
    keys = [torch.zeros(STEPS + 1, dtype=torch.int64)] * clients
    steps = LocalSteps(solver, batches, keys, solver.step_lrs(0, STEPS))
    return objective, LocalJobs(
        range(clients), steps, model.initial_params(), model.initial_buffers(), {}, {}
    )


def main() -> None:
    torch.set_num_threads(1)
    # Of all paths, the engine with lanes shall find this one first.
    paths.PATHS = (ClosedForm(), *paths.PATHS)
    engines: dict[str, Engine] = {
        "dense kernel": DenseNumba(),
        "client by client": DenseCpu(),
        "lanes": paths.BatchedEngine(),
    }
    print(f"microseconds a step of a client: {', '.join(engines)}; times faster than the best of the others")
    for widths, batch_size, clients in CASES:
        objective, jobs = work(widths, batch_size, clients)
        best = dict.fromkeys(engines, float("inf"))
        for _ in range(REPETITIONS):
            for name, engine in engines.items():
                begin = process_time()
                engine.run(objective, jobs)
                best[name] = min(best[name], 1e6 * (process_time() - begin) / (STEPS * clients))
        kernel, *others = best.values()
        shown = "  ".join(f"{value:6.1f}" for value in best.values())
        case = f"{'-'.join(map(str, widths)):>14}, batch {batch_size}, {clients:2d} clients"
        print(f"{case}: {shown}  {min(others) / kernel:.1f}")


if __name__ == "__main__":
    main()
