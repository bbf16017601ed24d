"""A server state as named tensors, and back."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from fairlead.client_table import ClientTable, PartState
from fairlead.errors import CheckpointError
from fairlead.records import ServerState


def tensors_of(state: ServerState) -> dict[str, Tensor]:
    """Every tensor of a state by the path of its part, on the CPU; no two share memory."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in _named(state):
        kept = tensor.detach().cpu().contiguous()
        # Parts may share a tensor. Only those are copied, since a client table may be larger than the memory.
        storage = kept.untyped_storage().data_ptr()
        found[name] = kept.clone() if storage in seen else kept
        seen.add(storage)
    return found


def state_from(tensors: Mapping[str, Tensor], like: ServerState, round: int) -> ServerState:
    """The state in tensors, in the form of `like`; rows are written into its tables."""
    device = like.params.device

    def restored(prefix: str, part: PartState) -> PartState:
        values: dict[str, Tensor | ClientTable] = {}
        for name, old in part.items():
            path = f"{prefix}/{name}"
            if isinstance(old, ClientTable):
                # Into the fresh table, which knows where to keep rows.
                values[name] = old.write(tensors[f"{path}/clients"], tensors[f"{path}/rows"])
            else:
                values[name] = tensors[path].to(old.device, copy=True)
        return values

    return replace(
        like,
        round=round,
        params=tensors["params"].to(device, copy=True),
        buffers=tensors["buffers"].to(device, copy=True),
        shared={name: tensors[f"shared/{name}"].to(device, copy=True) for name in like.shared},
        sampler=restored("sampler", like.sampler),
        aggregator=restored("aggregator", like.aggregator),
        transforms=tuple(
            restored(f"transforms/{position}", part) for position, part in enumerate(like.transforms)
        ),
        server=restored("server", like.server),
        memory=restored("memory", like.memory),
    )


def refuse_misfit(like: ServerState, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Raise if tensors do not have the names, shapes and types of a state like this one."""
    expected = dict(_named(like))
    differing = expected.keys() ^ tensors.keys()
    for name in expected.keys() & tensors.keys():
        # The number of rows of a client table grows with the run; nothing else changes shape.
        in_table = name.endswith(("/rows", "/clients"))
        shapes = [t.shape[1:] if in_table else t.shape for t in (expected[name], tensors[name])]
        if shapes[0] != shapes[1] or expected[name].dtype != tensors[name].dtype:
            differing.add(name)
    if not differing:
        differing = {name for name, table in tables_of(like) if not _fits(table, name, tensors)}
    if differing:
        names = ", ".join(sorted(differing))
        raise CheckpointError(f"The checkpoint in {folder} does not fit this algorithm and model: {names}.")


def _fits(table: ClientTable, name: str, tensors: Mapping[str, Tensor]) -> bool:
    """Whether each row belongs to a different client of the table."""
    clients = tensors[f"{name}/clients"]
    known = bool(((clients >= 0) & (clients < table.num_clients)).all())
    return known and len(clients) == len(tensors[f"{name}/rows"]) == len(torch.unique(clients))


def _named(state: ServerState) -> Iterator[tuple[str, Tensor]]:
    yield "params", state.params
    yield "buffers", state.buffers
    yield from ((f"shared/{name}", vector) for name, vector in state.shared.items())
    for path, value in _of_parts(state):
        if isinstance(value, ClientTable):
            yield f"{path}/clients", value.clients
            yield f"{path}/rows", value.rows
        else:
            yield path, value


def tables_of(state: ServerState) -> Iterator[tuple[str, ClientTable]]:
    """Every client table of a state by the path of its part."""
    return ((path, value) for path, value in _of_parts(state) if isinstance(value, ClientTable))


def _of_parts(state: ServerState) -> Iterator[tuple[str, Tensor | ClientTable]]:
    parts: dict[str, PartState] = {
        "sampler": state.sampler,
        "aggregator": state.aggregator,
        **{f"transforms/{position}": part for position, part in enumerate(state.transforms)},
        "server": state.server,
        "memory": state.memory,
    }
    for prefix, part in parts.items():
        yield from ((f"{prefix}/{name}", value) for name, value in part.items())
