"""Parts on the terminal: lists of them, and the page of each."""

from typing import Any, NamedTuple, get_args

from fairlead.cli.console import print_table, say
from fairlead.component import summary
from fairlead.experiments.catalog import KINDS, Entry, entries
from fairlead.experiments.spec_fields import Parameter
from fairlead.optimizers.base import Constant
from fairlead.plain_data import NONE
from fairlead.presets import METHODS, method_named
from fairlead.settings import SETTINGS
from fairlead.testing.run_checks import example_of_preset

_PARAMETERS = {"presets": "argument", "settings": "argument"}
"""The word for the parameters of these kinds; parts have fields."""


class PartList(NamedTuple):
    """A list: for programs, and as a table."""

    facts: Any
    columns: list[str]
    rows: list[list[str]]
    after: str = ""
    """Lines below the table."""


def part_list(kind: str | None) -> PartList:
    """Everything of a kind; without one, the names of everything."""
    if kind is None:
        names = {kind: [entry.name for entry in entries(kind)] for kind in KINDS}
        return PartList(names, ["kind", "names"], [[kind, ", ".join(some)] for kind, some in names.items()])
    if kind == "reproductions":
        return _reproduction_list()
    found = entries("presets" if kind == "methods" else kind)
    facts: list[dict[str, Any]] = [{"name": entry.name, "summary": entry.summary} for entry in found]
    if kind != "methods":
        rows = [[entry.name, _parameters(entry), entry.summary] for entry in found]
        return PartList(facts, ["name", _PARAMETERS.get(kind, "field") + "s", "what it is"], rows)
    rows = []
    for entry, told in zip(found, facts, strict=True):
        corrects, references = METHODS[entry.name].corrects, METHODS[entry.name].references
        told |= {"corrects": corrects, "references": references}
        rows.append([entry.name, ", ".join(corrects) or "nothing", ", ".join(references), entry.summary])
    return PartList(facts, ["method", "corrects", "reference", "what it is"], rows)


def _reproduction_list() -> PartList:
    """All reproductions, and the published results that are left out."""
    # The gallery takes long to import, and no other list needs it.
    from fairlead.reproductions import OMITTED, REPRODUCTIONS

    found = REPRODUCTIONS.values()
    fields = ("name", "reference", "where", "claim", "needs", "differences")
    facts = [{field: getattr(entry, field) for field in fields} for entry in found]
    rows = [
        [entry.name, f"{entry.paper}, {entry.where}", ", ".join(entry.needs) or "nothing", entry.claim]
        for entry in found
    ]
    left_out = [f"  {omitted.paper}, {omitted.where}: {omitted.reason}" for omitted in OMITTED]
    after = "\n".join(["\nLeft out:", *left_out])
    return PartList(facts, ["name", "published in", "needs", "claim"], rows, after)


def say_entry(found: Entry) -> None:
    """The page of a part, a preset or a setting."""
    say(f"{found.name} ({found.kind})\n")
    say(found.text)
    if found.kind == "presets":
        _print_make_up(found.name)
    if found.kind == "settings":
        _print_figures(found.name)
    if found.parameters:
        say("\nA table [setting] takes these arguments beside name:" if found.kind == "settings" else "")
        rows = [[p.name, p.written, _default(p), p.description] for p in found.parameters]
        print_table([_PARAMETERS.get(found.kind, "field"), "type", "default", ""], rows)
    if found.references:
        say()
        for reference in found.references:
            say(f"[{reference.key}] {reference}")


def _print_make_up(name: str) -> None:
    """The causes of bias that a preset corrects, and its parts."""
    method = method_named(name)
    made = example_of_preset(method.build)
    parts = [made.sampler, *made.solver.corrections, made.aggregator, *made.transforms, made.server]
    say(f"\nCorrects: {', '.join(method.corrects) or 'nothing'}. Parts (`fairlead show` explains each):")
    print_table(["part", ""], [[type(part).__name__, summary(type(part))] for part in parts])


def _print_figures(name: str) -> None:
    """The fields that a setting fills in, by their paths in a spec."""
    setting = SETTINGS[name].build()
    schedule = setting.solver.optimizer.schedule
    figures = {
        "rounds": setting.rounds,
        "clients": setting.clients,
        "clients.partition": setting.partition,
        "clients.num_clients": setting.num_clients if setting.clients is None else None,
        "work": setting.work,
        "link": setting.link,
        "algorithm.solver.optimizer.schedule": None if schedule == Constant() else schedule,
    }
    rows = [[path, str(value)] for path, value in figures.items() if value is not None]
    for argument, value in setting.client_side().items():
        rows.append([f"algorithm.{argument}", NONE if value is None else str(value)])
    say(f'\nIn a spec, setting = "{name}" fills in these fields unless the spec sets them:')
    print_table(["field", "value"], rows)


def entry_facts(found: Entry) -> dict[str, Any]:
    return {
        "name": found.name,
        "kind": found.kind,
        "text": found.text,
        "parameters": [
            {
                "name": p.name,
                "type": p.written,
                "required": p.required,
                "default": _default(p),
                "description": p.description,
            }
            for p in found.parameters
        ],
        "references": [reference.key for reference in found.references],
    }


def _parameters(entry: Entry) -> str:
    """Names of all parameters; those of settings with their defaults, because they are few."""
    has_room = entry.kind == "settings"
    return ", ".join(f"{p.name}={_default(p)}" if has_room else p.name for p in entry.parameters)


def _default(parameter: Parameter) -> str:
    if parameter.required:
        return "required"
    if parameter.default is None:
        is_none = parameter.has_default and type(None) in get_args(parameter.type)
        return "none" if is_none else "optional"
    return repr(parameter.default)
