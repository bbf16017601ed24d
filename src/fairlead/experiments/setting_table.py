"""A published setting in a spec, as `setting = "hybrid_plus"` or as a table with `name` and arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

from fairlead.clients import (
    ClientSource,
    NaturalIdPartitioner,
    Partitioner,
    PooledSource,
    ReshuffledPartitioner,
)
from fairlead.component import Component, parts_of
from fairlead.conditions import LinkModel, WorkModel
from fairlead.errors import ClashError, FieldError, did_you_mean, short
from fairlead.experiments.overrides import Override
from fairlead.experiments.signatures import call_with_plain
from fairlead.optimizers import Constant, Schedule
from fairlead.plain_data import NONE, Plain, join, to_plain
from fairlead.settings import SETTINGS, Setting

_KEEPING_NUMBERS = (NONE, NaturalIdPartitioner.__name__, ReshuffledPartitioner.__name__)
"""Partitions that have as many clients as the data name."""


def take_setting(table: dict[str, Plain], changes: Iterable[Override]) -> Setting | None:
    """Remove the setting from the table of an experiment and read it after the changes that concern it."""
    given = table.pop("setting", None)
    # The shortest path first: another setting has other arguments, whichever was said first.
    for change in sorted(changes, key=lambda change: len(change.path)):
        given = _changed(given, change)
    return None if given is None else _read(given)


def fill_in(table: Mapping[str, Plain], setting: Setting) -> dict[str, Plain]:
    """The table of an experiment with a setting's clients, work, link and rounds where it has none itself."""
    filled = dict(table)
    filled.setdefault("work", to_plain(setting.work, WorkModel))
    filled.setdefault("link", to_plain(setting.link, LinkModel))
    if setting.rounds is not None:
        filled.setdefault("rounds", setting.rounds)
    if setting.clients is not None:
        filled.setdefault("clients", to_plain(setting.clients, ClientSource))
    if setting.partition is not None and _is_pooled(filled.get("clients")):
        filled["clients"] = {"partition": to_plain(setting.partition, Partitioner), **filled["clients"]}
    return filled


def fill_in_number(table: Mapping[str, Plain], setting: Setting) -> dict[str, Plain]:
    """The table of an experiment with a setting's number of clients, or the data's where its partition needs that."""
    clients: Plain = table.get("clients")
    if setting.partition is None or not _is_pooled(clients):
        return dict(table)
    partition = clients["partition"]
    kind = partition.get("type") if isinstance(partition, dict) else partition
    keeps = kind in _KEEPING_NUMBERS
    return {**table, "clients": {"num_clients": NONE if keeps else to_plain(setting.num_clients), **clients}}


def fill_in_arguments(algorithm: Plain, setting: Setting) -> Plain:
    """A preset with a setting's learning rate, local work and cohort size as the arguments that it leaves open.

    An algorithm given by parts is left alone.
    """
    if not isinstance(algorithm, dict) or "preset" not in algorithm:
        return algorithm
    side: dict[str, Plain] = {key: to_plain(value) for key, value in setting.client_side().items()}
    if "steps" in algorithm or "epochs" in algorithm:
        side.pop("steps", None)
        side.pop("epochs", None)
    filled = {**side, **algorithm}
    schedule = setting.solver.optimizer.schedule
    solver = filled.get("solver", {})
    optimizer = solver.get("optimizer", {}) if isinstance(solver, dict) else None
    # A solver or an optimizer of the spec's own has its own schedule too.
    if schedule != Constant() and isinstance(optimizer, dict) and "type" not in (*solver, *optimizer):
        optimizer = {"schedule": to_plain(schedule, Schedule), **optimizer}
        filled["solver"] = {**solver, "optimizer": optimizer}
    return filled


def refuse_undealt(table: Mapping[str, Plain], setting: Setting, *, own_partition: bool) -> None:
    """Refuse clients that cannot or should not be dealt where the setting deals a pooled data set.

    Those that a column names may be dealt anew only if the experiment has a partition of its own.
    """
    clients: Plain = table.get("clients")
    source = _source(clients)
    if setting.partition is None or source is None:
        return
    if not issubclass(source, PooledSource):
        raise ClashError(
            f"The setting deals a data set to its clients, and {source.__name__} makes its own: choose other "
            "clients, or another setting."
        )
    column = clients.get("client", NONE)
    if column != NONE and not own_partition and not isinstance(setting.partition, NaturalIdPartitioner):
        raise ClashError(
            f"clients.client names the clients ({column!r}), but the setting would deal their examples anew by "
            f"its {type(setting.partition).__name__}: leave out clients.client, or say which partition, such as "
            'clients.partition = { type = "NaturalIdPartitioner" } to keep them.'
        )


def _is_pooled(clients: Plain) -> bool:
    source = _source(clients)
    return source is not None and issubclass(source, PooledSource)


def _source(clients: Plain) -> type[ClientSource] | None:
    """The source that a table names; None where there is none of that name, which is refused later."""
    name = clients.get("type") if isinstance(clients, dict) else None
    found = parts_of(Component).get(name) if isinstance(name, str) else None
    return found if found is not None and issubclass(found, ClientSource) else None


def _changed(given: Plain, change: Override) -> Plain:
    _, *path = change.path
    if not path:
        return change.value
    if len(path) > 1:
        raise FieldError(
            f"{reduce(join, change.path)} does not exist: {join('setting', path[0])} is a single value."
        )
    named = {} if given is None else {"name": given}
    return {**(given if isinstance(given, dict) else named), path[0]: change.value}


def _read(given: Plain) -> Setting:
    table, where = (given, "setting.name") if isinstance(given, dict) else ({"name": given}, "setting")
    if "name" not in table:
        raise FieldError(f"{where} is missing: it must be the name of a published setting.")
    name = table["name"]
    if not isinstance(name, str) or name not in SETTINGS:
        raise FieldError(
            f"{where} must be the name of a published setting, got {short(name)}."
            + did_you_mean(short(name), SETTINGS, otherwise="`fairlead list settings` shows what there is.")
        )
    arguments = {key: value for key, value in table.items() if key != "name"}
    return call_with_plain(SETTINGS[name].build, arguments, f"the setting {name}", "setting")
