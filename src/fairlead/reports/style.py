"""How methods are drawn, so that they can be told apart by colour, dashes and marker.

Colours are classes, so that the page decides them for light, dark and paper; colour-blind readers can tell the
seven apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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


NUM_COLOURS = 7
DASHES = ("", "6 3", "2 2.5")
_MARKERS = (
    "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
    "m-2.7-2.7h5.4v5.4h-5.4z",
    "m0-3.6 3.4 6h-6.8z",
    "m0-3.8 3.8 3.8-3.8 3.8-3.8-3.8z",
    "m0 3.6 3.4-6h-6.8z",
    "m-1-3.4h2v2.4h2.4v2h-2.4v2.4h-2v-2.4h-2.4v-2h2.4z",
    "m-3.4-1.7h6.8v3.4h-6.8z",
)
"""Shapes around a point, as the rest of a path that has moved there."""


@dataclass(frozen=True)
class Look:
    """How a method is drawn: a colour, a kind of dashes and a marker, by its place in the report."""

    index: int

    @property
    def colour(self) -> int:
        return self.index % NUM_COLOURS

    @property
    def dash(self) -> str:
        return DASHES[self.index // NUM_COLOURS % len(DASHES)]

    @property
    def marker(self) -> str:
        # Shifted in every turn through the colours, so that no two methods share colour and marker.
        return _MARKERS[(self.index + self.index // NUM_COLOURS) % len(_MARKERS)]

    @property
    def classes(self) -> str:
        return f"method colour-{self.colour}"


def swatch(look: Look) -> Markup:
    """A short piece of a method's line with its marker."""
    return tag(
        "svg",
        tag("path", class_="line", d="M1 6H27", stroke_dasharray=look.dash or None),
        tag("path", class_="marker", d=f"M14 6{look.marker}"),
        class_=f"swatch colour-{look.colour}",
        viewBox="0 0 28 12",
        aria_hidden="true",
    )
