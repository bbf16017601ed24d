"""Claims of papers as comparisons of figures and curves."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise, product
from typing import Any, ClassVar, Literal, NamedTuple

from fairlead.results.curves import Curve, tenth
from fairlead.results.estimates import mean_of, paired_difference


class TableCell(NamedTuple):
    """A place in a table."""

    row: str
    """Usually the method."""
    column: str
    """Usually the setting and the statistic."""

    def __str__(self) -> str:
        return f"{self.row} ({self.column})" if self.column else self.row


class Published(NamedTuple):
    """A number as a paper prints it."""

    value: float
    """Infinite where the paper says that a target was never reached."""
    spread: float | None = None
    """The number after ±."""


BySeed = Mapping[int, float]
Results = Mapping[TableCell, BySeed]
"""Measured figures; cells without runs are missing."""
Curves = Mapping[TableCell, Mapping[int, Curve]]
"""Measured curves by seed, in columns of their own."""
Measurements = Mapping[TableCell, Mapping[int, Any]]
"""Figures and curves together: a claim knows which of them its cells hold."""


def mean(values: BySeed) -> float:
    """Over seeds; infinite if one of them is."""
    return sum(values.values()) / len(values)


Noise = Literal["beyond", "within", "one seed"]
"""Whether the difference of two figures exceeds the noise over seeds; one seed cannot tell."""
CheckState = Literal["holds", "fails", "lacks runs", "needs failed runs"]


class Comparison(NamedTuple):
    """The result of comparing a claim with figures."""

    holds: bool
    numbers: str
    noise: Noise | None = None
    """None where a claim is about a number or has a margin of its own, or a figure is infinite."""


@dataclass(frozen=True)
class Check:
    """A claim with its comparison with our figures."""

    statement: str
    holds: bool | None
    """None where a figure is missing."""
    numbers: str
    """The figures compared, or the missing ones."""
    seeds: int = 0
    """Number of seeds that all of its figures share."""
    on: int = 0
    """Number of these seeds on which it holds."""
    missing: tuple[str, ...] = ()
    """Names of the missing figures of an open comparison."""
    noise: str | None = None
    """That of its `Comparison`."""
    failed: tuple[str, ...] = ()
    """The missing figures whose runs failed."""

    @property
    def state(self) -> CheckState:
        """The result in words."""
        if self.holds is not None:
            return "holds" if self.holds else "fails"
        return "needs failed runs" if self.missing and self.missing == self.failed else "lacks runs"


class Claim(ABC):
    """A statement about the figures or curves of a table."""

    required: ClassVar[int | None] = None
    """How many of `cells`, from the first, it needs to fail; None: all of them."""

    @property
    @abstractmethod
    def cells(self) -> tuple[TableCell, ...]:
        """The figures that it needs."""

    @property
    @abstractmethod
    def statement(self) -> str:
        """The claim in words."""

    @abstractmethod
    def compare(self, results: Measurements) -> Comparison:
        """Whether it holds of the figures that are there, and the numbers behind that."""

    def judge(self, results: Measurements, failed: Collection[TableCell] = ()) -> Check:
        """The claim against our figures, over the seeds that they share; runs of `failed` ones are known to fail.

        With some of its figures it may fail, but not hold.
        """
        there = [cell for cell in self.cells if results.get(cell)]
        missing = tuple(str(cell) for cell in self.cells if cell not in there)
        lost = tuple(str(cell) for cell in self.cells if cell not in there and cell in failed)
        lacking = _lacking(missing, lost)
        if not set(self.cells[: self.required]) <= set(there) or (missing and len(there) < 2):
            return Check(self.statement, None, lacking, missing=missing, failed=lost)
        shared = sorted(set.intersection(*(set(results[cell]) for cell in there)))
        if not shared:
            seed = "a seed that all figures have"
            return Check(self.statement, None, f"missing: {seed}", missing=(seed,))
        holds, numbers, noise = self.compare(_over(shared, there, results))
        on = sum(self.compare(_over([seed], there, results)).holds for seed in shared)
        if missing and holds:
            return Check(self.statement, None, f"{numbers}; {lacking}", len(shared), on, missing, failed=lost)
        return Check(self.statement, holds, numbers, len(shared), on, noise=noise)


Operand = TableCell | float
"""A figure of the table, or a number."""


@dataclass(frozen=True)
class _TwoSided(Claim, ABC):
    """Claims about two figures, or a figure and a number."""

    left: Operand
    right: Operand

    @property
    def cells(self) -> tuple[TableCell, ...]:
        return tuple(side for side in (self.left, self.right) if isinstance(side, TableCell))


@dataclass(frozen=True)
class Less(_TwoSided):
    """`left` < `factor` · `right`.

    Two cells are compared over the seeds that they share, and the check says whether their difference exceeds the
    noise over seeds.
    """

    factor: float = 1.0

    @property
    def statement(self) -> str:
        times = "" if self.factor == 1 else f"{self.factor:g} times "
        return f"{_named(self.left)} is below {times}{_named(self.right)}"

    def compare(self, results: Results) -> Comparison:
        left, right = _value(self.left, results), _value(self.right, results)
        holds, numbers = left < self.factor * right, f"{left:.4g} against {right:.4g}"
        if isinstance(self.left, TableCell) and isinstance(self.right, TableCell) and self.factor == 1:
            words, noise = _against_noise(results[self.left], results[self.right])
            return Comparison(holds, numbers + words, noise)
        return Comparison(holds, numbers)


@dataclass(frozen=True)
class Near(_TwoSided):
    """`left` differs from `right` by at most `within`."""

    within: float

    @property
    def statement(self) -> str:
        return f"{_named(self.left)} is {_named(self.right)} within {self.within:g}"

    def compare(self, results: Results) -> Comparison:
        left, right = _value(self.left, results), _value(self.right, results)
        return Comparison(abs(left - right) <= self.within, f"{left:.4g} against {right:.4g}")


@dataclass(frozen=True)
class Best(Claim):
    """`row` has the largest figure of a column, or the smallest, among itself and `others`.

    The check says whether its difference to the best of the others exceeds the noise over seeds.
    """

    row: str
    column: str
    others: tuple[str, ...]
    smallest: bool = False

    required = 1

    @property
    def cells(self) -> tuple[TableCell, ...]:
        return tuple(TableCell(row, self.column) for row in (self.row, *self.others))

    @property
    def statement(self) -> str:
        kind = "smallest" if self.smallest else "largest"
        among = f" in {self.column}" if self.column else ""
        return f"{self.row} is the {kind}{among}"

    def compare(self, results: Results) -> Comparison:
        ours = results[TableCell(self.row, self.column)]
        own = mean(ours)
        cells = {row: TableCell(row, self.column) for row in self.others}
        figures = {row: mean(results[cell]) for row, cell in cells.items() if cell in results}
        rival = (min if self.smallest else max)(figures, key=lambda row: figures[row])
        ahead = own < figures[rival] if self.smallest else own > figures[rival]
        words, noise = _against_noise(ours, results[cells[rival]])
        return Comparison(ahead, f"{own:.4g} against {figures[rival]:.4g} of {rival}{words}", noise)


@dataclass(frozen=True)
class Falling(Claim):
    """The figures of a column fall from row to row."""

    rows: tuple[str, ...]
    column: str

    @property
    def cells(self) -> tuple[TableCell, ...]:
        return tuple(TableCell(row, self.column) for row in self.rows)

    @property
    def statement(self) -> str:
        return f"{self.column} falls from {self.rows[0]} to {self.rows[-1]}"

    def compare(self, results: Results) -> Comparison:
        figures = [mean(results[cell]) for cell in self.cells]
        falls = all(later < earlier for earlier, later in pairwise(figures))
        return Comparison(falls, ", ".join(f"{figure:.3g}" for figure in figures))


When = Literal["", "half a run before", "half a run after"]
_SHIFTS: dict[When, float] = {"": 0.0, "half a run before": 0.5, "half a run after": -0.5}


@dataclass(frozen=True)
class CurveAbove(_TwoSided):
    """`left` exceeds `right` in at least `share` of the rounds after the first tenth, and in the mean of the last.

    With `when`, `right` is read half a run before or after: a curve above itself half a run before rises, and one above
    itself half a run after falls. Rounds count in which both were measured; shares and differences are means over
    seeds. The check gives the mean difference after the first tenth, the area between the curves, and says whether it
    exceeds the noise over seeds.
    """

    share: float = 0.9
    when: When = ""

    @property
    def statement(self) -> str:
        right = f"{self.right} {self.when}".rstrip()
        return f"{self.left} is above {right} in {self.share:.0%} of the rounds and at the end"

    def compare(self, results: Curves) -> Comparison:
        upper, lower = results[self.cells[0]], results[self.cells[1]]
        shift = {seed: int(_SHIFTS[self.when] * len(curve)) for seed, curve in upper.items()}
        gaps = {seed: curve.minus(lower[seed], shift[seed]) for seed, curve in upper.items()}
        late = {seed: gap[len(gap) // 10 :] for seed, gap in gaps.items()}
        share = mean_of([sum(value > 0 for value in gap) / len(gap) for gap in late.values()])
        end = mean_of([mean_of(gap[-tenth(len(gap)) :]) for gap in gaps.values()])
        area = {seed: mean_of(gap) for seed, gap in late.items()}
        words, noise = _against_noise(area, dict.fromkeys(area, 0.0))
        numbers = f"{share:.0%} of the rounds, {end:+.3g} at the end, {mean(area):+.3g} on average{words}"
        return Comparison(share >= self.share and end > 0, numbers, noise)


def below(
    lower: Iterable[str], upper: Iterable[str], columns: Iterable[str], share: float | None = None
) -> tuple[Claim, ...]:
    """Every row of `lower` has smaller figures than every row of `upper`, in every column; with `share`, curves."""
    cells = [(TableCell(low, name), TableCell(up, name)) for name, low, up in product(columns, lower, upper)]
    return tuple(Less(low, up) if share is None else CurveAbove(up, low, share) for low, up in cells)


def published_table(name: str) -> dict[TableCell, Published]:
    """The numbers of a table in the folder `printed`, as its paper prints it."""
    file = files("fairlead.reproductions").joinpath(f"printed/{name}.txt")
    return read_table(file.read_text(encoding="utf-8"))


def read_table(text: str) -> dict[TableCell, Published]:
    """The numbers of a table: columns two blanks apart, their names in the first line.

    >>> table = read_table('''
    ...             E = 2         E ~ U(2, 5)
    ...     FedAvg  60.68 ± 1.05  64.22
    ...     MIFA    –             never
    ... ''')
    >>> table[TableCell("FedAvg", "E = 2")]
    Published(value=60.68, spread=1.05)
    >>> len(table), table[TableCell("MIFA", "E ~ U(2, 5)")].value
    (3, inf)
    """
    header, *rows = (
        re.split(r"\s{2,}", line.strip()) for line in text.strip("\n").splitlines() if line.strip()
    )
    found = {}
    for name, *numbers in rows:
        for column, number in zip(header, numbers, strict=True):
            if number != "–":
                value, _, spread = number.replace("never", "inf").partition(" ± ")
                found[TableCell(name, column)] = Published(float(value), float(spread) if spread else None)
    return found


def _against_noise(left: BySeed, right: BySeed) -> tuple[str, Noise | None]:
    """A difference as numbers go on, and where it stands to the noise over seeds."""
    difference = paired_difference(left, right)
    if difference is None or not math.isfinite(difference.mean):
        return "", None
    if difference.half_width is None:
        return "", "one seed" if difference.count == 1 else "within"
    noise: Noise = "beyond" if difference.excludes_zero else "within"
    return f", {difference.text('number', sign=True)}: {noise} the noise", noise


def _over(seeds: Sequence[int], cells: Sequence[TableCell], results: Measurements) -> Measurements:
    """Figures at some seeds alone."""
    return {cell: {seed: results[cell][seed] for seed in seeds} for cell in cells}


def _lacking(missing: Sequence[str], failed: Sequence[str]) -> str:
    """The figures that are missing, and those of runs that failed."""
    never_run = [name for name in missing if name not in failed]
    words = (("missing", never_run), ("failed", failed))
    return "; ".join(f"{what}: {', '.join(names)}" for what, names in words if names)


def _named(operand: Operand) -> str:
    return str(operand) if isinstance(operand, TableCell) else f"{operand:g}"


def _value(operand: Operand, results: Results) -> float:
    return mean(results[operand]) if isinstance(operand, TableCell) else operand


Verdict = Literal["holds", "does not hold", "open", "not judged", "not run"]
"""Open: runs that a comparison needs are missing or failed; not judged: the scale cannot test the claim; not run:
there are no figures."""
_COUNTED: dict[CheckState, tuple[str, str]] = {
    "fails": ("fails", "fail"),
    "lacks runs": ("lacks runs", "lack runs"),
    "needs failed runs": ("needs a run that failed", "need runs that failed"),
    "holds": ("holds", "hold"),
}
"""What one comparison does, and several."""


@dataclass(frozen=True)
class Judgement:
    """A verdict, why it is not simply "holds", and the comparisons behind it."""

    verdict: str
    """One of `Verdict`."""
    reason: str
    checks: tuple[Check, ...]


def judge(claims: Sequence[Claim], results: Measurements, failed: Collection[TableCell] = ()) -> Judgement:
    """All claims against our figures: one that fails is enough, and one that lacks runs leaves the rest open."""
    checks = tuple(claim.judge(results, failed) for claim in claims)
    held = {check.holds for check in checks}
    verdict: Verdict = "does not hold" if False in held else "open" if None in held else "holds"
    facts = [] if verdict == "holds" else [_tally(checks)]
    seeds = len(set[int]().union(*results.values()))
    shared = [check.seeds for check in checks if check.holds is not None]
    fewest = min(shared, default=seeds)
    if fewest < seeds:
        which = "each comparison rests" if fewest == max(shared) else "some comparisons rest"
        facts.append(f"{which} on {fewest} of {seeds} seeds")
    words = "; ".join(facts)
    reason = f"{words[0].upper()}{words[1:]}." if words else ""
    return Judgement(verdict, reason, checks)


def worded(verdict: str, checks: Sequence[Check]) -> str:
    """A verdict, and where the comparisons that decide it stand to the noise over seeds."""
    if verdict not in ("holds", "does not hold"):
        return verdict
    deciding = [check.noise for check in checks if check.holds is (verdict == "holds")]
    within = deciding.count("within")
    if within == len(deciding) > 0:
        return f"{verdict}, within the noise over seeds"
    if within:
        what = "comparisons" if verdict == "holds" else "failing comparisons"
        return f"{verdict}, {within} of {len(deciding)} {what} within the noise over seeds"
    if set(deciding) - {None} == {"one seed"}:
        return f"{verdict}, but one seed cannot tell it from noise"
    return verdict


def _tally(checks: Sequence[Check]) -> str:
    """How many comparisons fail, lack runs or need some that failed, and hold."""
    words: list[str] = []
    for state, (one, many) in _COUNTED.items():
        number = sum(check.state == state for check in checks)
        if number:
            of_all = "" if words else f" of {len(checks)} comparisons"
            words.append(f"{number}{of_all} {one if number == 1 else many}")
    return ", ".join(words)
