"""Pages of reports as trees of elements, to ask for what is on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from fairlead.reports import render_page, summarize_settings

VOID = {"meta", "input", "wbr", "br"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str | None]
    content: list[Element | str] = field(default_factory=list)

    @property
    def children(self) -> list[Element]:
        return [part for part in self.content if isinstance(part, Element)]

    @property
    def text(self) -> str:
        """Its own text, without that of elements inside."""
        return "".join(part for part in self.content if isinstance(part, str))

    def all(self, name: str | None = None, **attributes: str) -> list[Element]:
        """Elements below this one of the given name and attributes."""
        wanted = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
        found = []
        for child in self.children:
            has = all(value in (child.attributes.get(key) or "").split() for key, value in wanted.items())
            if name in (None, child.name) and has:
                found.append(child)
            found += child.all(name, **attributes)
        return found

    def words(self) -> str:
        """All text, in the order of reading."""
        return "".join(part if isinstance(part, str) else part.words() for part in self.content)


class Tree(HTMLParser):
    """Builds elements and refuses tags that do not match."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("root", {})
        self._open = [self.root]
        self.feed(page)
        self.close()
        assert [element.name for element in self._open] == ["root"]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} repeats an attribute"
        element = Element(tag, dict(attrs))
        self._open[-1].content.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().name == tag

    def handle_data(self, data: str) -> None:
        self._open[-1].content.append(data)


def page_of(*paths: Path, title: str = "Study") -> tuple[str, Element]:
    text = render_page(summarize_settings(paths), title)
    return text, Tree(text).root
