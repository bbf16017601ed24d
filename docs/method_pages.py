"""The table of docs/methods.md, and a page for every preset: its update, costs, use, figures and papers.

Made when the site is built (`site_hooks.py`); `python docs/method_pages.py` also writes the table into the file, for
those who read it without the site. A short run counts the vectors that a method keeps and sends. The equations are
those of the docstrings of its parts.
"""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from api_pages import GROUPS, in_markdown
from benchmark import RESULTS, shown
from equations import split_remark, typeset

import fairlead as fl
from fairlead.client_table import ClientTable, PartState
from fairlead.component import Component, summary
from fairlead.diagnostics.advice import RULES
from fairlead.errors import FieldError
from fairlead.experiments.spec_fields import argument_parameters
from fairlead.presets import METHODS, Method
from fairlead.privacy import part_needing_single_updates
from fairlead.references import reference
from fairlead.reproductions import REPRODUCTIONS
from fairlead.reproductions.reproduction import ReproducedFigure, load_outcomes
from fairlead.reproductions.trained import TrainedTable

NUM_CLIENTS, DIM = 7, 11
"""Of the federation that costs are counted in: no small number of vectors makes either."""
OUTCOMES = load_outcomes(Path(__file__).parents[1] / "reproductions")
BENCHMARKS = [json.loads(file.read_text(encoding="utf-8")) for file in RESULTS.values()]
WHEN = tomllib.loads(Path(__file__).with_name("when_to_use.toml").read_text(encoding="utf-8"))


class Cost(NamedTuple):
    """What a method keeps and sends, in vectors of the model's size."""

    client: int
    """Kept by every client between its rounds."""
    down: int
    up: float
    """Below 1 where updates are compressed."""
    server: int
    """Kept by the server beside the model."""
    server_rows: int
    """Kept by the server for every client."""


