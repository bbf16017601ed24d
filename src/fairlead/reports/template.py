"""Pieces that several sections of the page are made of."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fairlead.reports.style import Look, Markup, join, swatch, tag
from fairlead.reports.table import Cell, Column, Table
from fairlead.results.comparison import Summary


def section(key: str, title: str, *content: Markup | str | Sequence[Markup]) -> Markup:
    """A section of the page, to which `#key` leads."""
    return tag(
        "section", tag("h2", title, id=f"{key}-title"), *content, id=key, aria_labelledby=f"{key}-title"
    )


def html_table(summary: Summary, table: Table) -> Markup:
    """A table of methods."""
    heads = [tag("th", "Method", scope="col"), *(_head(column) for column in table.columns)]
    rows = [
        tag(
            "tr",
            tag(
                "th",
                tag("span", swatch(Look(method.place)), label_of(method.label), class_="name"),
                scope="row",
                data_value=method.label,
            ),
            [_data(cell) for cell in row],
            data_method=method.place,
        )
        for method, row in zip(summary.methods, table.rows, strict=True)
    ]
    return scrolling(
        table.title,
        tag(
            "table",
            tag("thead", tag("tr", heads)),
            tag("tbody", rows),
            class_="sortable" if len(rows) > 1 else None,
        ),
    )


def _head(column: Column) -> Markup:
    note = tag("small", column.note) if column.note else ""
    return tag("th", tag("span", column.title), note, scope="col", class_="figure")


def _data(cell: Cell) -> Markup:
    detail = tag("small", cell.detail) if cell.detail else ""
    value = "" if cell.value is None else repr(cell.value)
    return tag(
        "td",
        tag("b", cell.text) if cell.best else cell.text,
        " " if detail else "",
        detail,
        data_value=value,
        class_="figure",
    )


def scrolling(name: str, table: Markup) -> Markup:
    """A table that scrolls sideways by itself where the window is narrow."""
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=f"Table: {name}")


def label_of(text: str) -> Markup:
    """A method's label, which may be broken after a separator."""
    pieces = re.split(r"(?<=[-_/.,+ ])", text)
    return tag("span", [join(piece, Markup("<wbr>")) for piece in pieces[:-1]], pieces[-1], class_="label")


def cut(text: str, length: int) -> str:
    """A text with its middle left out if it is long."""
    if len(text) <= length:
        return text
    return f"{text[: length // 3]}…{text[-(length - length // 3 - 1) :]}"


def count_of(count: int, noun: str) -> str:
    """A number of things in words.

    >>> [count_of(number, "seed") for number in (0, 1, 5)]
    ['no seeds', 'one seed', '5 seeds']
    """
    words = {0: "no", 1: "one"}
    return f"{words.get(count, count)} {noun}{'' if count == 1 else 's'}"
