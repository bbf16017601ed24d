"""pfl-research 0.6: `FederatedAveraging` on a `SimulatedBackend` with a `PyTorchModel`, one process.

Algorithm, backend, model and training loop are pfl's own, with its mixed precision for bfloat16. The cohorts come
from a scripted user sampler and the clients' batches from a dataset whose epochs are gathered at once. Metrics of
the cohort, which pfl would take in its first round and then now and then, are left out, and so is the report of
metrics to the platform; the central evaluation is pfl's callback. `use_torch_compile` is not set: it compiles the
module's `forward`, and pfl's training calls its `loss`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import chain, repeat
from time import perf_counter
from typing import Any, ClassVar

import torch
from benchmarks.machine import synchronize
from benchmarks.peers.problem import Problem, flat_parameters
from benchmarks.peers.systems import Batches, Pass, System, durations
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional as F


class _Model(nn.Module):
    """What pfl asks of a model: its loss and its metrics."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        self.train()
        return F.cross_entropy(self.network(inputs), targets)

    @torch.no_grad()
    def metrics(self, inputs: Tensor, targets: Tensor) -> dict[str, Any]:
        self.eval()
        outputs = self.network(inputs)
        correct = (outputs.argmax(1) == targets).sum().item()
        loss = F.cross_entropy(outputs, targets, reduction="sum").item()
        return {"loss": Weighted(loss, len(targets)), "accuracy": Weighted(correct, len(targets))}


class _Client(Dataset):
    """A client's data, each epoch in the order drawn for it."""

    def __init__(self, problem: Problem, round: int, client: int) -> None:
        super().__init__((), user_id=str(client))
        self._batches = Batches(problem, round, client)

    def __len__(self) -> int:
        return len(self._batches)

    def iter(self, batch_size: int | None) -> Any:
        return iter(self._batches)


class _Clock(TrainingProcessCallback):
    """When training began and when each round ended."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.marks: list[float] = []

    def _mark(self) -> None:
        synchronize(self._device)
        self.marks.append(perf_counter())

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        self._mark()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self._mark()
        return False, Metrics()


class _FederatedAveraging(FederatedAveraging):
    """pfl's algorithm from iteration 1 on: iteration 0 would always evaluate every client of the cohort twice."""

    def __init__(self) -> None:
        super().__init__()
        self._current_central_iteration = 1


class PflSystem(System):
    """pfl in one process."""

    setup: ClassVar[str] = (
        "FederatedAveraging, SimulatedBackend, PyTorchModel, one process; no cohort metrics"
    )

    def __init__(self, problem: Problem, head_start: Callable[[], None] = lambda: None) -> None:
        super().__init__(problem)
        self._head_start = head_start
        os.environ["PFL_PYTORCH_DEVICE"] = str(problem.device)
        self._network = problem.new_module()
        self._model = PyTorchModel(
            _Model(self._network),
            local_optimizer_create=torch.optim.SGD,
            central_optimizer=torch.optim.SGD(self._network.parameters(), lr=1.0),
            amp_dtype=torch.bfloat16 if problem.precision == "bfloat16" else None,
        )

    def run(self, rounds: int) -> Pass:
        problem, workload = self.problem, self.problem.workload
        self._network.load_state_dict(problem.module.state_dict())
        script = [(round, client) for round in range(rounds) for client in problem.cohorts[round]]
        # Several processes draw ahead of time, and share a cohort out by its weights.
        visits, weights = (
            chain(script, repeat(script[-1])),
            {visit: problem.steps_of(visit[1]) for visit in script},
        )
        data = FederatedDataset(lambda visit: _Client(problem, *visit), lambda: next(visits), weights)
        self._head_start()
        clock = _Clock(problem.device)
        callbacks: list[TrainingProcessCallback] = [clock]
        if workload.evaluate_every and problem.test is not None:
            test = Dataset((problem.test.inputs, problem.test.targets))
            settings = NNEvalHyperParams(local_batch_size=2000)
            callbacks.insert(0, CentralEvaluationCallback(test, settings, workload.evaluate_every))
        _FederatedAveraging().run(
            NNAlgorithmParams(
                central_num_iterations=rounds + 1,
                evaluation_frequency=rounds + 2,
                train_cohort_size=workload.cohort_size,
                val_cohort_size=0,
            ),
            SimulatedBackend(data, data),
            self._model,
            NNTrainHyperParams(
                local_num_epochs=workload.epochs,
                local_learning_rate=workload.lr,
                local_batch_size=workload.batch_size,
            ),
            callbacks=callbacks,
            send_metrics_to_platform=False,
        )
        return Pass(durations(clock.marks), flat_parameters(self._network))


SYSTEM = PflSystem
