"""Wang 2024 on natural splits: the IID twin (Fig. 1) and drift against its bound (Figs. 3 and 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fairlead import presets
from fairlead.clients import (
    Excerpt,
    NaturalIdPartitioner,
    Partitioner,
    PathologicalPartitioner,
    ReshuffledPartitioner,
)
from fairlead.diagnostics import consensus_test, near_optimum
from fairlead.experiments.experiment import Experiment
from fairlead.federation import Federation
from fairlead.local_solver import LocalSolver
from fairlead.models import FedAvgCNN, LogisticRegression
from fairlead.optimizers import SGD
from fairlead.reproductions.claims import Less, Near
from fairlead.reproductions.computed import Computed
from fairlead.reproductions.data_sets import source_of
from fairlead.reproductions.reproduction import Request, Scale
from fairlead.reproductions.statistics import last_tenth_accuracy
from fairlead.reproductions.table import Cell
from fairlead.reproductions.trained import Entrant, Scene, Size, Trained, grid
from fairlead.settings import Setting, consensus_femnist
from fairlead.task import Task
from fairlead.worlds.simulated import SimulatedWorld

_PEOPLE = Setting(
    None,
    LocalSolver(SGD(0.1), epochs=1, batch_size=20),
    cohort_size=10,
    partition=NaturalIdPartitioner(),
)
"""FedAvg on many people as Reddi et al. (2021) run it, whose set-up the paper takes."""


def _twins(name: str, where: str, data: str, title: str) -> Trained:
    scenes = {
        "natural": Scene(_PEOPLE, data, FedAvgCNN()),
        "IID twin": Scene(replace(_PEOPLE, partition=ReshuffledPartitioner()), data, FedAvgCNN()),
    }
    return Trained(
        name=name,
        reference="wang2024unreasonable",
        where=where,
        claim=f"FedAvg learns about as well from the natural split of {title} as from an IID one of the same sizes.",
        claims=(Near(Cell("FedAvg", "natural"), Cell("FedAvg", "IID twin"), within=2.0),),
        differences=(
            "The paper has Stack Overflow, which is not at hand; the claim is tested on another natural split.",
            "The twins count as equal within two points of accuracy over the last tenth of the rounds.",
        ),
        scenes=scenes,
        entrants=grid({"FedAvg": Entrant("fedavg")}, scenes),
        statistics={"": last_tenth_accuracy},
        sizes={"smoke": Size(1, examples=600), "small": Size(60), "full": Size(500)},
    )


FIGURE_1_FEMNIST = _twins("wang2024_figure_1_femnist", "Fig. 1, FEMNIST by writer", "femnist", "FEMNIST")
FIGURE_1_MNIST = _twins("wang2024_figure_1_mnist", "Fig. 1, MNIST by writer", "mnist_writers", "MNIST")

_SPLITS: dict[str, Partitioner] = {
    "natural": NaturalIdPartitioner(),
    "one label": PathologicalPartitioner(1),
}
_STEPS = (2, 10, 20)
_EXAMPLES: dict[Scale, int | None] = {"smoke": 1_500, "small": 6_000, "full": None}
_RATIO = "drift over its bound"
_SPLIT_LR = consensus_femnist().solver.optimizer.lr


def _worlds(request: Request, seed: int) -> dict[str, SimulatedWorld]:
    """FEMNIST by writer, and the same examples dealt to as many clients by label."""
    source = source_of("femnist", request.data)
    examples = _EXAMPLES[request.scale]
    if examples is not None:
        source = Excerpt(source, examples)
    natural = replace(source, partition=_SPLITS["natural"])
    num_clients = Experiment(natural, presets.fedavg(lr=_SPLIT_LR), 1, seed=seed).load().train.num_clients
    worlds = {}
    for name, partition in _SPLITS.items():
        dealt = (
            natural if name == "natural" else replace(source, partition=partition, num_clients=num_clients)
        )
        experiment = Experiment(
            dealt,
            presets.fedavg(lr=_SPLIT_LR),
            1,
            task=Task(LogisticRegression()),
            seed=seed,
            device=request.device,
        )
        world = experiment.build().world
        assert isinstance(world, SimulatedWorld)
        worlds[name] = world
    return worlds


def _at_optimum(request: Request, seed: int) -> Mapping[Cell, float]:
    figures = {}
    for name, world in _worlds(request, seed).items():
        optimum = near_optimum(world, iterations=40 if request.scale == "smoke" else 150)
        report = consensus_test(world, optimum.params, _SPLIT_LR, steps=_STEPS, centred=False)
        for drift in report.drifts:
            figures[Cell(name, f"{_RATIO}, H = {drift.steps}")] = drift.ratio
    return figures


def _on_the_way(request: Request, seed: int) -> Mapping[Cell, float]:
    rounds = {"smoke": (2, 4), "small": (50, 100), "full": (50, 100)}[request.scale]
    world = _worlds(request, seed)["natural"]
    run = Federation(presets.fedavg(**_PEOPLE.client_side()), world, seed)
    figures = {}
    for count in rounds:
        for _ in run.train(count - run.state.round):
            pass
        report = consensus_test(world, run.params, _SPLIT_LR, steps=_STEPS)
        place = "earlier round" if count == rounds[0] else "later round"
        for drift in report.drifts:
            figures[Cell(place, f"{_RATIO}, H = {drift.steps}")] = drift.ratio
    return figures


_MODEL = (
    "The model is softmax regression, not the paper's network; `docs/consensus.md` has convolutional ones."
)

FIGURE_3 = Computed(
    name="wang2024_figure_3",
    reference="wang2024unreasonable",
    where="Fig. 3",
    claim="At the optimum the mean drift of naturally split clients nearly vanishes, while that of an artificial split "
    "is close to its bound.",
    claims=(
        *(Less(Cell("natural", f"{_RATIO}, H = {steps}"), 0.2) for steps in _STEPS),
        *(Less(0.5, Cell("one label", f"{_RATIO}, H = {steps}")) for steps in _STEPS),
    ),
    differences=(
        _MODEL,
        "The artificial split is FEMNIST with one label a client; the paper has CIFAR-100.",
        "A ratio near 1 also comes from a point that is not yet an optimum (`docs/consensus.md`).",
    ),
    compute=_at_optimum,
    what={
        "smoke": "FEMNIST, 1,500 examples, 40 iterations to the optimum",
        "small": "FEMNIST, 6,000 examples, 150 iterations to the optimum",
        "full": "FEMNIST, all examples, 150 iterations to the optimum",
    },
    data=("femnist",),
    on_device=True,
    judged_at=("small", "full"),
)

FIGURE_4 = Computed(
    name="wang2024_figure_4",
    reference="wang2024unreasonable",
    where="Fig. 4",
    claim="On the way of FedAvg the mean drift of naturally split clients is several times below its bound.",
    claims=tuple(
        Less(Cell(place, f"{_RATIO}, H = {steps}"), 0.5)
        for place in ("earlier round", "later round")
        for steps in _STEPS
    ),
    differences=(_MODEL, "Gradients are centred, since the mean gradient on the way is not heterogeneity."),
    compute=_on_the_way,
    what={
        "smoke": "FEMNIST, 1,500 examples, after 2 and 4 rounds",
        "small": "FEMNIST, 6,000 examples, after 50 and 100 rounds",
        "full": "FEMNIST, all examples, after 50 and 100 rounds",
    },
    data=("femnist",),
    on_device=True,
    judged_at=("small", "full"),
)
