"""Contracts of the parts that the server runs: aggregators, samplers and direction transforms."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from fairlead.aggregators.base import Aggregator, LinearAggregator, weighted_sum
from fairlead.client_table import PartState
from fairlead.randomness import Key
from fairlead.records import Aggregate, ClientUpdates, Cohort, Conditions, NotKnown, Transformed
from fairlead.samplers.base import Sampler
from fairlead.samplers.fixed import WeightedWithReplacement
from fairlead.testing.rounds import (
    NUM_CLIENTS,
    NUM_PARAMETERS,
    contents,
    draws,
    fault,
    frozen_copy,
    has_form,
    is_bound,
    make_conditions,
    make_population,
    make_updates,
    same_tensors,
    through_checkpoint,
    uneven_weights,
)
from fairlead.theory.prediction import OUTCOMES, expected_round, outcomes
from fairlead.transforms.base import DirectionTransform

Z_LIMIT = 4.5
"""Standard errors within which an unbiased mean must lie: missed by chance once in 150,000 times."""
_DRAWS = 1500
_DTYPES = (torch.float32, torch.float64)
_ServerPart = Aggregator | DirectionTransform


class _ShownRound(NamedTuple):
    """Updates and conditions of one round of a check."""

    updates: ClientUpdates
    conditions: Conditions

    @property
    def direction(self) -> Tensor:
        """The direction that transforms are given in this round."""
        return draws(f"direction {self.conditions.round}", NUM_PARAMETERS, dtype=self.updates.delta.dtype)

    def result_of(self, part: _ServerPart, state: PartState) -> Aggregate | Transformed:
        if isinstance(part, Aggregator):
            return part.aggregate(self.updates, state, self.conditions)
        return part.transform(self.direction, self.updates, state, self.conditions)


def _rounds(
    labels: Sequence[int] = range(NUM_CLIENTS), dtype: torch.dtype = torch.float64
) -> list[_ShownRound]:
    """Three rounds with losses and unequal work, in which client k goes by the id `labels[k]`.

    Everyone arrives in the first; two of five are lost in the second; one arrives in the third.
    """
    label = torch.tensor(labels)
    weights, arrival, work = (torch.empty(NUM_CLIENTS, dtype=torch.float64) for _ in range(3))
    weights[label] = uneven_weights()
    arrival[label] = torch.linspace(0.3, 1.0, NUM_CLIENTS, dtype=torch.float64)
    work[label] = torch.arange(1.0, NUM_CLIENTS + 1, dtype=torch.float64)
    plan: list[tuple[list[int], list[int]]] = [
        (list(range(NUM_CLIENTS)), list(range(NUM_CLIENTS))),
        ([0, 2, 3, 5, 6], [0, 3, 6]),
        ([1, 4], [4]),
    ]
    made = []
    for round, (asked, arrived) in enumerate(plan):
        ids = sorted(labels[k] for k in asked)
        came = sorted(arrived, key=lambda k: labels[k])
        delta = draws(f"delta {round}", NUM_CLIENTS, NUM_PARAMETERS, dtype=dtype)[came]
        updates = make_updates(
            ids, [labels[k] for k in came], weights[ids], delta, torch.tensor([k + 1 for k in came])
        )
        made.append(_ShownRound(updates, make_conditions(weights, round, arrival=arrival, work=work)))
    return made


def check_aggregator(part: Aggregator) -> None:
    """Raise an `AssertionError` unless an aggregator keeps its contract.

    The direction has the shape, dtype and device of an update and is finite, also for one row; nothing that
    was passed in is changed; renaming the clients changes nothing; zero rows give a zero direction; equal
    rows of clients that all arrived after equal work give that row ("identical rows"); a round without rows
    changes nothing with a parameter axis and no client's row; the state survives a checkpoint; exact mean
    coefficients of a `LinearAggregator` are its mean over all cohorts and arrivals of draws with replacement.
    """
    for dtype in _DTYPES:
        _check_directions(part, _rounds(dtype=dtype), dtype)
    _check_repetition(part, "give the same direction for the same updates")
    _check_renaming(part)
    _check_special_rows(part)
    _check_empty_round(part)
    if isinstance(part, LinearAggregator):
        _check_mean_coefficients(part)


def _directions(part: _ServerPart, rounds: Sequence[_ShownRound]) -> tuple[list[Tensor], PartState]:
    """The directions of some rounds from the first on, and the state after them."""
    state = part.init(make_population(rounds[0].conditions.weights, rounds[0].updates.delta.dtype))
    found = []
    for shown in rounds:
        result = shown.result_of(part, state)
        state = result.state
        found.append(result.direction)
    return found, state


def _check_repetition(part: _ServerPart, promise: str) -> None:
    """A second run gives the same bits, and so does one resumed from a checkpoint."""
    for dtype in _DTYPES:
        once, again = (_directions(part, _rounds(dtype=dtype))[0] for _ in range(2))
        if not all(map(torch.equal, once, again)):
            raise fault(part, promise)
    *earlier, last = _rounds()
    _, state = _directions(part, earlier)
    restored = through_checkpoint(state, part.init(make_population(uneven_weights())), round=2)
    straight, resumed = (last.result_of(part, held).direction for held in (state, restored))
    if not torch.equal(straight, resumed):
        raise fault(part, "resume from a checkpoint exactly: all of its memory belongs in its state")


def _check_directions(part: Aggregator, rounds: Sequence[_ShownRound], dtype: torch.dtype) -> None:
    state = part.init(make_population(uneven_weights(), dtype))
    for updates, conditions in rounds:
        rows, before, m = frozen_copy(updates), contents(state), len(updates)
        kept = {name: value for name, value in state.items() if isinstance(value, Tensor)}
        result = part.aggregate(updates, state, conditions)
        direction, coefficients = result.direction, result.coefficients
        if direction.shape != (NUM_PARAMETERS,) or direction.dtype != dtype:
            found = f"{tuple(direction.shape)} in {direction.dtype}"
            raise fault(part, f"give a direction of shape ({NUM_PARAMETERS},) in {dtype}, got {found}")
        if direction.device != updates.delta.device:
            raise fault(part, f"leave the direction on {updates.delta.device}")
        if not torch.isfinite(direction).all():
            raise fault(part, f"give a finite direction for {m} finite rows")
        if coefficients is not None and (coefficients.shape != (m,) or coefficients.dtype != torch.float64):
            raise fault(part, "return one float64 coefficient per row that arrived, or None")
        unchanged = all(torch.equal(value, before[name]) for name, value in kept.items())
        if not unchanged or not same_tensors(rows, frozen_copy(updates)):
            raise fault(part, "not change the updates or the old state in place")
        if isinstance(part, LinearAggregator) and coefficients is not None:
            total = weighted_sum(coefficients, updates.delta)
            if not torch.equal(direction, total):
                raise fault(part, "return the sum of the rows weighted by its coefficients")
        state = result.state


def _check_renaming(part: Aggregator) -> None:
    plain, permuted = (_directions(part, rounds)[0] for rounds in (_rounds(), _rounds([3, 6, 0, 5, 1, 4, 2])))
    for round, (one, other) in enumerate(zip(plain, permuted, strict=True)):
        if not torch.allclose(one, other, rtol=1e-9, atol=1e-9):
            moves = f"its direction moves by {float((one - other).abs().max()):.2g} in round {round}"
            raise fault(part, f"not depend on the numbering of clients, but {moves}")


def _check_special_rows(part: Aggregator) -> None:
    everyone, weights = list(range(NUM_CLIENTS)), uneven_weights()

    def direction_of(row: Tensor) -> Tensor:
        updates = make_updates(everyone, everyone, weights, row.repeat(NUM_CLIENTS, 1))
        return part.aggregate(
            updates, part.init(make_population(weights)), make_conditions(weights)
        ).direction

    if is_bound(part, "zero rows"):
        direction = direction_of(torch.zeros(NUM_PARAMETERS, dtype=torch.float64))
        if not (direction == 0).all():
            raise fault(part, f"give a zero direction for updates of zero, got {direction.tolist()}")
    if is_bound(part, "identical rows"):
        row = draws("row", NUM_PARAMETERS)
        direction = direction_of(row)
        if not torch.allclose(direction, row, rtol=1e-9, atol=1e-12):
            raise fault(
                part,
                f"return a row that all clients sent after equal work, got {direction.tolist()} for {row.tolist()}; "
                "if it is no average by intention, say why in its class attribute exemptions = {'identical rows': ...}",
            )


def _check_empty_round(part: Aggregator) -> None:
    weights, (first, second, _) = uneven_weights(), _rounds()
    nothing = make_updates([0, 1], [], weights[:2], draws("nothing", 0, NUM_PARAMETERS))
    for warm, state in (
        ("before any update", part.init(make_population(weights))),
        ("after a round", _directions(part, [first])[1]),
    ):
        before = contents(state)
        result = part.aggregate(nothing, state, second.conditions)
        after = contents(result.state)
        if result.direction.shape != (NUM_PARAMETERS,):
            raise fault(part, f"return a direction in an empty round {warm} too")
        changed = "its names"
        if before.keys() == after.keys():
            lasting = [name for name in before if before[name].shape[-1:] == (NUM_PARAMETERS,) or "/" in name]
            changed = ", ".join(name for name in lasting if not torch.equal(before[name], after[name]))
        if changed:
            kept = f"leave its state alone in an empty round {warm}, counters excepted"
            raise fault(part, f"{kept}, but changes {changed}")


def _check_mean_coefficients(part: LinearAggregator) -> None:
    """Draws with replacement, lossy links, unequal work and sizes."""
    conditions, sampler = _rounds()[1].conditions, WeightedWithReplacement(3)
    expected = expected_round(sampler, conditions, OUTCOMES)
    claimed = expected if isinstance(expected, NotKnown) else part.mean_coefficients(expected)
    if isinstance(claimed, NotKnown) or claimed.exactness != "exact":
        return
    mean = torch.zeros(NUM_CLIENTS, dtype=torch.float64)
    for chance, cohort, arrived in outcomes(sampler, conditions, OUTCOMES) or ():
        came, asked = cohort.clients[arrived], cohort.clients.tolist()
        rows = draws("delta", len(came), NUM_PARAMETERS)
        updates = make_updates(asked, came.tolist(), cohort.importance, rows, came + 1)
        if len(updates):
            mean[came] += chance * part.coefficients(replace(updates, cohort=cohort), conditions)
    if not torch.allclose(mean, claimed.coefficients, rtol=1e-9):
        raise fault(part, f"claim its mean coefficients {mean.tolist()}, got {claimed.coefficients.tolist()}")


def check_sampler(part: Sampler) -> None:
    """Raise an `AssertionError` unless a sampler keeps its contract.

    Cohorts list distinct ids in ascending order with whole multiplicities and finite importances; they
    depend on the key alone, and different keys give different ones ("different keys"); the mean importance
    of every client is its weight ("unbiased") and that of its `participation`, by a z-test over 1,500 draws
    before and after it has observed rounds; the state survives a checkpoint.
    """
    weights = uneven_weights()
    fresh, _, later = (shown.conditions for shown in _rounds())
    state = part.init(make_population(weights))
    cohorts = _checked_cohorts(part, state, fresh)
    for empty in (False, True):
        state = _observed(part, state, fresh, empty=empty)
    cohorts += _checked_cohorts(part, state, later)
    # Not in every round: some samplers start with everybody.
    constant = all(_same_cohort(cohorts[-1], cohort) for cohort in cohorts[-_DRAWS:])
    if is_bound(part, "different keys") and constant:
        raise AssertionError(f"{part!r} draws the same cohort for {_DRAWS} keys: it must use the key.")
    restored = through_checkpoint(state, part.init(make_population(weights)), round=2)
    key = Key.from_seed(7)
    if not _same_cohort(part.draw(state, later, key), part.draw(restored, later, key)):
        raise fault(part, "draw the same cohort after a checkpoint: all of its memory belongs in its state")


def _observed(part: Sampler, state: PartState, conditions: Conditions, *, empty: bool) -> PartState:
    cohort = part.draw(state, conditions, Key.from_seed(1))
    before = contents(state)
    came = cohort.clients[:0] if empty else cohort.clients
    delta = draws("observed", NUM_CLIENTS, NUM_PARAMETERS)[came]
    updates = make_updates(cohort.clients.tolist(), came.tolist(), cohort.importance, delta, came + 1)
    after = part.observe(state, conditions, cohort, updates)
    if not same_tensors(before, contents(state)):
        raise fault(part, "not change its old state in place")
    return after


def _checked_cohorts(part: Sampler, state: PartState, conditions: Conditions) -> list[Cohort]:
    cohorts = [part.draw(state, conditions, Key.from_seed(seed)) for seed in range(_DRAWS)]
    for cohort in cohorts[:200]:
        _check_cohort(part, cohort)
    if not _same_cohort(cohorts[5], part.draw(state, conditions, Key.from_seed(5))):
        raise fault(part, "draw the same cohort for the same key")
    table = torch.zeros((len(cohorts), NUM_CLIENTS), dtype=torch.float64)
    for row, cohort in zip(table, cohorts, strict=True):
        row[cohort.clients] = cohort.importance
    if is_bound(part, "unbiased"):
        hint = "; if it is biased by intention, say why in its class attribute exemptions = {'unbiased': ...}"
        _check_means(part, table, conditions.weights, "its weight", hint)
    claimed = part.participation(conditions)
    if not isinstance(claimed, NotKnown) and claimed.settled:
        _check_means(part, table, claimed.importance, "its participation")
    return cohorts


def _check_cohort(part: Sampler, cohort: Cohort) -> None:
    clients, c = cohort.clients, len(cohort.clients)
    if clients.dtype != torch.int64 or clients.shape != (c,) or not (clients.diff() > 0).all():
        raise fault(part, f"sample distinct clients in ascending order, got {clients.tolist()}")
    if c and (int(clients[0]) < 0 or int(clients[-1]) >= NUM_CLIENTS):
        raise fault(part, f"sample clients from 0 to {NUM_CLIENTS - 1}, got {clients.tolist()}")
    multiplicity = cohort.multiplicity
    if multiplicity.shape != (c,) or multiplicity.dtype != torch.int64 or not (multiplicity >= 1).all():
        raise fault(part, f"give the number of draws of each client, got {multiplicity.tolist()}")
    importance = cohort.importance
    valid = torch.isfinite(importance) & (importance >= 0)
    if not has_form(importance, (c,), torch.float64) or not valid.all():
        raise fault(part, f"give each client a float64 importance of at least 0, got {importance.tolist()}")


def _same_cohort(one: Cohort, other: Cohort) -> bool:
    return same_tensors(vars(one), vars(other))


def _check_means(part: Sampler, importance: Tensor, expected: Tensor, name: str, hint: str = "") -> None:
    """A z-test of the mean importance of every client; `importance` has a row per cohort."""
    mean = importance.mean(0)
    gap, allowed = (mean - expected).abs(), Z_LIMIT * importance.std(0) / math.sqrt(len(importance)) + 1e-12
    worst = int((gap / allowed).argmax())
    if not (gap <= allowed).all():
        raise AssertionError(
            f"{part!r} gives client {worst} a mean importance of {float(mean[worst]):.4f} instead of "
            f"{name} {float(expected[worst]):.4f}{hint}."
        )


def check_transform(part: DirectionTransform) -> None:
    """Raise an `AssertionError` unless a direction transform keeps its contract.

    The direction keeps shape, dtype and device and stays finite; nothing that was passed in is changed; the
    same direction is transformed in the same way; a zero direction stays zero ("zero direction"); the state
    survives a checkpoint.
    """
    for dtype in _DTYPES:
        _check_transformed(part, dtype)
    _check_repetition(part, "transform the same direction in the same way")
    if is_bound(part, "zero direction"):
        updates, conditions = _rounds()[0]
        zero = torch.zeros(NUM_PARAMETERS, dtype=torch.float64)
        state = part.init(make_population(uneven_weights()))
        direction = part.transform(zero, updates, state, conditions).direction
        if not (direction == 0).all():
            raise fault(part, f"leave a zero direction zero, got {direction.tolist()}")


def _check_transformed(part: DirectionTransform, dtype: torch.dtype) -> None:
    state = part.init(make_population(uneven_weights(), dtype))
    for shown in _rounds(dtype=dtype):
        updates, direction = shown.updates, shown.direction
        given, rows = direction.clone(), frozen_copy(updates)
        result = part.transform(direction, updates, state, shown.conditions)
        bent = result.direction
        if bent.shape != direction.shape or bent.dtype != dtype or bent.device != direction.device:
            found = f"{tuple(bent.shape)} in {bent.dtype}"
            raise fault(part, f"keep shape, dtype and device of the direction, got {found}")
        if not torch.isfinite(bent).all():
            raise fault(part, "keep a finite direction finite")
        if not torch.equal(given, direction) or not same_tensors(rows, frozen_copy(updates)):
            raise fault(part, "not change the direction or the updates in place")
        if not all(isinstance(value, float) for value in result.facts.values()):
            raise fault(part, "report its facts as floats")
        state = result.state