def table(*, linked: bool) -> str:
    """One row for every preset; on the site it is `linked` to its page."""
    lines = [
        "| preset | corrects | client keeps | sent down | sent up | server keeps | server sees | papers |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for method in METHODS.values():
        algorithm = as_published(method)
        cost = cost_of(algorithm)
        cells = [
            f"[`{method.name}`](methods/{method.name}.md)" if linked else f"`{method.name}`",
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


def pages() -> dict[str, str]:
    """The Markdown of the page of every preset by its path."""
    return {f"methods/{method.name}.md": _page(method) for method in METHODS.values()}


def filled(markdown: str, *, linked: bool) -> str:
    """A page with the table between the comments that name it."""
    parts = re.split(r"(<!-- table of methods -->\n).*?(<!-- end -->)", markdown, maxsplit=1, flags=re.DOTALL)
    return (
        f"{parts[0]}{parts[1]}\n{table(linked=linked)}\n\n{''.join(parts[2:])}"
        if len(parts) > 1
        else markdown
    )


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
        up=record.bytes_up / (number * DIM * len(record.arrived)),
        server=sum(_count_vectors(part) for part in kept),
        server_rows=sum(_count_tables(part) for part in kept),
    )


def _count_vectors(part: PartState) -> int:
    return sum(not isinstance(value, ClientTable) and value.shape == (DIM,) for value in part.values())


def _count_tables(part: PartState) -> int:
    return sum(isinstance(value, ClientTable) and value.dim == DIM for value in part.values())


def _vectors(count: float) -> str:
    whole = int(count)
    return "less than d" if 0 < count < 1 else {0: "–", 1: "d"}.get(whole, f"{whole}d")


def _server(cost: Cost) -> str:
    rows = {0: [], 1: ["N·d"]}.get(cost.server_rows, [f"{cost.server_rows}N·d"])
    vectors = [_vectors(cost.server)] if cost.server else []
    return " + ".join([*rows, *vectors]) or "–"


def _needs_single_updates(algorithm: fl.Algorithm) -> bool:
    server: tuple[Component, ...] = (algorithm.sampler, algorithm.aggregator, *algorithm.transforms)
    return any(part_needing_single_updates(part) for part in (*server, *algorithm.solver.corrections))


def _page(method: Method) -> str:
    algorithm = as_published(method)
    parts = [
        f"# `{method.name}`",
        _described(inspect.getdoc(method.build) or ""),
        "## When to use it",
        *_when(method),
        "## A round",
        *_round(algorithm),
        "## Costs and claims",
        _facts(method, algorithm),
        "## In code",
        _code(method),
        "## Its parts",
        *(_part(part) for part in _parts(algorithm)),
        *_benchmark(method),
        *_reproduced(method),
        "## Papers",
        "\n".join(f"- {reference(key)}" for key in method.references),
    ]
    return "\n\n".join(parts) + "\n"


def _when(method: Method) -> Iterator[str]:
    yield WHEN[method.name]
    reasons = dict.fromkeys(
        rule.why.format(clients_differ="clients differ") for rule in RULES if rule.preset == method.name
    )
    if reasons:
        yield "`fairlead diagnose` [recommends it](../choosing.md) in these cases:"
        yield "\n".join(f"- {reason};" for reason in reasons)[:-1] + "."


def _round(algorithm: fl.Algorithm) -> Iterator[str]:
    """The full update, step by step, with the options that the preset sets."""
    yield "x is the global model, y a client's copy of it. [Methods](../methods.md#symbols) has the other symbols."
    yield "**1. The server samples a cohort.** " + _step(algorithm.sampler)
    solver = algorithm.solver
    yield "**2. Each sampled client starts from the global model and takes local steps**, one per batch D."
    start = "" if any(isinstance(each, fl.StaleStart) for each in solver.corrections) else "y ← x\n"
    yield typeset(f"{start}g = ∇F_i(y; D)")
    compressed = [each for each in solver.corrections if isinstance(each, fl.CompressedUpdate)]
    for correction in solver.corrections:
        if correction in compressed:
            continue
        yield _step(correction)
        lines = [line for block in _equations(type(correction)) for line in block.splitlines()]
        if 0 < sum("g ←" in line for line in lines) < len(lines) and not isinstance(
            correction, fl.OwnParameters
        ):
            yield "The line for g holds in every step, the others after the last one."
    yield _step(solver.optimizer)
    if not any(isinstance(each, fl.OwnParameters | fl.StaleStart) for each in solver.corrections):
        yield f"{'This is' if compressed else 'It sends'} the change of its parameters:"
        yield typeset("Δ_i = y_i − x")
    yield from map(_step, compressed)
    yield "**3. The server combines the updates that arrive.** " + _step(algorithm.aggregator)
    yield from (_step(each) for each in algorithm.transforms if each.stage == "aggregate")
    server = algorithm.server
    yield "**4. The server updates the model.**"
    if _is_plain(server):
        yield typeset("x ← x + d" if server.lr == 1 else "x ← x + η d")
    else:
        yield "In these equations y is the global model x, and g = −d. " + _step(server)
    yield from (_step(each) for each in algorithm.transforms if each.stage == "step")
    if solver.personal:
        yield "**Each client then trains a model of its own**, which it uses instead of the global one."
        for part in (*solver.personal.corrections, solver.personal.optimizer):
            yield _step(part)


def _is_plain(part: Component) -> bool:
    return isinstance(part, fl.SGD) and not part.momentum


def _step(part: Component) -> str:
    """The sentence and the equations of a part, for the options that it has."""
    if _is_plain(part):
        return typeset("y ← y − η g")
    lines = [line for block in _equations(type(part)) for line in block.splitlines()]
    if isinstance(part, fl.Adam | fl.Adagrad | fl.AMSGrad | fl.Yogi):
        lines.insert(0, "m ← β₁ m + (1 − β₁) g")
        lines += [] if isinstance(part, fl.AMSGrad) else ["y ← y − η m/(√v + ε)"]
    shown = "\n".join(_as_direction(split_remark(line)[0]) for line in lines if _applies(part, line))
    text = summary(type(part)) + (f"\n\n{typeset(shown)}" if shown else "")
    inner = getattr(part, "inner", None)
    return f"{text}\n\n`inner` here: {_step(inner)}" if isinstance(inner, Component) else text


def _applies(part: Component, line: str) -> bool:
    """Whether a line is meant for the option that the part has, such as over = "asked"."""
    remark = split_remark(line)[1]
    chosen = re.match(r'(\w+) = "(\w+)"', remark)
    if chosen:
        return bool(getattr(part, chosen[1]) == chosen[2])
    if remark in ("first order", "Hessian-free"):
        return (getattr(part, "delta", None) is None) == (remark == "first order")
    return bool(getattr(part, remark)) if remark in ("momentum", "nesterov") else True


def _as_direction(line: str) -> str:
    """An equation of an aggregator with its direction d on the left."""
    line = line.replace("direction", "d")
    return f"d = {line}" if line.startswith(("Σ_R", "τ_eff")) else line.replace("then Σ", "then d = Σ")


def _facts(method: Method, algorithm: fl.Algorithm) -> str:
    cost = cost_of(algorithm)
    rows = {
        "corrects": ", ".join(method.corrects) or "–",
        "client keeps": _vectors(cost.client),
        "sent down": _vectors(cost.down),
        "sent up": _vectors(cost.up),
        "server keeps": _server(cost),
        "server sees": "single updates" if _needs_single_updates(algorithm) else "sums",
    }
    lines = [
        "| claim or cost | value |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in rows.items()),
    ]
    return "\n".join(lines) + "\n\n[Methods](../methods.md) explains these rows and compares all methods."


def _code(method: Method) -> str:
    arguments = argument_parameters(method.build)
    own = [each for each in arguments if each.name not in fl.presets.ClientSide.__annotations__]
    needed = "".join(f", {each.name}=0.1" for each in own if each.required)
    spec = "".join(f"\n{each.name} = 0.1" for each in own if each.required)
    lines = ["| argument | type | default |", "|---|---|---|"]
    for each in own:
        cells = (f"`{each.name}`", f"`{each.written}`", "needed" if each.required else f"`{each.default}`")
        lines.append(f"| {' | '.join(cells)} |")
    table = "\n\n" + "\n".join(lines) if own else ""
    return (
        f"```python\nfl.presets.{method.name}(lr=0.1{needed})\n```\n\n"
        f'```toml\n[algorithm]\npreset = "{method.name}"\nlr = 0.1{spec}\n```{table}\n\n'
        "The other arguments are [those of all presets](../reference/presets.md#ClientSide)."
    )


def _parts(algorithm: fl.Algorithm) -> list[type[Component]]:
    solver = algorithm.solver
    local = [
        part for each in (solver, solver.personal) if each for part in (*each.corrections, each.optimizer)
    ]
    inner = getattr(algorithm.aggregator, "inner", None)
    server = (algorithm.aggregator, *([inner] if inner else []), *algorithm.transforms, algorithm.server)
    parts = (algorithm.sampler, *local, *server)
    return list(dict.fromkeys(type(part) for part in parts if not _is_plain(part)))


def _part(part: type[Component]) -> str:
    room = part.__module__.split(".")[1]
    (page,) = (group.file for group in GROUPS if room in group.modules)
    name = part.__name__
    heading = f"### `{name}` {{ #{name} }}\n\n[Reference](../reference/{page}.md#{name})"
    return f"{heading}\n\n{_described(inspect.getdoc(part) or '')}"


def _described(docstring: str) -> str:
    """A docstring in Markdown, with its equations typeset."""
    paragraphs = docstring.split("\n\n")
    return "\n\n".join(
        typeset(inspect.cleandoc(text)) if _is_equation(text) else in_markdown(text) for text in paragraphs
    )


def _is_equation(paragraph: str) -> bool:
    return all(line.startswith("    ") for line in paragraph.splitlines())


def _equations(part: type) -> list[str]:
    """The indented blocks of a docstring."""
    paragraphs = (inspect.getdoc(part) or "").split("\n\n")
    return [inspect.cleandoc(text) for text in paragraphs if _is_equation(text)]


def _benchmark(method: Method) -> Iterator[str]:
    """Its figures in the cells of the benchmark, beside FedAvg's."""
    lines = [
        f"| `{cell['cell']}` | {shown(each)} | {shown(cell['methods'][0])} | {len(facts['seeds'])} |"
        for facts in BENCHMARKS
        for cell in facts["cells"]
        for each in cell["methods"]
        if each["method"] == method.name
    ]
    if lines:
        yield "## In the benchmark"
        yield (
            "Accuracy in percent in the cells of [the benchmark](../benchmark.md), every method tuned over the same "
            "budget, with half the 95 % interval over seeds. Bold marks the best and those within noise of it; "
            "*better* and *worse* than FedAvg are beyond noise."
        )
        yield "\n".join(["| cell | here | FedAvg | seeds |", "|---|---|---|---|", *lines])


def _reproduced(method: Method) -> Iterator[str]:
    """Its figures in tables of papers that were run here, beside FedAvg's and the published ones."""
    lines = []
    for name, scale in sorted({(outcome.name, outcome.scale) for outcome in OUTCOMES}):
        (outcome,) = (each for each in OUTCOMES if (each.name, each.scale) == (name, scale))
        entry = REPRODUCTIONS[name]
        if scale == "small" and any(each.name == name and each.scale == "full" for each in OUTCOMES):
            continue
        if not isinstance(entry, TrainedTable):
            continue
        plain = {cell for cell, row in entry.cells.items() if row.preset == method.name and row.aware is None}
        by_place = {(figure.row, figure.column): figure for figure in outcome.figures}
        for (row, column), figure in by_place.items():
            if ":" not in row and any(cell.row == row and column.startswith(cell.column) for cell in plain):
                average = by_place.get(("FedAvg", column))
                published = "–" if figure.published is None else f"{figure.published:g}"
                cells = (f"`{name}` ({scale})", row, column, _figure(figure), _figure(average), published)
                lines.append(f"| {' | '.join(cells)} |")
    if lines:
        yield "## In reproductions"
        yield (
            "From [the reproductions](../reproductions.md), with half the 95 % interval over seeds. A row of another "
            "name has other arguments."
        )
        head = "| reproduction | row | column | here | FedAvg here | published |"
        yield "\n".join([head, "|---|---|---|---|---|---|", *lines])


def _figure(figure: ReproducedFigure | None) -> str:
    if figure is None:
        return "–"
    margin = "" if figure.half_width is None else f" ± {figure.half_width:.2g}"
    return f"{figure.ours:.4g}{margin}"


if __name__ == "__main__":
    page = Path(__file__).with_name("methods.md")
    page.write_text(filled(page.read_text(encoding="utf-8"), linked=False), encoding="utf-8")
