"""Which method for which federation: the table of rules behind the advice.

The first row that fits decides. Rows follow the table of biases: plain averaging weights clients by
ω(1 − q)‖a‖₁, FedNova removes ‖a‖₁, methods that know or learn arrival rates remove 1 − q, FedACS removes
both, and control variates make the fixed point exact in any case.
"""

from dataclasses import dataclass, fields
from typing import Literal

from fairlead.diagnostics.evidence import Balance
from fairlead.presets import METHODS, Correctable

MIN_ROUNDS = 5
"""Rounds below which nothing is advised."""

Drifting = Literal["no", "yes", "unknown"]
Rates = Literal["told", "estimated"]
Linearity = Literal["linear", "not linear"]
Participants = Literal["everybody", "not everybody"]
Length = Literal["enough rounds", "too few rounds"]


@dataclass(frozen=True)
class Situation:
    """The facts on which the advice depends."""

    work: Balance
    links: Balance
    drift: Drifting
    """Whether the clients' local steps fail to cancel at the optimum."""
    rates: Rates = "told"
    """Whether the server knows arrival rates before a round, or has to estimate them."""
    solver: Linearity = "linear"
    """Whether the clients' updates are linear in their gradients, so that ‖a‖₁ exists."""
    reach: Participants = "everybody"
    length: Length = "enough rounds"

    @property
    def causes(self) -> frozenset[Correctable]:
        """The causes that a method has to correct here."""
        wrong: dict[Correctable, bool] = {
            "work": self.work == "unequal",
            "links": self.links == "unequal",
            "drift": self.drift == "yes",
        }
        return frozenset(cause for cause, present in wrong.items() if present)

    @property
    def missing(self) -> str:
        """The conditions that are not known, in words."""
        return " and ".join(name for name in ("work", "links") if getattr(self, name) == "unknown")


@dataclass(frozen=True)
class Case:
    """The situations that a rule is meant for; None where anything fits."""

    work: Balance | None = None
    links: Balance | None = None
    drift: Drifting | None = None
    rates: Rates | None = None
    solver: Linearity | None = None
    reach: Participants | None = None
    length: Length | None = None


@dataclass(frozen=True)
class Rule:
    """A row: when it applies, the preset to use then (None: no advice), and why."""

    case: Case
    preset: str | None
    why: str

    def fits(self, situation: Situation) -> bool:
        wanted = ((getattr(self.case, field.name), getattr(situation, field.name)) for field in fields(Case))
        return all(value is None or value == found for value, found in wanted)


RULES: tuple[Rule, ...] = (
    Rule(
        Case(length="too few rounds"),
        None,
        f"fewer than {MIN_ROUNDS} rounds were measured, too few for any advice",
    ),
    Rule(
        Case(reach="not everybody"),
        None,
        "no update ever arrives from some clients of positive weight, and no method can make up for that: repair "
        "their links, or give them weight 0",
    ),
    Rule(
        Case(drift="yes", solver="not linear"),
        "feddyn",
        "local steps do not cancel at the optimum, and a dynamic penalty aligns clients whatever their solver",
    ),
    Rule(
        Case(drift="yes"),
        "scaffold",
        "local steps do not cancel at the optimum; control variates take the drift out, and with it the effect "
        "of unequal work and links",
    ),
    Rule(
        Case(work="unequal", solver="not linear"),
        None,
        "work is unequal, but updates that are not linear in the gradients have no measure of it to divide by: "
        "use SGD without clipping on the clients, or give all clients the same number of steps",
    ),
    Rule(
        Case(work="unequal", links="unequal", rates="told"),
        "fedacs",
        "both work and links are unequal, and the server knows arrival rates: it asks a client more often if less "
        "of its work arrives",
    ),
    Rule(
        Case(work="unequal", links="unequal"),
        "fedacs_estimated",
        "both work and links are unequal, and the server has to estimate arrival rates and work during the run",
    ),
    Rule(
        Case(work="unequal", links="equal"),
        "fednova",
        "only work is unequal: updates are divided by the work behind them",
    ),
    Rule(
        Case(work="equal", links="unequal", rates="told", solver="linear"),
        "fedacs",
        "only links are unequal, and the server knows arrival rates: it asks a client more often if more of its "
        "updates are lost",
    ),
    Rule(
        Case(work="equal", links="unequal"),
        "fedau",
        "only links are unequal: the server learns from absences how much weight an update needs",
    ),
    Rule(
        Case(work="equal", links="equal", drift="no"),
        "fedavg",
        "work and links are equal and local steps cancel at the optimum, so plain averaging is enough",
    ),
    Rule(
        Case(work="equal", links="equal"),
        None,
        "work and links are equal, so plain averaging keeps the weights; whether drift matters is not known, and "
        "no finding calls for another method",
    ),
    Rule(Case(), None, "there is not enough data on {missing} for any advice"),
)

SECURE_AGGREGATION: dict[str, str] = {
    "fedavg": "the server needs only the sum",
    "fednova": "clients divide by their own work before they send",
    "fedacs": "the server needs only the sum",
    "fedacs_estimated": "the server needs the sum, the list of arrivals, and the work that each of them reports",
    "fedau": "the server needs the sum and the list of arrivals, since an update's weight is known before the round",
    "scaffold": "the server needs the sums of two vectors",
    "feddyn": "the server needs only the sum",
}
"""What each advised preset needs on a server that may see sums only; sums are enough for all of them."""


def rule_for(situation: Situation) -> Rule:
    """The row that decides."""
    return next(rule for rule in RULES if rule.fits(situation))


def same_cure(situation: Situation, preset: str) -> tuple[str, ...]:
    """Other presets whose limit does not depend on the causes found."""
    causes = situation.causes
    cures = [name for name, method in METHODS.items() if causes <= set(method.corrects) and name != preset]
    return tuple(cures) if causes else ()
