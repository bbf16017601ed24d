"""The first section of the page: which method is better, by how much, and whether that is more than noise."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low

from fairlead.reports.charts import Scale, interval_row, interval_scale, row_axis
from fairlead.reports.style import Look, Markup, join, swatch, tag
from fairlead.reports.template import cut, label_of, section
from fairlead.results.comparison import Summary
from fairlead.results.estimates import Estimate
from fairlead.results.figures import MethodFigures
from fairlead.results.formats import Kind, show_estimate
from fairlead.results.sentences import COVERED, headline, verdict


def standing_section(summary: Summary) -> Markup:
    """Which method is better, by how much, and whether that is more than noise."""
    measure = summary.measure
    differences = [method.difference for method in summary.methods if method.difference is not None]
    scale = _difference_scale(differences)
    rows = [_standing_row(summary, method, scale) for method in summary.best_first]
    axis: Markup | str = ""
    if scale is not None and summary.baseline is not None:
        kind: Kind = "points" if measure.kind == "share" else measure.kind
        unit = " in percentage points" if measure.kind == "share" else ""
        title = f"difference to {cut(summary.baseline.label, 24)}{unit}"
        axis = tag("li", row_axis(scale, kind, title), class_="axis-row", aria_hidden="true")
    return section(
        summary.key("standing"),
        summary.titled("At a glance"),
        tag("p", headline(summary), class_="lead"),
        tag("ol", rows, axis, class_="standing" if differences else "standing alone"),
        tag("p", _standing_note(summary), class_="note") if summary.compared else "",
    )


def _standing_row(summary: Summary, method: MethodFigures, scale: Scale | None) -> Markup:
    look, difference, found = Look(method.place), method.difference, method.value
    text, reach = (
        ("–", "") if found is None else show_estimate(found.mean, found.half_width, summary.measure.kind)
    )
    bar: Markup | str = ""
    if scale is not None:
        low, at, high = (
            (None, None, None) if difference is None else (difference.low, difference.mean, difference.high)
        )
        bar = interval_row(look, scale, 0.0 if method.method is summary.baseline else at, low, high)
    return tag(
        "li",
        tag("span", swatch(look), label_of(method.label), class_="name"),
        tag("span", tag("b", text), " ", tag("small", reach), class_="value"),
        tag("span", bar, class_="bar") if bar else "",
        tag("span", _verdict(summary, method), class_="verdict"),
        data_method=method.place,
    )


def _verdict(summary: Summary, method: MethodFigures) -> Markup:
    judgement, numbers = verdict(summary, method)
    if not judgement:
        return join(numbers)
    clear = judgement in ("better", "worse")
    word = tag("strong" if clear else "span", judgement, class_=judgement if clear else "unclear")
    return join(word, f" {numbers}")


def _standing_note(summary: Summary) -> str:
    order = f"Sorted by mean {summary.measure.described}. " if summary.ranked else ""
    return (
        f"{order}Differences are between runs of equal seed. One is called better or worse if its 95 % interval "
        "(Student, over seeds) excludes 0; intervals are not corrected for the number of methods. An arrow head marks "
        f"an interval that is wider than the row. {COVERED}"
    )


def _difference_scale(differences: Sequence[Estimate]) -> Scale | None:
    if not differences:
        return None
    means = [each.mean for each in differences]
    widest = [abs(each.mean) + (each.half_width or 0.0) for each in differences]
    # Intervals are seen whole, but one over two seeds may be ten times as wide as the others: it may leave the row.
    reach = max(4 * median_low(widest), 2 * max(map(abs, means)))
    ends = [edge for each in differences for edge in (each.low, each.high) if edge is not None]
    return interval_scale(means + [_within(edge, reach) for edge in ends])


def _within(value: float, reach: float) -> float:
    return min(max(value, -reach), reach)
