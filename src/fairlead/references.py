"""The papers behind the parts, by key, read from `references.bib`."""

import re
from dataclasses import dataclass
from importlib.resources import files

from fairlead.errors import require_name

_VENUES = {"inproceedings": "booktitle", "article": "journal", "misc": "howpublished"}
"""The field that names the venue, by the type of an entry."""


@dataclass(frozen=True)
class Reference:
    """A paper."""

    key: str
    authors: str
    title: str
    venue: str
    year: int
    kind: str = "inproceedings"

    def bibtex(self) -> str:
        """A BibTeX entry."""
        return (
            f"@{self.kind}{{{self.key},\n  author = {{{self.authors}}},\n  title = {{{self.title}}},\n"
            f"  {_VENUES[self.kind]} = {{{self.venue}}},\n  year = {{{self.year}}}\n}}"
        )

    def __str__(self) -> str:
        names = self.authors.split(" and ")
        authors = names[0] if len(names) == 1 else f"{names[0]} et al."
        return f"{authors}: {self.title}. {self.venue}, {self.year}."


def _read(text: str) -> dict[str, Reference]:
    """The entries of a BibTeX file with one field a line."""
    found = {}
    for kind, key, body in re.findall(r"^@(\w+)\{(\w+),\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        fields = dict(re.findall(r"^  (\w+) = \{(.*)\},?$", body, re.MULTILINE))
        venue, year = fields[_VENUES[kind]], int(fields["year"])
        found[key] = Reference(key, fields["author"], fields["title"], venue, year, kind)
    return found


REFERENCES = _read(files("fairlead").joinpath("references.bib").read_text(encoding="utf-8"))


def reference(key: str) -> Reference:
    """The paper with the given key."""
    require_name(key, REFERENCES, "the key of a reference")
    return REFERENCES[key]
