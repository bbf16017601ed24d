"""Clients on the terminal: their data, work and links, and the presets that a diagnosis compares."""

from collections.abc import Sequence

from torch import Tensor

from fairlead.cli.console import print_table, say
from fairlead.diagnostics.clients import ClientOverview
from fairlead.diagnostics.diagnosis import Diagnosis
from fairlead.text import divergence, percent, shown

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


def say_clients(found: ClientOverview) -> None:
    """The table of clients, and what it says."""
    columns = found.columns
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
    first = ", ".join(shown(name) for name in names[:_MOST_NAMES])
    return first if len(names) <= _MOST_NAMES else f"{first} and {len(names) - _MOST_NAMES} more"


def _say_more(found: ClientOverview) -> None:
    averaged = [name for name in ("work", "arrival") if name in found.columns]
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


def clients_facts(found: ClientOverview) -> dict[str, object]:
    plain: dict[str, object] = {name: values.tolist() for name, values in found.columns.items()}
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


def print_presets(found: Diagnosis) -> None:
    """A table of the presets in `--against`, and theory's explanation for those without weights."""
    columns = ["preset", "misplaced weight", "chi-square", "steps per round"]
    rows = [
        [
            method.preset,
            "" if method.misplaced is None else percent(method.misplaced),
            "" if method.chi_square is None else divergence(method.chi_square),
            "" if method.surrogate.step_length is None else f"{method.surrogate.step_length:.3g}",
        ]
        for method in found.against
    ]
    print_table(columns, rows, numbers=columns[1:])
    for method in found.against:
        if method.misplaced is None:
            say(f"{method.preset}: {method.surrogate.explanation}")
