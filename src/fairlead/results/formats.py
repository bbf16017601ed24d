"""Numbers as people read them."""

import math
from typing import Literal

from fairlead.text import LEAST_DIVERGENCE

Kind = Literal["share", "points", "number", "count", "seconds", "bytes", "factor", "divergence"]
"""What a number is: a share of 1 is shown in percent, as points without the sign; a factor with a ×; a χ² may be 0."""

_MISSING = "–"


def show(value: float | None, kind: Kind = "number") -> str:
    """A value in a few characters.

    >>> [show(0.8125, "share"), show(2_500_000, "bytes"), show(None)]
    ['81.2 %', '2.50 MB', '–']
    """
    if value is None or math.isnan(value):
        return _MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    match kind:
        case "share":
            return _signed(f"{100 * value:.1f} %")
        case "points":
            return _signed(f"{100 * value:.1f}")
        case "factor":
            return f"{value:.2f}×"
        case "bytes":
            return _with_unit(value, 1000.0, ("B", "kB", "MB", "GB", "TB", "PB"))
        case "seconds":
            return _seconds(value)
        case "count":
            return f"{value:,.0f}" if value == int(value) or value >= 1000 else f"{value:,.1f}"
        case "number":
            return _number(value)
        case "divergence":
            return _number(value if abs(value) >= LEAST_DIVERGENCE else 0.0)


def show_estimate(mean: float, half_width: float | None, kind: Kind) -> tuple[str, str]:
    """A mean and the ± of its interval, to two digits of the smaller of them, but at most three of the latter.

    >>> show_estimate(1.8372, 0.0464, "number")
    ('1.837', '± 0.046')
    """
    if half_width is None or not math.isfinite(half_width) or not math.isfinite(mean):
        return show(mean, kind), ""
    if kind == "share":
        return show(mean, kind), f"± {100 * half_width:.1f}"
    if kind == "seconds":
        length, unit = _unit_of_time(mean)
        text, detail = show_estimate(mean / length, half_width / length, "number")
        return f"{text} {unit}", detail
    if kind in ("number", "factor", "count") and half_width > 0 and 1e-4 <= max(abs(mean), half_width) < 1e5:
        least = max(min(half_width, abs(mean)), half_width / 10)
        digits = min(max(1 - math.floor(math.log10(least)), 0), 6)
        unit, form = "×" if kind == "factor" else "", f"{',' if kind == 'count' else ''}.{digits}f"
        return _signed(f"{round(mean, digits) + 0.0:{form}}{unit}"), f"± {half_width:{form}}"
    return show(mean, kind), f"± {show(half_width, kind)}"


def show_difference(value: float | None, kind: Kind) -> str:
    """A signed difference; of shares, in percentage points."""
    if value is None or not math.isfinite(value):
        return show(value, kind)
    sign = "+" if value >= 0 else "−"
    text = f"{100 * abs(value):.1f}" if kind == "share" else show(abs(value), kind)
    # A difference that rounds to nothing has no sign.
    return text if not any(digit in text for digit in "123456789") else sign + text


def show_signed(mean: float, half_width: float | None, kind: Kind) -> tuple[str, str]:
    """A difference with its sign, and the ± of its interval; of shares, in percentage points.

    >>> show_signed(0.021, 0.009, "share")
    ('+2.1', '± 0.9')
    """
    text, detail = show_estimate(mean, half_width, kind)
    if kind == "share" or not detail:
        return show_difference(mean, kind), detail
    # A difference that rounds to nothing has no sign.
    return f"+{text}" if mean > 0 and any(digit in text for digit in "123456789") else text, detail


def show_tick(value: float, kind: Kind) -> str:
    """A value beside an axis, as short as can be."""
    if kind in ("share", "points"):
        return _signed(f"{100 * value:.4g}{' %' if kind == 'share' else ''}")
    if kind == "bytes" and value:
        return _with_unit(value, 1000.0, ("B", "kB", "MB", "GB", "TB", "PB"), digits=2)
    if kind == "seconds" and value:
        return _seconds(value, digits=2)
    if value and (abs(value) >= 10_000 or abs(value) < 0.001):
        if kind == "count" and abs(value) >= 10_000:
            return _with_unit(value, 1000.0, ("", "k", "M", "G", "T", "P"), digits=2)
        return _scientific(value)
    return _signed(f"{value:.4g}")


def _number(value: float) -> str:
    if value and not 1e-4 <= abs(value) < 1e5:
        return _scientific(value)
    return _signed(f"{value:.4g}" if abs(value) >= 1000 else f"{value:.3g}")


def _scientific(value: float) -> str:
    mantissa, exponent = f"{value:.1e}".split("e")
    power = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    lead = mantissa.removesuffix(".0")
    return _signed(f"10{power}" if lead == "1" else f"{lead}·10{power}")


def _with_unit(value: float, step: float, units: tuple[str, ...], digits: int = 3) -> str:
    rank = 0
    while abs(value) >= step and rank < len(units) - 1:
        value, rank = value / step, rank + 1
    if rank == 0:
        return f"{value:.0f} {units[0]}".strip()
    text = _short(value, digits) if digits < 3 else f"{value:#.3g}".rstrip(".")
    return _signed(f"{text} {units[rank]}")


def _seconds(value: float, digits: int = 3) -> str:
    length, unit = _unit_of_time(value)
    return f"{_short(value / length, digits)} {unit}"


def _short(value: float, digits: int) -> str:
    """So many digits, or all of those before the point where there are more."""
    return f"{value:.{max(digits, len(str(int(abs(value)))))}g}"


def _unit_of_time(seconds: float) -> tuple[float, str]:
    """The largest unit of which there are two, in seconds and by its name."""
    for length, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if abs(seconds) >= 2 * length:
            return length, unit
    return 1.0, "s"


def _signed(text: str) -> str:
    """With a proper minus sign."""
    return text.replace("-", "−")
