"""The generated part of docs/methods.md: every preset with its cost, its equations and its papers.

Made when the site is built (`site_hooks.py`); `python docs/method_pages.py` also writes the table into the file, for
those who read it without the site. What a method keeps and sends is counted in a short run of it.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, NamedTuple

import fairlead as fl
from fairlead.client_table import ClientTable, PartState
from fairlead.component import Component, summary
from fairlead.errors import FieldError
from fairlead.experiments.spec_fields import argument_parameters
from fairlead.presets import METHODS, Method
from fairlead.privacy import part_needing_single_updates
from fairlead.references import reference

NUM_CLIENTS, DIM = 7, 11
"""Of the federation that costs are counted in: no small number of vectors makes either."""


class Cost(NamedTuple):
    """What a method keeps and sends, in vectors of the model's size."""

    client: int
    """Kept by every client between its rounds."""
    down: int
    up: int
    server: int
    """Kept by the server beside the model."""
    server_rows: int
    """Kept by the server for every client."""


def table() -> str:
    """One row for every preset."""
    lines = [
        "| preset | corrects | client keeps | sent down | sent up | server keeps | server sees | papers |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for method in METHODS.values():
        algorithm = as_published(method)
        cost = cost_of(algorithm)
        cells = [
            f"[`{method.name}`](#{method.name})",
            ", ".join(method.corrects) or "–",
            _vectors(cost.client),
            _vectors(cost.down),
            _vectors(cost.up),
            _server(cost),
            "single updates" if _needs_single_updates(algorithm) else "sums",
            ", ".join(f"`{key}`" for key in method.references),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def sections() -> str:
    """What every preset is made of, with the equations of its parts and its papers in full."""
    return "\n\n".join(_section(method) for method in METHODS.values())


def filled(markdown: str, *, whole: bool) -> str:
    """A page with the table, and with the sections if it is `whole`, between the comments that name them."""
    made = {"table of methods": table, **({"methods one by one": sections} if whole else {})}
    for mark, make in made.items():
        parts = re.split(rf"(<!-- {mark} -->\n).*?(<!-- end -->)", markdown, maxsplit=1, flags=re.DOTALL)
        if len(parts) > 1:
            markdown = f"{parts[0]}{parts[1]}\n{make()}\n\n{''.join(parts[2:])}"
    return markdown


def as_published(method: Method) -> fl.Algorithm:
    """A preset with nothing given but what it asks for."""
    arguments = argument_parameters(method.build)
    needed: dict[str, Any] = {each.name: 0.5 for each in arguments if each.required}
    if any(each.name == "own" for each in arguments):
        # The quadratics of the count have no layers.
        needed["own"] = ("*",)
    try:
        return method.build(**needed | {"steps": 2})
    except FieldError:
        return method.build(**needed | {"steps": 2, "cohort_size": NUM_CLIENTS})


def cost_of(algorithm: fl.Algorithm) -> Cost:
    """Counted after three rounds in which every update arrives."""
    problem = fl.Quadratics(num_clients=NUM_CLIENTS, dim=DIM).problem(fl.Key.from_seed(0))
    run = fl.Federation(algorithm, fl.SimulatedWorld(problem.task(), problem.data()))
    record = list(run.train(3))[-1]
    number, state = run.params.element_size(), run.state
    kept = [state.sampler, state.aggregator, *state.transforms, state.server, state.shared]
    return Cost(
        client=_count_tables(state.memory),
        down=record.bytes_down // (number * DIM * len(record.asked)),
        up=record.bytes_up // (number * DIM * len(record.arrived)),
        server=sum(_count_vectors(part) for part in kept),
        server_rows=sum(_count_tables(part) for part in kept),
    )


def _count_vectors(part: PartState) -> int:
    return sum(not isinstance(value, ClientTable) and value.shape == (DIM,) for value in part.values())


def _count_tables(part: PartState) -> int:
    return sum(isinstance(value, ClientTable) and value.dim == DIM for value in part.values())


def _vectors(count: int) -> str:
    return {0: "–", 1: "d"}.get(count, f"{count}d")


def _server(cost: Cost) -> str:
    rows = {0: [], 1: ["N·d"]}.get(cost.server_rows, [f"{cost.server_rows}N·d"])
    vectors = [_vectors(cost.server)] if cost.server else []
    return " + ".join([*rows, *vectors]) or "–"


def _needs_single_updates(algorithm: fl.Algorithm) -> bool:
    parts: tuple[Component, ...] = (algorithm.sampler, algorithm.aggregator, *algorithm.transforms)
    return any(part_needing_single_updates(part) for part in parts)


def _section(method: Method) -> str:
    algorithm = as_published(method)
    solver = algorithm.solver
    solvers = (solver, solver.personal) if solver.personal else (solver,)
    local = [
        part for each in solvers for part in (*each.corrections, each.optimizer) if type(part) is not fl.SGD
    ]
    parts = {
        type(part): part
        for part in (algorithm.sampler, *local, algorithm.aggregator, algorithm.server)
        if part not in (fl.FullParticipation(), fl.SGD(1.0))
    }.values()
    made_of = "\n\n".join(
        f"`{type(part).__name__}`: {summary(type(part))}{_equations(type(part))}" for part in parts
    )
    papers = "\n".join(f"- {reference(key)}" for key in method.references)
    text = inspect.getdoc(method.build) or ""
    return f"### `{method.name}` {{ #{method.name} }}\n\n{text}\n\n{made_of}\n\n{papers}"


def _equations(part: type) -> str:
    """The indented blocks of a docstring."""
    paragraphs = (inspect.getdoc(part) or "").split("\n\n")
    found = [text for text in paragraphs if all(line.startswith("    ") for line in text.splitlines())]
    return "".join(f"\n\n{text}" for text in found)


if __name__ == "__main__":
    page = Path(__file__).with_name("methods.md")
    page.write_text(filled(page.read_text(encoding="utf-8"), whole=False), encoding="utf-8")
