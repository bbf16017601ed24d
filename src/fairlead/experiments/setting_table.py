"""A published setting in a spec, as `setting = "hybrid_plus"` or as a table with `name` and arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.clients import ClientSource, Partitioner, PooledSource
from fairlead.component import Component, parts_of
from fairlead.conditions import LinkModel, WorkModel
from fairlead.errors import ClashError, FieldError, did_you_mean
from fairlead.experiments.overrides import Override
from fairlead.experiments.signatures import call_with_plain
from fairlead.optimizers import Constant, Schedule
from fairlead.plain_data import Plain, to_plain
from fairlead.settings import SETTINGS, Setting


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
    source = _source(filled.get("clients"))
    if setting.partition is not None and source is not None and issubclass(source, PooledSource):
        partition = to_plain(setting.partition, Partitioner)
        dealt = {"num_clients": to_plain(setting.num_clients), "partition": partition}
        filled["clients"] = {**dealt, **filled["clients"]}
    return filled


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


def refuse_undealt(table: Mapping[str, Plain], setting: Setting) -> None:
    """Refuse clients that cannot be dealt where the setting deals a pooled data set."""
    source = _source(table.get("clients"))
    if setting.partition is not None and source is not None and not issubclass(source, PooledSource):
        raise ClashError(
            f"The setting deals a data set to its clients, and {source.__name__} makes its own: choose other "
            "clients, or another setting."
        )


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
        raise FieldError(f"{'.'.join(change.path)} does not exist: setting.{path[0]} is a single value.")
    named = {} if given is None else {"name": given}
    return {**(given if isinstance(given, dict) else named), path[0]: change.value}


def _read(given: Plain) -> Setting:
    table, where = (given, "setting.name") if isinstance(given, dict) else ({"name": given}, "setting")
    if "name" not in table:
        raise FieldError(f"{where} is missing: it must be the name of a published setting.")
    name = table["name"]
    if not isinstance(name, str) or name not in SETTINGS:
        raise FieldError(
            f"{where} must be the name of a published setting, got {name!r}."
            + did_you_mean(str(name), SETTINGS, otherwise="`fairlead list settings` shows what there is.")
        )
    arguments = {key: value for key, value in table.items() if key != "name"}
    return call_with_plain(SETTINGS[name].build, arguments, f"the setting {name}", "setting")
