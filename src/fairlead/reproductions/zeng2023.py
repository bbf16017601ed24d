"""Zeng 2023: FedAWARE under statistical, hybrid and changing hybrid heterogeneity."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from fairlead.clients.label_skew import DirichletPartitioner
from fairlead.models.base import MLP
from fairlead.models.convolutional import FiveLayerCNN
from fairlead.reproductions import trained
from fairlead.reproductions.claims import Best, Less, TableCell, below, published_table
from fairlead.reproductions.data_sets import CIFAR10_AUGMENTED
from fairlead.reproductions.reproduction import Scale
from fairlead.reproductions.trained import Size, TableColumn, TableRow, TrainedTable
from fairlead.settings import hybrid, hybrid_plus, statistical_only

PRINTED = {"alpha": 0.5}
"""Arguments of `fedaware` and `with_aware`."""
_RELEASED = {"start": "all_seen", "rows": "unit", "first_visit": "scaled"}
DIFFERENCE = (
    "The released FedAWARE scales every row to unit length, takes FedAvg's step until every client has sent an "
    'update, and scales first updates by α. Methods "with unit rows" do the same and are judged as released. The '
    "released code also samples all clients in the first ten rounds, and credits most updates, and the weights of "
    "FedAvg's steps, to another client of the same round; here clients are sampled at random and keep their updates."
)


def released_row(name: str) -> str:
    """What the released variant of a method is called."""
    return f"{name} with unit rows"


def released_rows(rows: Mapping[str, TableRow]) -> dict[str, TableRow]:
    """The released variants of methods with AWARE, be it the aggregator or the projection."""
    return {
        released_row(name): replace(row, arguments={**row.arguments, **_RELEASED})
        if row.aware is None
        else replace(row, aware={**row.aware, **_RELEASED})
        for name, row in rows.items()
    }


_BASELINES = {
    "FedAvg": TableRow("fedavg"),
    "FedAvgM": TableRow("fedavgm", {"server_momentum": 0.7}),
    "FedProx": TableRow("fedprox", {"mu": 0.01}),
    "SCAFFOLD": TableRow("scaffold"),
    "FedNova": TableRow("fednova"),
    "FedYogi": TableRow("fedyogi", {"server_lr": 0.01}),
    "FedDyn": TableRow("feddyn", {"alpha": 0.01}),
}
_UNIT_ROWS = released_row("FedAWARE")
_FEDAWARE = {"FedAWARE": TableRow("fedaware", PRINTED)}
_VARIANTS = _FEDAWARE | released_rows(_FEDAWARE)
_METHODS = _BASELINES | _VARIANTS
_SETTINGS = {"Statistical": statistical_only(), "Hybrid": hybrid(), "Hybrid+": hybrid_plus()}
_DIFFERENCES = (
    "The paper gives no number of rounds: 500 here, 1,000 in the released scripts.",
    DIFFERENCE,
    "The released FedNova cancels τ_eff, which shortens its steps (Hybrid and Hybrid+); here it is as in its paper.",
    "Hyper-parameters are those of the released scripts, since the paper prints grids.",
    "The released FedProx, SCAFFOLD and FedDyn average uniformly; here all methods weight by examples.",
)


def _columns(data: str) -> dict[str, TableColumn]:
    model = FiveLayerCNN() if data == "cifar10" else MLP(hidden=(200, 200))
    return {name: TableColumn(setting, data, model) for name, setting in _SETTINGS.items()}


SIZES: dict[Scale, Size] = {
    "smoke": Size(1, examples=1_000),
    "small": Size(50, examples=10_000),
    "full": Size(500),
}
table = partial(
    TrainedTable,
    reference="zeng2023gradient",
    statistics={"": trained.top_accuracy},
    sizes=SIZES,
    # On CIFAR-10 fifty rounds on a fifth of the data leave FedAvg at 10 to 13 %, where no claim can show.
    judged_at=("full",),
)
_CIFAR10 = _columns("cifar10")
_PRINTED_TABLE = published_table("""
              Statistical   Hybrid        Hybrid+
    FedAvg    52.40 ± 0.47  50.47 ± 0.20  46.10 ± 0.19
    FedAvgM   61.22 ± 0.23  58.13 ± 0.97  56.83 ± 0.73
    FedProx   52.38 ± 0.51  50.58 ± 0.58  47.11 ± 0.38
    SCAFFOLD  49.57 ± 0.08  50.61 ± 0.34  31.36 ± 2.80
    FedNova   52.39 ± 0.52  45.39 ± 0.32  40.98 ± 1.50
    FedYogi   61.07 ± 1.51  59.10 ± 0.52  57.64 ± 1.14
    FedDyn    58.88 ± 0.41  56.85 ± 0.28  56.13 ± 0.41
    FedAWARE  64.54 ± 0.38  61.41 ± 0.20  61.28 ± 0.39
