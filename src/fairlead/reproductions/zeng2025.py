"""Zeng 2025: methods with and without the projection on FedAWARE's direction."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from fairlead.clients.tokenizers import HashedWords
from fairlead.models.convolutional import FiveLayerCNN, ResNet18
from fairlead.models.sequences import TextTransformer
from fairlead.reproductions import trained
from fairlead.reproductions.claims import Best, Claim, Less, Published, TableCell
from fairlead.reproductions.reproduction import Scale
from fairlead.reproductions.trained import Size, TableColumn, TableRow, TrainedTable
from fairlead.reproductions.zeng2023 import DIFFERENCE, PRINTED, SIZES, released_row, released_rows, table
from fairlead.settings import Setting, fedaware_agnews, fedaware_cifar10, fedaware_cifar100, label_blocks


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
_PRINTED = {
    **{_projected(name): replace(row, aware=PRINTED) for name, row in _BASES.items()},
    "FedAWARE": TableRow("fedaware", PRINTED),
}
_WITHOUT = {**_BASES, "FedDyn": TableRow("feddyn", {"alpha": 0.01})}
_METHODS = _WITHOUT | _PRINTED | released_rows(_PRINTED)
_DIFFERENCES = (
    DIFFERENCE,
    "The released script of × AWARE on CIFAR-10 runs with random epochs and batch sizes; here as printed.",
    "Hyper-parameters are those of the released scripts or originals, since the paper prints grids.",
)
_table = partial(table, reference="zeng2025fedaware", statistics=_STATISTICS)

PrintedRows = Mapping[str, tuple[float, float | None, float | None, float | None]]
"""Accuracy and e-LUDD of a method without AWARE, then with it."""


def _published(title: str, rows: PrintedRows) -> dict[TableCell, Published]:
    """The paper's figures; those with AWARE stand beside both variants of it."""
    found: dict[TableCell, Published] = {}
    for row, numbers in rows.items():
        projected = _projected(row)
        places = [(row, _ACCURACY), (row, _DIVERSITY), (projected, _ACCURACY), (projected, _DIVERSITY)]
        for (name, figure), number in zip(places, numbers, strict=True):
            if number is None:
                continue
            variants = (name, released_row(name)) if name in _PRINTED else (name,)
            found |= {TableCell(variant, f"{title}: {figure}"): Published(number) for variant in variants}
    return found


def _claims(
    title: str, published: Mapping[TableCell, Published], variant: Callable[[str], str] = str
) -> tuple[Claim, ...]:
    """What the paper's own figures show: gains by the projection, and methods behind FedAWARE.

    `variant` turns the name of a method with AWARE into that of the variant that is judged.
    """
    accuracy = f"{title}: {_ACCURACY}"
    aware = variant("FedAWARE")
    behind = tuple(
        name
        for name in _WITHOUT
        if published[TableCell(name, accuracy)].value < published[TableCell(aware, accuracy)].value
    )
    pairs = [
        (TableCell(name, f"{title}: {figure}"), TableCell(variant(_projected(name)), f"{title}: {figure}"))
        for figure in _STATISTICS
        for name in _BASES
    ]
    return (
        *(
            Less(base, projected)
            for base, projected in pairs
            if published[base].value < published[projected].value
        ),
        Best(aware, accuracy, behind),
    )


def _table_2(
    name: str,
    title: str,
    column: TableColumn,
    rows: PrintedRows,
    rounds: int,
    smaller: Mapping[Scale, Size] | None = None,
    differences: tuple[str, ...] = (),
) -> TrainedTable:
    published = _published(title, rows)
    return _table(
        name=name,
        where=f"Table 2, {title}",
        claim=f"On {title} the projection on FedAWARE's direction makes methods more accurate and their updates more "
        "diverse, and FedAWARE is more accurate than methods without it.",
        claims=_claims(title, published),
        released=_claims(title, published, released_row),
        published=published,
        differences=(*differences, *_DIFFERENCES),
        columns={title: column},
        rows=_METHODS,
        sizes={**SIZES, **(smaller or {}), "full": Size(rounds)},
    )


TABLE_2_CIFAR10 = _table_2(
    "zeng2025_table_2_cifar10",
    "CIFAR-10",
    TableColumn(fedaware_cifar10(), "cifar10", FiveLayerCNN()),
    {
        "FedAvg": (42.78, 2.58, 49.25, 3.08),
        "FedAvgM": (50.07, 2.17, 59.58, 2.92),
        "FedCM": (47.84, 2.99, 49.13, 3.09),
        "FedDyn": (54.87, None, None, None),
        "FedProx": (46.33, 2.81, 49.40, 2.87),
        "FedYogi": (54.62, 2.47, 54.92, 2.66),
        "FedAMS": (57.09, 2.46, 58.45, 2.67),
        "FedAWARE": (59.78, 2.90, None, None),
    },
    rounds=500,
)

