"""The API reference: a page for every group of modules, with every public name on one of them.

Made when the site is built (`site_hooks.py`). A public name that is on no page or has no docstring ends the build.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import fairlead
from fairlead.component import alternatives
from fairlead.experiments.spec_fields import attribute_docs


@dataclass(frozen=True)
class Group:
    """A page: modules that belong together."""

    file: str
    title: str
    about: str
    modules: tuple[str, ...]


GROUPS: tuple[Group, ...] = (
    Group(
        "rounds",
        "Algorithms and rounds",
        "What a method is made of, and what runs it.",
        ("algorithm", "local_solver", "privacy", "federation", "round", "theory", "memory", "numerics"),
    ),
    Group("presets", "Presets", "Published methods, `fl.presets`.", ("presets",)),
    Group("samplers", "Samplers", "Who is asked.", ("samplers",)),
    Group(
        "optimizers",
        "Optimizers",
        "Steps along a gradient, on clients and on the server, and schedules of learning rates.",
        ("optimizers",),
    ),
    Group(
        "corrections", "Corrections", "What clients add to their gradients, and remember.", ("corrections",)
    ),
    Group("aggregators", "Aggregators", "What the server makes of updates.", ("aggregators",)),
    Group("transforms", "Transforms", "What happens to the server's direction.", ("transforms",)),
    Group(
        "records",
        "Records",
        "What crosses from one part to another, and what is kept.",
        ("records", "client_table", "randomness"),
    ),
    Group("clients", "Clients", "Whose data: sources, pools and partitioners.", ("clients",)),
    Group("conditions", "Conditions", "Unequal work, links and devices.", ("conditions",)),
    Group(
        "models",
        "Models, tasks and metrics",
        "What is learned, and by which loss.",
        ("models", "task", "metrics"),
    ),
    Group("worlds", "Worlds", "Where clients are: simulated, or spread over machines.", ("worlds",)),
    Group(
        "experiments",
        "Experiments and studies",
        "Specs, run folders, comparisons.",
        ("experiments", "results", "stopping"),
    ),
    Group("settings", "Settings", "Published experiments, `fl.settings`.", ("settings",)),
    Group("diagnostics", "Diagnostics", "What a run tells of itself, `fl.diagnostics`.", ("diagnostics",)),
    Group("reports", "Reports", "Pages, figures and tables of runs, `fairlead.reports`.", ("reports",)),
    Group(
        "reproductions",
        "Reproductions",
        "Published results, `fairlead.reproductions`.",
        ("reproductions",),
    ),
    Group("flower", "Flower", "Real federations, `fairlead.flower` (extra `flower`).", ("flower",)),
    Group("errors", "Errors", "What is raised, `fl.errors`.", ("errors",)),
    Group("testing", "Testing", "Contracts for parts of your own, `fl.testing`.", ("testing",)),
)


class IncompleteError(Exception):
    """A public name is on no page, or has nothing to say."""


def pages() -> dict[str, str]:
    """The Markdown of every page by its path, or `IncompleteError`."""
    missing = set(dir(fairlead)) - {"__version__", *fairlead.MODULES} - shown_names()
    if missing:
        raise IncompleteError(f"Public names on no page of the API reference: {', '.join(sorted(missing))}.")
    return {
        "reference/index.md": _overview(),
        **{f"reference/{group.file}.md": _page(group) for group in GROUPS},
    }


def shown_names() -> set[str]:
    """Every name that is on some page."""
    return {name for group in GROUPS for name, _ in _names(group)}


def _overview() -> str:
    lines = ["# API reference", "", "Names without a module are those of `import fairlead as fl`.", ""]
    lines += ["| page | what | names |", "|---|---|---|"]
    for group in GROUPS:
        names = ", ".join(f"[`{name}`]({group.file}.md#{name})" for name, _ in _names(group))
        lines.append(f"| [{group.title}]({group.file}.md) | {group.about} | {names} |")
    return "\n".join(lines) + "\n"


def _page(group: Group) -> str:
    entries = [_entry(name, value) for name, value in _names(group)]
    return "\n\n".join([f"# {group.title}", group.about, *entries]) + "\n"


def _names(group: Group) -> list[tuple[str, Any]]:
    found = {}
    for home in group.modules:
        listed = [
            name
            for module, names in fairlead.CONTENTS.items()
            if module == home or module.startswith(f"{home}.")
            for name in names.split()
        ]
        found.update({name: getattr(fairlead, name) for name in listed})
        module = import_module(f"fairlead.{home}")
        # A package may gather more names than those of `import fairlead`.
        if not listed or hasattr(module, "__path__"):
            names = getattr(module, "__all__", vars(module))
            found.update({name: getattr(module, name) for name in names if _belongs(module, name)})
    return sorted(found.items(), key=lambda item: item[0].lower())


def _belongs(module: ModuleType, name: str) -> bool:
    """Whether a class or function is for users: defined in the module, or gathered by the package."""
    value = getattr(module, name)
    origin = value.__module__ if inspect.isclass(value) or inspect.isfunction(value) else ""
    at_home = origin.startswith("fairlead.") if hasattr(module, "__path__") else origin == module.__name__
    return at_home and not name.startswith("_")


def _entry(name: str, value: Any) -> str:
    if not (value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__):
        raise IncompleteError(f"{value.__module__}.{name} has no docstring.")
    parts = [f"## `{name}` {{ #{name} }}", _signature(name, value), in_markdown(inspect.getdoc(value) or "")]
    if inspect.isclass(value):
        parts += [*_attributes(value), *_methods(name, value)]
    return "\n\n".join(part for part in parts if part)


def _signature(name: str, value: Any) -> str:
    if inspect.isclass(value) and issubclass(value, Exception):
        return ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = [_written(parameter) for parameter in signature.parameters.values()]
    returned = "" if inspect.isclass(value) else _returned(signature)
    line = f"{name}({', '.join(parameters)}){returned}"
    if len(line) > 100:
        inner = "".join(f"    {parameter},\n" for parameter in parameters)
        line = f"{name}(\n{inner}){returned}"
    return f"```python\n{line}\n```"


def _written(parameter: inspect.Parameter) -> str:
    """A parameter as the source has it: types are text there, and functions have names."""
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    kind = "" if parameter.annotation is parameter.empty else f": {_type_name(parameter.annotation)}"
    default = parameter.default
    if default is parameter.empty:
        return f"{stars}{parameter.name}{kind}"
    shown = default.__name__ if inspect.isfunction(default) else repr(default)
    return f"{stars}{parameter.name}{kind} = {re.sub(r' at 0x[0-9a-f]+', '', shown)}"


def _returned(signature: inspect.Signature) -> str:
    annotation = signature.return_annotation
    return "" if annotation is signature.empty else f" -> {_type_name(annotation)}"


def _type_name(annotation: Any) -> str:
    """A type, with the range of a field in words."""
    if isinstance(annotation, str):
        return annotation
    options = alternatives(annotation)
    if len(options) > 1:
        return " | ".join("None" if option is type(None) else _type_name(option) for option in options)
    ranges = ", ".join(repr(repr(each)) for each in getattr(annotation, "__metadata__", ()))
    return (
        f"Annotated[{_type_name(annotation.__origin__)}, {ranges}]"
        if ranges
        else inspect.formatannotation(annotation)
    )


def _attributes(cls: type) -> Iterator[str]:
    """What the class says of its own attributes; those of its role are on the role's entry."""
    own = vars(cls).get("__annotations__", {})
    notes = {name: " ".join(note.split()) for name, note in attribute_docs(cls).items() if name in own}
    if notes:
        yield "\n".join(f"- `{name}`: {in_markdown(note)}" for name, note in notes.items())


def _methods(name: str, cls: type) -> Iterator[str]:
    """Public methods and properties that the class itself describes; its role describes the others."""
    for member, value in vars(cls).items():
        plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        text = plain.__doc__ if callable(plain) or isinstance(plain, property) else None
        if member.startswith("_") or not text or inspect.isclass(plain):
            continue
        shown = _signature(member, getattr(cls, member)) if callable(plain) else ""
        heading = f"### `{name}.{member}` {{ #{name}.{member} }}"
        yield "\n\n".join(part for part in (heading, shown, in_markdown(inspect.cleandoc(text))) if part)


def in_markdown(docstring: str) -> str:
    """A docstring with its examples as blocks; equations are indented and so blocks already.

    E_c[G_c](w) is no link.
    """
    lines: list[str] = []
    in_example = False
    for line in docstring.splitlines():
        if line.startswith(">>>") and not in_example:
            lines, in_example = [*lines, "```pycon"], True
        elif in_example and not line.strip():
            lines, in_example = [*lines, "```"], False
        is_text = not in_example and not line.startswith("    ")
        lines.append(line.replace("](", "]\\(") if is_text else line)
    return "\n".join([*lines, "```"] if in_example else lines)
