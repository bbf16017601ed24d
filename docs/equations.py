"""Equations of docstrings as MathML, which browsers typeset without a script; `equations.woff` is their font.

>>> typeset("d = Σ_R p̂_i Δ_i/‖a_i‖₁").count("<mfrac>")
1
"""

from __future__ import annotations

import re
import unicodedata
from html import escape

_WIDE = 60
"""Characters of a formula from which on its parts have lines of their own."""
_TOKEN = re.compile(
    r"""(?P<gap>\s+) | (?P<string>"[^"]*"|`[^`]*`) | (?P<number>\d+(?:\.\d+)?|½)
    | (?P<word>[A-Za-z]{2,}(?:[-'][A-Za-z]+)*) | (?P<letter>[^\W\d_][\u0300-\u036f]*) | (?P<sign>.)""",
    re.VERBOSE,
)
_NAMES = frozenset({"importance", "direction", "floor", "argmin", "max", "min", "sign"})
"""Words that are symbols of an equation; all others are text."""
_PAIRS = {"(": ")", "[": "]", "{": "}", "⟨": "⟩", "‖": "‖", "|": "|"}
_LOW = {"₀": "0", "₁": "1", "₂": "2"}
_HIGH = {"⁰": "0", "²": "2", "⁺": "+", "ᵗ": "t", "†": "†", "′": "′", "″": "″"}
_ACCENTS = {"\u0302": "^", "\u0304": "¯"}
_ENDS = frozenset("+−,;:=←∝≤∈→")
"""Signs that end the product after a sum."""


def typeset(block: str) -> str:
    """The lines of an equation as one table of MathML; remarks in parentheses have a column of their own."""
    rows = []
    for line in block.splitlines():
        formula, remark = split_remark(line)
        first, *others = re.split(r"(?<=,)\s{3,}", formula) if len(formula) > _WIDE else [formula]
        cells = [f"<mtd>{_Line(first).row()}</mtd>", f"<mtd><mtext>{escape(remark)}</mtext></mtd>"]
        rows.append(f"<mtr>{''.join(cells if remark else cells[:1])}</mtr>")
        rows += [f"<mtr><mtd>{_Line(other).row()}</mtd></mtr>" for other in others]
    said = escape(" ".join(block.split()), quote=True)
    return (
        f'<div class="equation"><math display="block" alttext="{said}">'
        f'<mtable displaystyle="true">{"".join(rows)}</mtable></math></div>'
    )


def split_remark(line: str) -> tuple[str, str]:
    """A line and the remark behind it: the option that it belongs to, or its source."""
    found = re.search(r"\s{4,}\((.*[A-Za-z]{2}.*)\)\s*$", line)
    return (line[: found.start()].strip(), found[1]) if found else (line.strip(), "")


