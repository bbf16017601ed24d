"""Zeng 2025: methods with and without the projection on FedAWARE's direction."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from fairlead import settings
from fairlead.clients.tokenizers import HashedWords
from fairlead.diagnostics.clients import label_counts
from fairlead.memory.update_memory import UpdateMemory
from fairlead.models.augmentation import Normalize
from fairlead.models.convolutional import FiveLayerCNN, ResNet18
from fairlead.models.sequences import TextTransformer
from fairlead.reproductions import trained
from fairlead.reproductions.claims import Best, Claim, CurveAbove, Less, TableCell, below, published_table
from fairlead.reproductions.data_sets import CIFAR10_AUGMENTED
from fairlead.reproductions.reproduction import Computation, Request, Scale, words
from fairlead.reproductions.trained import Size, TableColumn, TableRow, TrainedTable
from fairlead.reproductions.zeng2023 import (
    RIDGE,
    SIZES,
    as_published,
    cifar10,
    regularized,
    table,
)
from fairlead.settings import Setting


def _projected(name: str) -> str:
    return f"{name} × AWARE"


_ACCURACY, _DIVERSITY = "accuracy", "e-LUDD"
_STATISTICS = {_ACCURACY: trained.last_tenth_accuracy, _DIVERSITY: trained.mean_elud}
_BASES = {
    "FedAvg": TableRow("fedavg"),
    "FedAvgM": TableRow("fedavgm", {"server_momentum": 0.7}),
    "FedCM": TableRow("fedcm", {"alpha": 0.1}),
    "FedProx": TableRow("fedprox", {"mu": 0.01}),
    "FedYogi": TableRow("fedyogi", {"server_lr": 0.01}),
    "FedAMS": TableRow("fedams", {"server_lr": 0.01}),
}
_WITHOUT = {**_BASES, "FedDyn": TableRow("feddyn", {"alpha": 0.01})}
_UNIFORM = "FedAWARE as published, uniform cohorts"


def _as_run(name: str) -> str:
    """The name of a method with AWARE as the authors ran it for this paper, without sampling by λ."""
    return _UNIFORM if name == "FedAWARE" else as_published(name)


_VARIANTS: dict[Callable[[str], str], tuple[Mapping[str, Any], TableRow]] = {
    str: ({}, TableRow("fedaware")),
    _as_run: (
        {
            "rows": "unit",
            "start": "full_first_round",
            "first_visit": "scaled",
            "memory": UpdateMemory(credit="exchanged"),
        },
        TableRow("fedaware_published", {"feedback": False}),
    ),
    regularized: (
        {"rows": "unit", "start": "full_first_round", "rho": 1.0},
        TableRow("fedaware_ridge", RIDGE),
    ),
}
"""Arguments of the projection, and FedAWARE itself: as printed, as published and with a regularized hull."""
_AWARE = {
    variant(name): row
    for variant, (arguments, fedaware) in _VARIANTS.items()
    for name, row in (
        *((_projected(name), replace(row, aware=arguments)) for name, row in _BASES.items()),
        ("FedAWARE", fedaware),
    )
}

_table = partial(table, statistics=_STATISTICS)

_PRINTED_TABLE = published_table("zeng2025_table_2")
_TABLE_2 = {
    TableCell(_projected(method) if row.endswith("× AWARE") else method, row.removesuffix(" × AWARE")): found
    for (row, method), found in _PRINTED_TABLE.items()
}


def _claims(title: str, column: str, variant: Callable[[str], str]) -> tuple[Claim, ...]:
    """What the paper's own figures show: gains by the projection, and methods behind FedAWARE.

    `variant` turns the name of a method with AWARE into that of the variant that is judged, in `column`.
    """

    def is_below(row: str, other: str, figure: str) -> bool:
        printed = f"{title}: {figure}"
        return _TABLE_2[TableCell(row, printed)].value < _TABLE_2[TableCell(other, printed)].value

    gains = [
        claim
        for figure in _STATISTICS
        for name in _BASES
        if is_below(name, _projected(name), figure)
        for claim in below([name], [variant(_projected(name))], [f"{column}: {figure}"])
    ]
    behind = tuple(name for name in _WITHOUT if is_below(name, "FedAWARE", _ACCURACY))
    return (*gains, Best(variant("FedAWARE"), f"{column}: {_ACCURACY}", behind))


def _table_2(
    name: str,
    title: str,
    columns: Mapping[str, TableColumn],
    full: Size,
    smaller: Mapping[Scale, Size] | None = None,
    shares: tuple[str, ...] = (),
) -> TrainedTable:
    """Claims are judged in the first column, on the printed form and on the method as published."""
    judged, *_ = columns
    published = {
        TableCell(variant(cell.row), cell.column.replace(title, column)): figure
        for cell, figure in _TABLE_2.items()
        if cell.column.startswith(f"{title}: ")
        for column in columns
        for variant in ((str, _as_run, as_published) if cell.row in _AWARE else (str,))
    }
    return _table(
        **words(f"zeng2025_table_2_{name}"),
        claims=_claims(title, judged, str),
        released=_claims(title, judged, _as_run),
        published=published,
        columns=columns,
        rows=_WITHOUT | _AWARE | {as_published("FedAWARE"): TableRow("fedaware_published")},
        sizes={**SIZES, **(smaller or {}), "full": full},
        shares=shares,
    )


TABLE_2_CIFAR10 = _table_2(
    "cifar10",
    "CIFAR-10",
    {"Hybrid": cifar10(settings.hybrid()), "Hybrid+": cifar10(settings.hybrid_plus())},
    Size(500),
    shares=("zeng2023_table_1",),
)

_CIFAR100 = Normalize((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))

TABLE_2_CIFAR100 = _table_2(
    "cifar100",
    "CIFAR-100",
    {
        "CIFAR-100": TableColumn(
            settings.fedaware_cifar100(), "cifar100", ResNet18(), (*CIFAR10_AUGMENTED[:2], _CIFAR100)
        )
    },
    Size(600, evaluate_every=5),
    smaller={"smoke": Size(1, examples=1_000, model=FiveLayerCNN())},
)


def _news_setting() -> Setting:
    """A model that starts from scratch needs longer steps than one that was trained before."""
    setting = settings.fedaware_agnews()
    optimizer = replace(setting.solver.optimizer, lr=0.1)
    return replace(setting, solver=replace(setting.solver, optimizer=optimizer))


_SMALL_TRANSFORMER = TextTransformer(32, layers=1, vocabulary=HashedWords().vocabulary, padding=0)

TABLE_2_AGNEWS = _table_2(
    "agnews",
    "AG News",
    {"AG News": TableColumn(_news_setting(), "ag_news")},
    Size(300),
    smaller={
        "smoke": Size(1, examples=1_000, model=_SMALL_TRANSFORMER),
        "small": Size(50, examples=4_000, model=_SMALL_TRANSFORMER),
    },
)

_ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)
_ADAPTIVE = {f"α = {alpha}": TableRow("fedaware", {"alpha": alpha}) for alpha in _ALPHAS}
_ADAPTIVE_RUN = {
    as_published(f"α = {alpha}"): TableRow("fedaware_published", {"alpha": alpha, "feedback": False})
    for alpha in _ALPHAS
}
_STATIC = {f"FedAWARE-NA, α = {alpha}": TableRow("fedaware_na", {"alpha": alpha}) for alpha in _ALPHAS}


def _ahead_of_static(variant: Callable[[str], str] = str) -> tuple[Claim, ...]:
    return tuple(
        Less(TableCell(static, f"CIFAR-10: {figure}"), TableCell(variant(row), f"CIFAR-10: {figure}"))
        for figure in _STATISTICS
        for static, row in zip(_STATIC, _ADAPTIVE, strict=True)
    )


FIGURE_4 = _table(
    **words("zeng2025_figure_4"),
    claims=_ahead_of_static(),
    released=_ahead_of_static(as_published),
    columns={"CIFAR-10": cifar10(settings.fedaware_cifar10())},
    rows={**_ADAPTIVE, **_ADAPTIVE_RUN, **_STATIC, "FedAvg-Full": TableRow("fedavg", {"cohort_size": None})},
)

_OWN, _COHERENCE = "share of labels", TableCell("FedAvg", "label blocks: coherence curve")


_DEALT = {"CIFAR-10": TABLE_2_CIFAR10, "CIFAR-100": TABLE_2_CIFAR100, "AG News": TABLE_2_AGNEWS}


def _dealt(request: Request, seed: int) -> Mapping[TableCell, float]:
    """The mean share of all labels that a client of Table 2 has: 1/Σ q² labels, with shares q of its examples."""
    figures = {}
    for title, entry in _DEALT.items():
        counts = label_counts(entry.planned(replace(request, seeds=(seed,)))[0].experiment.load().train)
        assert counts is not None
        labels = counts.sum(1).square() / counts.square().sum(1)
        figures[TableCell(title, _OWN)] = float(labels.mean()) / counts.shape[1]
    return figures


FIGURE_5 = Computation(
    **words("zeng2025_figure_5"),
    claims=tuple(Less(TableCell(title, _OWN), 0.5) for title in _DEALT),
    compute=_dealt,
    needs=("cifar10", "cifar100", "ag_news"),
)

FIGURE_6 = _table(
    **words("zeng2025_figure_6"),
    claims=(CurveAbove(_COHERENCE, _COHERENCE, when="half a run after"),),
    columns={"label blocks": cifar10(settings.label_blocks())},
    rows={"FedAvg": TableRow("fedavg")},
    sizes={**SIZES, "full": Size(150)},
)
