"""Populations, conditions and updates for checks of a single part."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from fairlead.checkpoint.store import load_state, save_state
from fairlead.client_table import ClientTable, PartState
from fairlead.component import Component
from fairlead.randomness import Key
from fairlead.records import ClientUpdates, Cohort, Conditions, Population, ServerState

NUM_CLIENTS, NUM_EXAMPLES, NUM_PARAMETERS = 7, 120, 5
"""Sizes of the populations, pools and models of the checks."""


def fault(part: object, what: str) -> AssertionError:
    """The error of a part, or of a method given by its name, that must do `what` and does not."""
    return AssertionError(f"{part if isinstance(part, str) else repr(part)} must {what}.")


def has_form(values: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Whether a tensor has a shape and a dtype."""
    return values.shape == shape and values.dtype == dtype


def is_bound(part: Component, contract: str) -> bool:
    """Whether a contract binds a part, which may exempt itself with a reason."""
    return contract not in part.exemptions


def draws(name: str, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal numbers that depend on their name alone."""
    generator = Key.from_seed(0).fold("testing", name).generator()
    return torch.from_numpy(generator.standard_normal(shape)).to(dtype)


def make_population(weights: Tensor, dtype: torch.dtype = torch.float64) -> Population:
    """Clients with the given weights, and a model of two tensors."""
    layout = {"weight": NUM_PARAMETERS - 2, "bias": 2}
    return Population(weights, layout, torch.device("cpu"), dtype)


def uneven_weights() -> Tensor:
    """ω of seven clients, all different, none zero."""
    weights = torch.arange(1.0, NUM_CLIENTS + 1, dtype=torch.float64)
    return weights / weights.sum()


def make_conditions(
    weights: Tensor, round: int = 0, *, arrival: Tensor | None = None, work: Tensor | None = None
) -> Conditions:
    """Conditions of a round; perfect links and one step each unless given, ten examples a step."""
    everyone = torch.ones_like(weights)
    steps, rates = (everyone if given is None else given for given in (work, arrival))
    return replace(Conditions.known(round, weights, steps, rates, steps), num_examples=10 * steps)


def make_updates(
    asked: Sequence[int],
    arrived: Sequence[int],
    importance: Tensor,
    delta: Tensor,
    num_steps: Tensor | None = None,
    messages: Mapping[str, Tensor] | None = None,
    lr: float = 0.1,
) -> ClientUpdates:
    """Updates of plain SGD, ‖a‖₁ the number of steps, ten examples a step; `importance` is that of everyone asked."""
    clients = torch.tensor(arrived, dtype=torch.int64)
    steps = torch.ones_like(clients) if num_steps is None else num_steps
    cohort = Cohort(torch.tensor(asked, dtype=torch.int64), torch.ones(len(asked)).long(), importance)
    present = torch.isin(cohort.clients, clients)
    return ClientUpdates.of(
        cohort,
        present,
        delta,
        steps,
        steps.to(torch.float64),
        lr=lr,
        loss=torch.ones(len(clients), dtype=delta.dtype),
        num_examples=10 * steps,
        messages=messages,
    )


def frozen_copy(updates: ClientUpdates) -> dict[str, Tensor]:
    """Copies of every tensor in the updates, to see whether a part changed one."""
    values = {field.name: getattr(updates, field.name) for field in fields(updates)}
    cohort = {f"cohort.{field.name}": getattr(updates.cohort, field.name) for field in fields(updates.cohort)}
    return {name: v.clone() for name, v in {**values, **cohort}.items() if isinstance(v, Tensor)}


def same_tensors(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    """Whether two sets of tensors agree in every bit."""
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def contents(state: PartState) -> dict[str, Tensor]:
    """Copies of all tensors in a part's state, client tables as their clients and rows."""
    found: dict[str, Tensor] = {}
    for name, value in state.items():
        if isinstance(value, ClientTable):
            found[f"{name}/clients"], found[f"{name}/rows"] = value.clients.clone(), value.rows.clone()
        else:
            found[name] = value.clone()
    return found


def through_checkpoint(state: PartState, fresh: PartState, round: int) -> PartState:
    """A part's state after it was written to disk and read back into a fresh one."""
    nothing = torch.zeros(0)
    whole = ServerState(
        round, nothing, nothing, {}, {}, aggregator=state, transforms=(), server={}, memory={}
    )
    with TemporaryDirectory() as folder:
        save_state(whole, Path(folder), "contract")
        return load_state(replace(whole, aggregator=fresh), Path(folder), "contract").aggregator