class _Line:
    """A line that is read from left to right."""

    def __init__(self, text: str) -> None:
        self.tokens = [(match.lastgroup or "", match[0]) for match in _TOKEN.finditer(text)]
        self.place = 0

    def row(self, end: str = "") -> str:
        """Everything up to a closing bracket, or up to the end of the line."""
        parts: list[str] = []
        while self.place < len(self.tokens) and self._peek() != end:
            self._part(parts)
        return f"<mrow>{''.join(parts)}</mrow>"

    def _peek(self, ahead: int = 0) -> str:
        place = self.place + ahead
        return self.tokens[place][1] if place < len(self.tokens) else ""

    def _part(self, parts: list[str]) -> None:
        """Add what comes next; a slash takes the part before it away."""
        kind, text = self.tokens[self.place]
        if kind == "gap":
            self.place += 1
            if len(text) > 1:
                parts.append('<mspace width="1.2em"/>')
        elif self._is_text():
            parts.append(self._text())
        elif text == "/":
            self.place += 1
            above = _bare(parts.pop()) if parts else "<mrow></mrow>"
            parts.append(f"<mfrac>{above}{self._below()}</mfrac>")
        else:
            parts.append(self._atom())

    def _below(self) -> str:
        self._skip_gap()
        if self._peek() not in ("Σ", "αΣ"):
            return _bare(self._atom())
        parts = [self._atom()]
        while self.place < len(self.tokens):
            kind, text = self.tokens[self.place]
            if text in _ENDS or text in _PAIRS.values() or (kind == "gap" and self._ends_after_gap(text)):
                break
            self._part(parts)
        return f"<mrow>{''.join(parts)}</mrow>"

    def _ends_after_gap(self, gap: str) -> bool:
        following = self._peek(1)
        return len(gap) > 1 or following in _ENDS or not following

    def _skip_gap(self) -> None:
        while self.place < len(self.tokens) and self.tokens[self.place][0] == "gap":
            self.place += 1

    def _is_text(self, ahead: int = 0) -> bool:
        place = self.place + ahead
        if place >= len(self.tokens):
            return False
        kind, text = self.tokens[place]
        if kind == "word":
            return text not in _NAMES and self._peek(ahead + 1) != "_"
        # The article, which is no symbol between two words.
        article = text == "a" and place > 1 and self.tokens[place - 2][0] == "word"
        return kind == "string" or (article and self._peek(ahead + 1).isspace())

    def _text(self) -> str:
        words = []
        while self._is_text():
            words.append(self._peek().strip("`"))
            self.place += 1
            if self._peek() == " " and self._is_text(1):
                self.place += 1
        # A closing bracket or comma follows without a space.
        after = "\N{NO-BREAK SPACE}" if self._peek().isspace() else ""
        before = "\N{NO-BREAK SPACE}" if self._is_after_gap(len(words)) else ""
        return f"<mtext>{before}{escape(' '.join(words), quote=False)}{after}</mtext>"

    def _is_after_gap(self, num_words: int) -> bool:
        start = self.place - (2 * num_words - 1)
        return start > 0 and self.tokens[start - 1][0] == "gap"

    def _atom(self) -> str:
        """A symbol, a number or a bracket, with all that is above and below it."""
        self._skip_gap()
        kind, text = self.tokens[self.place]
        self.place += 1
        if text == "√":
            return f"<msqrt>{_bare(self._atom())}</msqrt>"
        if text in _PAIRS:
            inner = self.row(_PAIRS[text])
            self.place += 1
            base = f"<mrow>{_fence(text)}{inner}{_fence(_PAIRS[text])}</mrow>"
        elif kind == "number":
            base = f"<mn>{text}</mn>"
        elif kind in ("word", "letter") and text != "Σ":
            base = _symbol(text)
        else:
            base = f"<mo>{escape('∑' if text == 'Σ' else text)}</mo>"
        low, high = self._scripts()
        if text == "Σ":
            return f"<munder>{base}{low}</munder>" if low else base
        if low and high:
            return f"<msubsup>{base}{low}{high}</msubsup>"
        return f"<msub>{base}{low}</msub>" if low else f"<msup>{base}{high}</msup>" if high else base

    def _scripts(self) -> tuple[str, str]:
        low = high = ""
        while True:
            sign = self._peek()
            if sign in _LOW:
                self.place, low = self.place + 1, low + f"<mn>{_LOW[sign]}</mn>"
            elif sign in _HIGH:
                self.place, high = self.place + 1, high + f"<mo>{_HIGH[sign]}</mo>"
            elif sign == "_":
                low = self._script()
            elif sign == "^":
                high = self._script()
            else:
                return low, high

    def _script(self) -> str:
        self.place += 1
        kind, text = self.tokens[self.place]
        if text in _PAIRS:
            self.place += 1
            inner = self.row(_PAIRS[text])
            self.place += 1
            return inner
        self.place += 1
        return f"<mn>{text}</mn>" if kind == "number" else _symbol(text)


def _symbol(text: str) -> str:
    plain = unicodedata.normalize("NFD", text)
    base = f"<mi>{plain[0] if len(plain) > 1 and plain[1] in _ACCENTS else text}</mi>"
    if base == f"<mi>{text}</mi>":
        return base
    return f'<mover accent="true">{base}<mo>{_ACCENTS[plain[1]]}</mo></mover>'


def _fence(sign: str) -> str:
    return f'<mo fence="true" stretchy="false">{sign}</mo>'


def _bare(part: str) -> str:
    """A part without its round or square brackets, which a fraction or a root makes superfluous."""
    found = re.fullmatch(r"<mrow><mo fence[^>]*>[(\[]</mo>(.*)<mo fence[^>]*>[)\]]</mo></mrow>", part)
    return found[1] if found else part
