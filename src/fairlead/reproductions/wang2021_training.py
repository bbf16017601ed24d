"""Wang 2021 trained: Synthetic(1, 1) in Fig. 5 and CIFAR-10 in Table I."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fairlead.augmentation import HorizontalFlip, Normalize, RandomCrop
from fairlead.clients import SyntheticLogistic
from fairlead.models import VGG11
from fairlead.reproductions.claims import Less
from fairlead.reproductions.statistics import final_accuracy, late_loss
from fairlead.reproductions.table import Cell, column
from fairlead.reproductions.trained import Entrant, Scene, Size, Trained, grid
from fairlead.settings import (
    Setting,
    fednova_equal_epochs,
    fednova_random_epochs,
    fednova_synthetic,
    fednova_synthetic_partial,
    fednova_synthetic_random,
)


def _on_all_examples(setting: Setting) -> Setting:
    """Without a test set, so that the loss is that of training, as the figure has it."""
    assert isinstance(setting.clients, SyntheticLogistic)
    return replace(setting, clients=replace(setting.clients, test_fraction=0.0))


_FIGURE_5 = {
    "all asked": Scene(_on_all_examples(fednova_synthetic())),
    "30 % asked": Scene(_on_all_examples(fednova_synthetic_partial())),
    "30 % asked, random epochs": Scene(_on_all_examples(fednova_synthetic_random())),
}

FIGURE_5 = Trained(
    name="wang2021_figure_5",
    reference="wang2021fednova",
    where="Fig. 5",
    claim="On Synthetic(1, 1) FedNova has a lower training loss than FedAvg, with all clients and with some, at equal "
    "and at random epochs.",
    claims=tuple(Less(Cell("FedNova", name), Cell("FedAvg", name)) for name in _FIGURE_5),
    differences=(
        "The data follow the recipe of Synthetic(1, 1) with draws of their own, and the paper gives no number of "
        "rounds: 200 here, of which the second half counts.",
    ),
    scenes=_FIGURE_5,
    entrants=grid({"FedAvg": Entrant("fedavg"), "FedNova": Entrant("fednova")}, _FIGURE_5),
    statistics={"": late_loss},
    sizes={
        "smoke": Size(2),
        "small": Size(
            60, clients=SyntheticLogistic(1.0, 1.0, num_clients=30, max_examples=300, test_fraction=0.0)
        ),
        "full": Size(200),
    },
)


_DECAY = {"weight_decay": 1e-4}
_MOMENTUM: dict[str, Any] = {"momentum": 0.9, "lr": 0.02, **_DECAY}
_EQUAL, _RANDOM = "E = 2", "E ~ U(2, 5)"
_SCENES = {
    name: Scene(
        setting,
        "cifar10",
        VGG11(),
        augment=(
            RandomCrop(4),
            HorizontalFlip(),
            Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
        ),
    )
    for name, setting in ((_EQUAL, fednova_equal_epochs()), (_RANDOM, fednova_random_epochs()))
}


def _with_proximal(mu: float) -> dict[str, Entrant]:
    """The rows of both columns; the best μ differs between them."""
    return {
        "FedAvg": Entrant("fedavg", _DECAY),
        "FedNova": Entrant("fednova", _DECAY),
        "FedAvg, momentum": Entrant("fedavg", _MOMENTUM),
        "FedNova, momentum": Entrant("fednova", _MOMENTUM),
        "FedAvg, proximal": Entrant("fedprox", {"mu": mu, **_DECAY}),
        "FedNova, proximal": Entrant("fednova", {"mu": mu, "tau_eff": "steps", **_DECAY}),
    }


_VARIANTS = {
    "FedAvg, VR": Entrant("scaffold", _DECAY),
    "FedNova, VR": Entrant("fednova_vr", _DECAY),
    "FedNova, momentum and VR": Entrant("fednova_vr", _MOMENTUM),
    "FedNova, server momentum": Entrant("fednova", {"server_momentum": 0.9, **_DECAY}),
    "FedNova, hybrid momentum": Entrant("fednova", {"server_momentum": 0.9, **_MOMENTUM}),
}

TABLE_1 = Trained(
    name="wang2021_table_1",
    reference="wang2021fednova",
    where="Table I",
    claim="On CIFAR-10 with unequal local steps FedNova is more accurate than FedAvg with plain, momentum and "
    "proximal local solvers.",
    claims=tuple(
        Less(Cell(f"FedAvg{solver}", name), Cell(f"FedNova{solver}", name))
        for name in _SCENES
        for solver in ("", ", momentum", ", proximal")
    ),
    published={
        **column(
            _EQUAL,
            {
                "FedAvg": (60.68, 1.05),
                "FedNova": (66.31, 0.86),
                "FedAvg, momentum": (65.26, 2.42),
                "FedNova, momentum": (73.32, 0.29),
                "FedAvg, proximal": (60.44, 1.21),
                "FedNova, proximal": (69.92, 0.34),
            },
        ),
        **column(
            _RANDOM,
            {
                "FedAvg": (64.22, 1.06),
                "FedNova": (73.22, 0.32),
                "FedAvg, momentum": (70.44, 2.99),
                "FedNova, momentum": (77.07, 0.12),
                "FedAvg, proximal": (63.74, 1.44),
                "FedNova, proximal": (73.41, 0.45),
                "FedAvg, VR": (74.72, 0.34),
                "FedNova, VR": (74.72, 0.19),
                "FedNova, momentum and VR": (79.19, 0.17),
                "FedNova, server momentum": (77.49, 0.25),
                "FedNova, hybrid momentum": (81.15, 0.38),
            },
        ),
    },
    differences=(
        "The decay of the learning rate, the weight decay and the augmentation are those of the released code.",
        "Its random epochs exclude the upper end; here they are U(2, 5) as printed.",
        "Its proximal momentum lets the proximal term into the buffer; here they do not meet.",
        "Variance reduction was never released: FedAvg with it is SCAFFOLD here, FedNova with it reads raw gradients.",
        "The partition differs: the released one caps clients at an equal share.",
    ),
    scenes=_SCENES,
    entrants={
        **grid(_with_proximal(0.005), (_EQUAL,)),
        **grid({**_with_proximal(0.001), **_VARIANTS}, (_RANDOM,)),
    },
    statistics={"": final_accuracy},
    sizes={
        "smoke": Size(1, examples=640, model=VGG11(width=4)),
        "small": Size(20, examples=10_000, model=VGG11(width=16)),
        "full": Size(100),
    },
)