TABLE_2_CIFAR100 = _table_2(
    "zeng2025_table_2_cifar100",
    "CIFAR-100",
    TableColumn(fedaware_cifar100(), "cifar100", ResNet18()),
    {
        "FedAvg": (28.69, 2.94, 32.72, 3.61),
        "FedAvgM": (31.04, 2.72, 40.66, 3.37),
        "FedCM": (30.62, 2.94, 33.09, 3.63),
        "FedDyn": (39.04, None, None, None),
        "FedProx": (27.20, 2.95, 32.68, 3.62),
        "FedYogi": (37.12, 2.61, 44.02, 3.27),
        "FedAMS": (38.19, 2.42, 45.20, 3.13),
        "FedAWARE": (38.77, 2.75, None, None),
    },
    rounds=600,
    smaller={"smoke": Size(1, examples=1_000, model=FiveLayerCNN())},
    differences=(
        "The paper prints a gain of 2.04 for FedCM; its own accuracies differ by 2.47.",
        "FedDyn is ahead of FedAWARE in the paper's own table, so that no lead over it is claimed.",
    ),
)


def _news_setting() -> Setting:
    """A model that starts from scratch needs longer steps than one that was trained before."""
    setting = fedaware_agnews()
    optimizer = replace(setting.solver.optimizer, lr=0.1)
    return replace(setting, solver=replace(setting.solver, optimizer=optimizer))


_SMALL_TRANSFORMER = TextTransformer(32, layers=1, vocabulary=HashedWords().vocabulary, padding=0)

TABLE_2_AGNEWS = _table_2(
    "zeng2025_table_2_agnews",
    "AG News",
    TableColumn(_news_setting(), "ag_news"),
    {
        "FedAvg": (79.27, 1.25, 80.21, 1.98),
        "FedAvgM": (81.85, 1.38, 83.15, 1.85),
        "FedCM": (80.79, 1.26, 80.24, 1.76),
        "FedDyn": (84.47, None, None, None),
        "FedProx": (76.81, 1.15, 80.13, 1.83),
        "FedYogi": (83.15, 1.43, 85.89, 2.01),
        "FedAMS": (83.33, 1.34, 86.08, 1.92),
        "FedAWARE": (87.70, 1.73, None, None),
    },
    rounds=300,
    smaller={
        "smoke": Size(1, examples=200, model=_SMALL_TRANSFORMER),
        "small": Size(50, examples=4_000, model=_SMALL_TRANSFORMER),
    },
    differences=(
        "The paper fine-tunes Pythia-70M, whose weights must be fetched; here a small transformer learns hashed words "
        "from scratch, with a learning rate of 0.1 instead of 0.0001. Accuracies cannot be compared, gains can.",
        "FedCM loses accuracy by the projection in the paper's own table, so that no gain is claimed for it.",
        "The released loader trains on one batch a round and tests on 1,024 texts; here on all.",
    ),
)

FIGURE_1 = _table(
    name="zeng2025_figure_1",
    where="Figs. 1 and 7",
    claim="The more clients' labels differ, the less accurate FedAvg is on CIFAR-10, and the less diverse its "
    "updates are.",
    claims=tuple(
        Less(TableCell("FedAvg", f"Dir({more}): {figure}"), TableCell("FedAvg", f"Dir({less}): {figure}"))
        for figure in _STATISTICS
        for more, less in ((0.1, 1), (0.5, 10))
    ),
    differences=("The figures are curves; their means over rounds are compared.",),
    columns={
        f"Dir({alpha:g})": TableColumn(fedaware_cifar10(alpha), "cifar10", FiveLayerCNN())
        for alpha in (0.1, 0.5, 1.0, 10.0)
    },
    rows={"FedAvg": TableRow("fedavg")},
)

_ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)
_ADAPTIVE = {f"α = {alpha}": TableRow("fedaware", {"alpha": alpha}) for alpha in _ALPHAS}
_STATIC = {f"FedAWARE-NA, α = {alpha}": TableRow("fedaware_na", {"alpha": alpha}) for alpha in _ALPHAS}


def _ahead_of_static(variant: Callable[[str], str] = str) -> tuple[Claim, ...]:
    return tuple(
        Less(TableCell(static, f"CIFAR-10: {figure}"), TableCell(variant(row), f"CIFAR-10: {figure}"))
        for figure in _STATISTICS
        for static, row in zip(_STATIC, _ADAPTIVE, strict=True)
    )


FIGURE_4 = _table(
    name="zeng2025_figure_4",
    where="Fig. 4",
    claim="FedAWARE is more accurate and more diverse than its memory with static weights, for every α.",
    claims=_ahead_of_static(),
    released=_ahead_of_static(released_row),
    differences=_DIFFERENCES[:1],
    columns={"CIFAR-10": TableColumn(fedaware_cifar10(), "cifar10", FiveLayerCNN())},
    rows={
        **_ADAPTIVE,
        **released_rows(_ADAPTIVE),
        **_STATIC,
        "FedAvg-Full": TableRow("fedavg", {"cohort_size": None}),
    },
)

FIGURE_6 = _table(
    name="zeng2025_figure_6",
    where="Fig. 6",
    claim="Updates of clients become less similar in later rounds.",
    claims=(
        Less(
            TableCell("FedAvg", "label blocks: last rounds"),
            TableCell("FedAvg", "label blocks: first rounds"),
        ),
    ),
    differences=("The figure has cosine matrices; their mean entry is compared.",),
    columns={"label blocks": TableColumn(label_blocks(), "cifar10", FiveLayerCNN())},
    rows={"FedAvg": TableRow("fedavg")},
    statistics={"first rounds": trained.early_coherence, "last rounds": trained.late_coherence},
    sizes={**SIZES, "full": Size(150)},
)
