"""Contracts of the parts that clients run: optimizers, schedules and corrections."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fairlead.corrections.base import OWN_MASK, Correction, LocalOutcome
from fairlead.optimizers.base import Optimizer, OptimizerState, Schedule
from fairlead.records import Vectors
from fairlead.testing.rounds import NUM_PARAMETERS, draws, fault, is_bound, make_updates, same_tensors

_LANES, _STEPS = 3, 4


def check_optimizer(part: Optimizer) -> None:
    """Raise an `AssertionError` unless an optimizer keeps its contract.

    Rows side by side move as each would alone, in place or not; a learning rate of zero moves nothing;
    without gradient and weight decay nothing moves ("at rest"); the first step, or cycle, goes down the gradient; dtype
    and kinds of state are kept and arguments are not changed; an optimizer that claims to be linear is.
    """
    start = draws("start", _LANES, NUM_PARAMETERS)
    cycle = len(part.cycle)
    gradients = [draws(f"gradient {step}", _LANES, NUM_PARAMETERS) for step in range(max(_STEPS, cycle))]
    lr = torch.full((_LANES, 1), 0.1, dtype=torch.float64)
    stacked = _walk(part, start, gradients, lr)
    for lane in range(_LANES):
        alone = _walk(part, start[lane], [g[lane] for g in gradients], lr[lane])
        if not torch.allclose(stacked[lane], alone, rtol=1e-13, atol=1e-15):
            raise fault(part, "move rows side by side as it moves each alone: keep to the last axis")
    if not torch.equal(_walk_in_place(part, start, gradients, lr), stacked):
        raise AssertionError(f"{part!r}.step_ must write the bits that step returns.")
    if not torch.equal(_walk(part, start, gradients, torch.zeros_like(lr)), start):
        raise fault(part, "not move with a learning rate of 0")
    plain = replace(part, weight_decay=0.0)
    resting = _walk(plain, start, [torch.zeros_like(start)] * max(_STEPS, cycle), lr)
    if is_bound(part, "at rest") and not torch.equal(resting, start):
        raise fault(part, "not move without a gradient")
    downhill = ((_walk(plain, start, gradients[:1] * cycle, lr) - start) * gradients[0]).sum(-1)
    if not (downhill < 0).all():
        raise fault(part, "take its first step down the gradient")
    if not 0 <= part.lr_at(0) < math.inf:
        raise fault(part, f"have a learning rate of at least 0 in round 0, got {part.lr_at(0)}")
    for dtype in (torch.float32, torch.float64):
        moved = _walk(part, start.to(dtype), [g.to(dtype) for g in gradients], lr.to(dtype))
        if moved.dtype != dtype:
            raise fault(part, f"keep parameters in {dtype}, got {moved.dtype}")
    if part.linear:
        _check_linear(plain, start, gradients, lr)


def _walk_in_place(part: Optimizer, start: Tensor, gradients: Sequence[Tensor], lr: Tensor) -> Tensor:
    """Parameters after steps written over them, gradients and learning rate left alone."""
    params = start.clone()
    state: OptimizerState = {name: values.clone() for name, values in part.init(params).items()}
    for gradient in gradients:
        before = gradient.clone()
        part.step_(params, gradient, state, lr)
        if not torch.equal(before, gradient):
            raise AssertionError(f"{part!r}.step_ must not change the gradient.")
    return part.position(params, state)


def _walk(part: Optimizer, params: Tensor, gradients: Sequence[Tensor], lr: Tensor) -> Tensor:
    """Parameters after some steps, each checked to leave its arguments alone."""
    state: OptimizerState = part.init(params)
    for gradient in gradients:
        given = {"params": params, "gradient": gradient, "lr": lr, **state}
        before = {name: value.clone() for name, value in given.items()}
        params_after, state_after = part.step(params, gradient, state, lr)
        if not same_tensors(before, given):
            raise fault(part, "not change parameters, gradient, state or learning rate in place")
        shapes = {name: (value.shape, value.dtype) for name, value in state.items()}
        if shapes != {name: (value.shape, value.dtype) for name, value in state_after.items()}:
            raise fault(part, "keep the names, shapes and dtypes of its state from step to step")
        params, state = params_after, state_after
    return part.position(params, state)


def _check_linear(part: Optimizer, start: Tensor, gradients: Sequence[Tensor], lr: Tensor) -> None:
    others = [draws(f"other {step}", _LANES, NUM_PARAMETERS) for step in range(_STEPS)]
    mixed = [2.0 * one - 3.0 * other for one, other in zip(gradients, others, strict=True)]
    one, other, both = (_walk(part, start, path, lr) - start for path in (gradients, others, mixed))
    if not torch.allclose(both, 2.0 * one - 3.0 * other, rtol=1e-10, atol=1e-12):
        raise AssertionError(f"{part!r} claims to be linear in the gradients and is not: set linear = False.")


def check_schedule(part: Schedule) -> None:
    """Raise an `AssertionError` unless a schedule is a finite factor of at least 0 at any time."""
    for time in (*range(20), 1_000, 1_000_000):
        factor = part.factor(time)
        if not (isinstance(factor, float) and 0 <= factor < math.inf):
            raise fault(part, f"give a finite factor of at least 0 at time {time}, got {factor!r}")
        if factor != part.factor(time):
            raise fault(part, "give the same factor twice")


def check_correction(part: Correction) -> None:
    """Raise an `AssertionError` unless a correction keeps its contract.

    Clients side by side are corrected as each would be alone; memory and broadcast have the names and
    extents that are declared; nothing that was passed in is changed; the corrected gradient is an affine
    function of the raw one, as the unit-gradient probe needs it ("affine"), and with `pull` its form is the one that
    kernels compute; a client at the anchor with zero memory and
    a zero broadcast follows its raw gradient ("neutral"); a learning rate of zero
    leaves everything finite.
    """
    anchor = draws("anchor", NUM_PARAMETERS)
    initial = dict(part.initial_shared(anchor))
    _require_names(part, initial, dict.fromkeys(part.shared_names, anchor.shape), "broadcast")
    shared = {name: draws(f"shared {name}", NUM_PARAMETERS) for name in part.shared_names}
    if part.keeps_parameters:
        initial[OWN_MASK] = shared[OWN_MASK] = (draws("own", NUM_PARAMETERS) > 0).to(anchor)
    memory = {
        name: draws(f"memory {name}", _LANES, NUM_PARAMETERS if extent == "vector" else 1)
        for name, extent in part.memory_extent.items()
    }
    _check_side_by_side(part, anchor, memory, shared)
    _check_side_by_side(part, anchor, {name: torch.zeros_like(row) for name, row in memory.items()}, initial)
    gradient, other = draws("gradient", NUM_PARAMETERS), draws("other", NUM_PARAMETERS)
    local, own = draws("local", NUM_PARAMETERS), {name: rows[0] for name, rows in memory.items()}
    if is_bound(part, "affine"):
        one, two, mixed = (
            part.correct(g, local, anchor, own, shared)
            for g in (gradient, other, 3.0 * gradient - 2.0 * other)
        )
        if not torch.allclose(mixed, 3.0 * one - 2.0 * two, rtol=1e-10, atol=1e-12):
            raise fault(part, "correct gradients by an affine map, or effective steps have no meaning")
    if part.pull is not None:
        nothing = torch.zeros_like(gradient)
        steady = gradient + part.pull * local + part.correct(nothing, nothing, anchor, own, shared)
        if not torch.allclose(
            part.correct(gradient, local, anchor, own, shared), steady, rtol=1e-10, atol=1e-12
        ):
            raise fault(
                part, "add pull * (local - anchor) and a vector that stays the same in all local steps"
            )
    if is_bound(part, "neutral"):
        forgotten = {name: torch.zeros_like(row) for name, row in own.items()}
        silence = {name: torch.zeros_like(vector) for name, vector in shared.items()}
        if not torch.equal(part.correct(gradient, anchor, anchor, forgotten, silence), gradient):
            raise fault(part, "return the raw gradient while memory and broadcast are zero")
    _check_share(part, shared, own)


def _check_side_by_side(part: Correction, anchor: Tensor, memory: Vectors, shared: Vectors) -> None:
    gradient, local = draws("gradient", _LANES, NUM_PARAMETERS), draws("local", _LANES, NUM_PARAMETERS)
    params = draws("params", NUM_PARAMETERS)
    for lr in (0.1, 0.0):
        outcome = _outcome(anchor, _LANES, lr)

        def all_of(lane: int | None, outcome: LocalOutcome = outcome) -> dict[str, Tensor]:
            """Results of one lane, or of all."""
            pick: Callable[[Tensor], Tensor] = (lambda t: t) if lane is None else (lambda t: t[lane])
            own = {name: pick(rows) for name, rows in memory.items()}
            start = anchor.expand(_LANES, -1) if lane is None else anchor
            left = part.after_steps(_picked(outcome, pick), own, shared)
            adopted = part.after_round(left.memory, params, params - anchor)
            for kind, found in (("memory", left.memory), ("adopted memory", adopted)):
                _require_names(part, found, {name: rows.shape for name, rows in own.items()}, kind)
            return {
                "start": part.start_from(start, own, shared),
                "correct": part.correct(pick(gradient), pick(local), anchor, own, shared),
                "delta": left.delta,
                **{f"memory {name}": row for name, row in left.memory.items()},
                **{f"message {name}": row for name, row in left.message.items()},
                **{f"adopted {name}": row for name, row in adopted.items()},
            }

        given = {"gradient": gradient, "local": local, "anchor": anchor, "params": params}
        given |= {**memory, **shared, "delta": outcome.delta, "num_steps": outcome.num_steps}
        before = {name: value.clone() for name, value in given.items()}
        together, alone = all_of(None), [all_of(lane) for lane in range(_LANES)]
        if not same_tensors(before, given):
            raise fault(part, "not change its arguments in place")
        for what, rows in together.items():
            if not torch.isfinite(rows).all():
                raise fault(part, f"keep everything finite, but {what} is not at a learning rate of {lr}")
            own = torch.stack([results[what] for results in alone])
            if not torch.allclose(rows, own, rtol=1e-12, atol=1e-14):
                raise fault(part, f"treat clients side by side as each alone, but {what} differs")


def _outcome(anchor: Tensor, lanes: int, lr: float) -> LocalOutcome:
    return LocalOutcome(
        round=3,
        anchor=anchor,
        delta=draws("delta", lanes, NUM_PARAMETERS) * lr,
        num_steps=torch.tensor([[1.0], [2.0], [4.0]], dtype=torch.float64)[:lanes],
        effective_steps=torch.tensor([[1.0], [1.8], [3.1]], dtype=torch.float64)[:lanes],
        lr=lr,
        anchor_gradient=draws("anchor gradient", lanes, NUM_PARAMETERS),
        draws=torch.arange(lanes)[:, None],
    )


def _picked(outcome: LocalOutcome, pick: Callable[[Tensor], Tensor]) -> LocalOutcome:
    rows = ("delta", "num_steps", "effective_steps", "anchor_gradient", "draws")
    picked: dict[str, Any] = {name: pick(getattr(outcome, name)) for name in rows}
    return outcome._replace(**picked)


def _check_share(part: Correction, shared: Vectors, own: Vectors) -> None:
    """The broadcast keeps its names and shapes, stays finite and is not changed in place."""
    rows = {name: row.repeat(2, 1) for name, row in own.items()}
    importance = torch.tensor([0.25, 0.75], dtype=torch.float64)
    for lr in (0.1, 0.0):
        left = part.after_steps(_outcome(draws("anchor", NUM_PARAMETERS), 2, lr), rows, shared)
        updates = make_updates([0, 1], [0, 1], importance, left.delta, messages=left.message, lr=lr)
        before = {name: vector.clone() for name, vector in shared.items()}
        renewed = part.update_shared(shared, updates, importance)
        _require_names(part, renewed, {name: vector.shape for name, vector in shared.items()}, "broadcast")
        if not same_tensors(before, shared):
            raise fault(part, "not change the broadcast in place")
        if not all(bool(torch.isfinite(vector).all()) for vector in renewed.values()):
            raise fault(part, f"keep the broadcast finite, also at a learning rate of {lr}")


def _require_names(part: Correction, found: Vectors, expected: Mapping[str, torch.Size], kind: str) -> None:
    shapes = {name: tuple(value.shape) for name, value in found.items()}
    if shapes != {name: tuple(shape) for name, shape in expected.items()}:
        raise AssertionError(f"{part!r} declares a {kind} of {dict(expected)}, got {shapes}.")
