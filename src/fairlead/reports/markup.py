"""HTML and SVG from Python, with every text escaped unless it is markup already."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_VOID = frozenset({"meta", "input", "br", "col"})


class Markup(str):
    """Text that is HTML or SVG already."""

    __slots__ = ()


Content = str | Iterable[str]


def tag(name: str, /, *content: Content, **attributes: str | float | bool | None) -> Markup:
    """An element; a trailing or inner underscore of an attribute's name stands for none and for a hyphen.

    Attributes that are None or False are left out, those that are True have no value.

    >>> tag("p", "a < b", class_="note", data_method=3)
    '<p class="note" data-method="3">a &lt; b</p>'
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(*content)}</{name}>")


def join(*content: Content) -> Markup:
    """Texts and elements one after the other."""
    return Markup("".join(_piece(part) for part in content))


def _piece(part: Content) -> str:
    if isinstance(part, Markup):
        return part
    if isinstance(part, str):
        return escape(part)
    return "".join(_piece(each) for each in part)


def _attribute(key: str, value: str | float | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    text = value if isinstance(value, str) else f"{value:.6g}" if isinstance(value, float) else str(value)
    return f' {name}="{escape(text)}"'