""")

_AS_RUN = "FedAWARE as published"
_CAPPED = DirichletPartitioner(0.1, min_partition_size=10, self_balancing=True)
_AS_DEALT = {
    name: setting if name == "Statistical" else replace(setting, partition=_CAPPED)
    for name, setting in _SETTINGS.items()
}

TABLE_1 = table(
    name="zeng2023_table_1",
    where="Table 1 and Fig. 4",
    claim="On CIFAR-10 FedAWARE has the highest top accuracy in all three settings.",
    claims=tuple(Best("FedAWARE", setting, tuple(_BASELINES)) for setting in _SETTINGS),
    released=tuple(Best(_AS_RUN, setting, tuple(_BASELINES)) for setting in _SETTINGS),
    # The only figure of FedAWARE stands beside both variants.
    published=_PRINTED_TABLE
    | {TableCell(_AS_RUN, name): _PRINTED_TABLE[TableCell("FedAWARE", name)] for name in _SETTINGS},
    differences=(
        "Inputs and splits are those of the authors' runs: normalized, cropped and flipped anew at every access. "
        "Dirichlet splits are capped at a client's equal share, with ten examples or more.",
        '"As published" samples by λ, starts with a full round, and exchanges the credit of updates within a round, as '
        "the authors' runs did; the printed method does none of these.",
        *_DIFFERENCES[2:],
    ),
    columns={
        name: TableColumn(setting, "cifar10", FiveLayerCNN(), CIFAR10_AUGMENTED)
        for name, setting in _AS_DEALT.items()
    },
    rows=_BASELINES
    | _FEDAWARE
    | {_AS_RUN: TableRow("fedaware_published"), "FedAWARE, regularized hull": TableRow("fedaware_ridge")},
)

FIGURE_2 = table(
    name="zeng2023_figure_2",
    where="Fig. 2",
    claim="The more clients' labels differ, the less accurate FedAvg becomes on CIFAR-10.",
    claims=tuple(
        Less(TableCell("FedAvg", "Dir(0.1)"), TableCell("FedAvg", other))
        for other in ("Dir(0.3)", "Dir(0.5)", "Dir(0.7)")
    ),
    differences=_DIFFERENCES[:1],
    columns={
        f"Dir({alpha})": TableColumn(hybrid(alpha), "cifar10", FiveLayerCNN())
        for alpha in (0.1, 0.3, 0.5, 0.7)
    },
    rows={"FedAvg": TableRow("fedavg")},
)

FIGURE_5 = table(
    name="zeng2023_figure_5",
    where="Fig. 5",
    claim="FedAWARE keeps a higher diversity of updates than FedAvg and FedYogi.",
    claims=below(["FedAvg", "FedYogi"], ["FedAWARE"], ["Hybrid: e-LUDD"]),
    released=below(["FedAvg", "FedYogi"], [_UNIT_ROWS], ["Hybrid: e-LUDD"]),
    differences=(
        "The figure has the diversity of gradients over all clients; e-LUDD is its estimate from received updates.",
        *_DIFFERENCES[:2],
    ),
    columns={"Hybrid": _CIFAR10["Hybrid"]},
    rows={name: _METHODS[name] for name in ("FedAvg", "FedYogi", *_VARIANTS)},
    statistics={"e-LUDD": trained.mean_elud},
)

FIGURE_6 = table(
    name="zeng2023_figure_6",
    where="Fig. 6",
    claim="FedAWARE is more accurate than FedMGDA+ on CIFAR-10.",
    claims=below(["FedMGDA+"], ["FedAWARE"], ["Hybrid"]),
    released=below(["FedMGDA+"], [_UNIT_ROWS], ["Hybrid"]),
    differences=_DIFFERENCES[:2],
    columns={"Hybrid": _CIFAR10["Hybrid"]},
    rows={"FedMGDA+": TableRow("fedmgda_plus"), **_VARIANTS},
)

_SENSITIVITY = {
    f"α = {alpha}": TableRow("fedaware", {"retention": alpha}) for alpha in (0.1, 0.3, 0.5, 0.7, 0.9)
}
_RELEASED_SENSITIVITY = released_rows(_SENSITIVITY)

FIGURE_7 = table(
    name="zeng2023_figure_7",
    where="Fig. 7",
    claim="FedAWARE is more accurate than FedAvg for every α in Hybrid+.",
    claims=below(["FedAvg"], _SENSITIVITY, ["Hybrid+"]),
    released=below(["FedAvg"], _RELEASED_SENSITIVITY, ["Hybrid+"]),
    differences=("Zeng 2025 uses 1 − α instead of α.", *_DIFFERENCES[:2]),
    columns={"Hybrid+": _CIFAR10["Hybrid+"]},
    rows={"FedAvg": _METHODS["FedAvg"], **_SENSITIVITY, **_RELEASED_SENSITIVITY},
)


def _other_data(name: str, where: str, data: str, title: str) -> TrainedTable:
    return table(
        name=name,
        where=where,
        claim=f"On {title} FedAWARE is at least as accurate as FedAvg in all three settings.",
        claims=below(["FedAvg"], ["FedAWARE"], _SETTINGS),
        released=below(["FedAvg"], [_UNIT_ROWS], _SETTINGS),
        differences=("§5 of the paper names FEMNIST; its appendix has Fashion-MNIST.", *_DIFFERENCES),
        columns=_columns(data),
        rows=_METHODS,
        judged_at=("small", "full"),
        # With ten of 100 clients a round, every client has sent an update after some 50 rounds; until then the
        # released method equals FedAvg.
        released_at=("small", "full"),
        sizes={**SIZES, "small": Size(150, examples=10_000)},
    )


FIGURE_8 = _other_data("zeng2023_figure_8", "Fig. 8", "mnist", "MNIST")
FIGURE_9 = _other_data("zeng2023_figure_9", "Fig. 9", "fashion_mnist", "Fashion-MNIST")
