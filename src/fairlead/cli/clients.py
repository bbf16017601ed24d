"""`fairlead clients`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.console import JsonOption, print_json, print_table, say
from fairlead.cli.options import read_spec

if TYPE_CHECKING:
    from torch import Tensor

    from fairlead.diagnostics.overview import ClientOverview

_ALL_SHOWN = 40
"""Most clients with a row each; more are shown as quantiles."""
_QUANTILES = {"least": 0.0, "lower quarter": 0.25, "median": 0.5, "upper quarter": 0.75, "most": 1.0}
_SHADES = " ▁▂▃▄▅▆▇█"
_MOST_NAMES = 8
"""Most features and classes that are named; the rest are counted."""
_MEANINGS = {
    "test": "examples held out",
    "work": "effective local steps in a round",
    "arrival": "probability that an update arrives",
    "pull": "Ω/ω of a client under plain averaging",
}


def clients(
    spec: Annotated[Path, typer.Argument(help="The TOML file of the experiment.", metavar="SPEC")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Change a value of the spec.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed to use instead of the spec's.", min=0, max=2**63 - 1)
    ] = None,
    rounds: Annotated[
        int, typer.Option(help="Number of rounds over which work and links are averaged.", min=1, max=10**6)
    ] = 20,
    plot: Annotated[
        Path | None, typer.Option(help="Also draw a figure into this .svg, .png or .pdf file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show data, work and arrival rates of all clients before training."""
    from fairlead.diagnostics.overview import overview
    from fairlead.diagnostics.plots import plot_overview
    from fairlead.worlds.simulated import SimulatedWorld

    # In this process, because nothing is trained.
    federation = replace(read_spec(spec, overrides or [], seed), ray=None).build()
    assert isinstance(federation.world, SimulatedWorld)
    found = overview(federation.world, federation.algorithm.solver, federation.key, rounds)
    if as_json:
        print_json(_plain(found))
    else:
        _print(found)
    if plot is not None:
        plot_overview(found, plot)
        if not as_json:
            say(f"Drawn in {plot}")


def _columns(found: ClientOverview) -> dict[str, Tensor]:
    columns = {
        "examples": found.sizes,
        "test": found.test_sizes,
        "weight": found.weights,
        "work": found.effective_steps,
        "arrival": found.arrival,
        "pull": found.pull,
    }
    return {name: values for name, values in columns.items() if values is not None}


def _print(found: ClientOverview) -> None:
    columns = _columns(found)
    counts = found.label_counts
    if len(found.sizes) <= _ALL_SHOWN:
        texts = {"client": list(map(str, range(len(found.sizes))))}
        if found.shown_names is not None:
            texts["name"] = found.shown_names
        texts |= {name: list(map(_number, values.tolist())) for name, values in columns.items()}
        if counts is not None:
            texts["labels"] = list(map(_shaded, counts))
    else:
        if counts is not None:
            filled = counts[found.sizes > 0]
            columns |= {"labels": (filled > 0).sum(1), "top label": filled.max(1).values / filled.sum(1)}
        texts = {"of all clients": list(_QUANTILES)}
        for name, values in columns.items():
            quantiles = [values.double().quantile(share).item() for share in _QUANTILES.values()]
            texts[name] = list(map(_number, quantiles))
    print_table(list(texts), list(zip(*texts.values(), strict=True)), numbers=list(columns))
    say()
    _say_meanings(found, list(texts))
    _say_more(found)


def _say_meanings(found: ClientOverview, heads: list[str]) -> None:
    """One line that explains the columns."""
    meanings = dict(_MEANINGS)
    if "top label" in heads:
        meanings |= {"labels": "distinct labels of a client", "top label": "share of its most frequent one"}
    elif found.label_counts is not None:
        classes = found.class_names or [str(label) for label in range(found.label_counts.shape[1])]
        meanings["labels"] = f"a bar for each of {_some(classes)}, by number of examples"
    known = [f"{head}: {meanings[head]}" for head in heads if head in meanings]
    if known:
        say("; ".join(known) + ".")


def _some(names: Sequence[str]) -> str:
    """The first names, shortened, and the number of others."""
    from fairlead.text import shown

    first = ", ".join(shown(name) for name in names[:_MOST_NAMES])
    return first if len(names) <= _MOST_NAMES else f"{first} and {len(names) - _MOST_NAMES} more"


def _say_more(found: ClientOverview) -> None:
    averaged = [name for name in ("work", "arrival") if name in _columns(found)]
    means = f"; {' and '.join(averaged)} averaged over {found.rounds} rounds" if averaged else ""
    say(f"{len(found.sizes)} clients, {int(found.sizes.sum())} examples{means}.")
    if found.num_test:
        whose = "one common test set" if found.test_sizes is None else "a test set for each client"
        say(f"Held out for testing: {found.num_test} examples, {whose}.")
    else:
        say("No examples are held out, so the model is tested on the training data.")
    if found.features:
        say(f"Features ({len(found.features)}): {_some(found.features)}.")
    if found.effective_steps is None:
        say("Work is not shown, because only local optimizers that are linear in the gradient define it.")
    if found.arrival is None:
        say("Arrival rates are not shown, because the link defines none; a method can only estimate them.")
    empty = int((found.sizes == 0).sum())
    if empty:
        say(f"{empty} clients have no examples and never reply.")
    if found.num_dropped:
        say(f'{found.num_dropped} rows of the data lack a value and were dropped (missing = "drop").')
    if found.pull is not None:
        weighted = found.weights > 0
        low, high = found.pull[weighted].min().item(), found.pull[weighted].max().item()
        say(f"Under plain averaging, clients count between {low:.2f}× and {high:.2f}× their weight (pull).")


def _number(value: float) -> str:
    return f"{value:g}" if float(value).is_integer() else f"{value:.3g}"


def _shaded(counts: Tensor) -> str:
    """One bar for each label, by the number of examples that the client has."""
    top = max(int(counts.max()), 1)
    return "".join(_SHADES[-(-int(count) * (len(_SHADES) - 1) // top)] for count in counts)


def _plain(found: ClientOverview) -> dict[str, object]:
    plain: dict[str, object] = {name: values.tolist() for name, values in _columns(found).items()}
    if found.label_counts is not None:
        plain["label_counts"] = found.label_counts.tolist()
    names = None if found.names is None else found.names.tolist()
    return {
        "names": names,
        **plain,
        "num_test": found.num_test,
        "features": list(found.features),
        "class_names": None if found.class_names is None else list(found.class_names),
        "rounds": found.rounds,
        "num_dropped": found.num_dropped,
    }
