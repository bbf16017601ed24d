"""The first section of the page: which method is better, by how much, and whether that is more than noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median_low

from fairlead.reports.charts import Scale, interval_row, interval_scale, row_axis
from fairlead.reports.style import Look, Markup, join, swatch, tag
from fairlead.reports.template import count_of, cut, label_of, section
from fairlead.results.estimates import COVERED, Estimate, too_few
from fairlead.results.figures import Measure, MethodFigures
from fairlead.results.formats import Kind, show_difference, show_estimate
from fairlead.results.methods import Method
from fairlead.results.study_results import told_unlearnt
from fairlead.results.summary import Summary
from fairlead.text import listed


def standing_section(summary: Summary) -> Markup:
    """Which method is better, by how much, and whether that is more than noise."""
    measure, rows = summary.measure, []
    judged = [(method, method.over_seeds(lambda run: run.last_tenth)) for method in summary.methods]
    if summary.ranked:
        judged.sort(key=lambda entry: (not entry[0].method.complete, _rank(entry[1], measure)))
    differences = [method.difference for method in summary.methods if method.difference is not None]
    scale = _difference_scale(differences)
    for method, found in judged:
        rows.append(_standing_row(summary, method, found, scale))
    axis = None
    if scale is not None and summary.baseline is not None:
        kind: Kind = "points" if measure.kind == "share" else measure.kind
        unit = " in percentage points" if measure.kind == "share" else ""
        title = f"difference to {cut(summary.baseline.label, 24)}{unit}"
        axis = tag("li", row_axis(scale, kind, title), class_="axis-row", aria_hidden="true")
    sentences = (_lead(summary, judged), _disagreement(summary), _unlearnt(summary), summary.study.shortfalls)
    return section(
        summary.key("standing"),
        summary.titled("At a glance"),
        tag("p", " ".join(filter(None, sentences)), class_="lead"),
        tag("ol", rows, axis or "", class_="standing" if differences else "standing alone"),
        tag("p", _standing_note(summary), class_="note") if summary.compared else "",
    )


def _standing_row(
    summary: Summary, method: MethodFigures, found: Estimate | None, scale: Scale | None
) -> Markup:
    measure, look, difference = summary.measure, Look(method.place), method.difference
    text, reach = ("–", "") if found is None else _shown(found, measure)
    value = join(tag("b", text), " ", tag("small", reach))
    bar: Markup | str = ""
    if scale is not None:
        low, at, high = (
            (None, None, None) if difference is None else (difference.low, difference.mean, difference.high)
        )
        bar = interval_row(look, scale, 0.0 if method.method is summary.baseline else at, low, high)
    return tag(
        "li",
        tag("span", swatch(look), label_of(method.label), class_="name"),
        tag("span", value, class_="value"),
        tag("span", bar, class_="bar") if bar else "",
        tag("span", _verdict(summary, method), class_="verdict"),
        data_method=method.place,
    )


def _verdict(summary: Summary, method: MethodFigures) -> Markup:
    measure, difference = summary.measure, method.difference
    baseline = summary.baseline
    if not method.runs:
        return join("no round was finished")
    unfinished = f" ({method.method.shortfall})" if method.method.shortfall else ""
    if method.method is baseline or baseline is None:
        return join("baseline" if summary.compared else count_of(len(method.runs), "seed"), unfinished)
    if not method.method.comparable_with(baseline):
        return join(_otherness(method.method, baseline), unfinished)
    if method.method.failed:
        return join(method.method.shortfall)
    if difference is None:
        return join(f"shares no seed with {baseline.label}", unfinished)
    unit = " points" if measure.kind == "share" else ""
    size = show_difference(difference.mean, measure.kind)
    if difference.half_width is None:
        return join(f"{size}{unit}; {too_few(difference)}, so the noise is not known", unfinished)
    figures = f"{size} {_shown(difference, measure)[1]}{unit}"
    if not method.both_complete:
        return join(f"{figures} on the seeds that both finished", unfinished)
    judgement, otherwise = method.judged(measure), method.judged_otherwise(measure)
    objective = "" if otherwise is None else f"; objective {otherwise} by {_by_objective(method)}"
    if judgement is None:
        word = tag("span", "no clear difference", class_="unclear")
    else:
        word = tag("strong", judgement, class_=judgement)
    return join(word, f" {figures}{objective}", unfinished)


def _otherness(method: Method, baseline: Method) -> str:
    """Why a method cannot be compared with the baseline."""
    ours, theirs = method.experiment, baseline.experiment
    assert ours is not None
    assert theirs is not None
    if ours.rounds != theirs.rounds:
        return f"{count_of(ours.rounds, 'round')}, not to be compared with {theirs.rounds}"
    which = "other data" if ours.clients != theirs.clients else "another task"
    return f"{which}, not to be compared with {baseline.label}"


def _by_objective(method: MethodFigures) -> str:
    """The size of the difference in the objective, with its interval."""
    found = method.objective_difference
    assert found is not None
    return " ".join(show_estimate(abs(found.mean), found.half_width, "number"))


def _lead(summary: Summary, judged: Sequence[tuple[MethodFigures, Estimate | None]]) -> str:
    measure, baseline = summary.measure, summary.baseline
    known = [(method, found) for method, found in judged if found is not None]
    if not known or baseline is None:
        return "No run was evaluated: there is nothing to compare yet."
    best, found = known[0]
    figure = " ".join(_shown(found, measure)).strip()
    so_far = "" if any(run.finished for run in best.method.runs) else " so far"
    over = f"{measure.name} over the last 10 % of rounds{so_far}, {count_of(found.count, 'seed')}"
    if not summary.compared:
        return f"{best.label} reaches {figure} {over}."
    if not summary.ranked:
        return (
            f"These runs are of {_differing(summary)}, which cannot be compared: none is said to come first."
        )
    complete = [method.label for method, _ in known if method.method.complete]
    if len(complete) < 2:
        who = f"{complete[0]} alone" if complete else "No method"
        return f"{who} has finished all its runs: none is said to come first."
    if not best.method.learnt:
        return (
            f"{best.label} has the best mean {measure.name}, but learnt nothing: none is said to come first."
        )
    level = [
        method.label
        for method, mean in known
        if method.method.complete and math.isclose(mean.mean, found.mean)
    ]
    if len(level) > 1 and best.label in level:
        return f"{listed(level)} are level at {figure} {over}."
    if best.method is baseline:
        return f"{best.label}, the baseline, comes first with {figure} {over}. {_behind(summary)}"
    difference = best.difference
    lead = f"{best.label} comes first with {figure} {over}"
    if not baseline.complete:
        return f"{lead}."
    if difference is None:
        return f"{lead}; it shares no seed with {baseline.label}, so the noise is not known."
    if not measure.better(difference.mean):
        return f"{lead}, but is not ahead of {baseline.label} on the seeds that both have."
    unit = " points" if measure.kind == "share" else ""
    size = show_difference(abs(difference.mean), measure.kind).lstrip("+")
    ahead = f"{size}{unit} {'above' if measure.higher else 'below'} {baseline.label}"
    if difference.half_width is None:
        return f"{lead}, {ahead}. With {too_few(difference)} in common, the noise is not known."
    if difference.excludes_zero:
        return f"{lead}, {ahead}: more than the noise over seeds."
    return f"{lead}, {ahead}, which is within the noise over seeds."


def _behind(summary: Summary) -> str:
    """A sentence on the methods behind a baseline that comes first, those alone of which every run finished."""
    rivals = [each for each in summary.methods if each.method is not summary.baseline]
    finished = [each for each in rivals if each.both_complete and each.difference is not None]
    known = [each for each in finished if each.difference and each.difference.half_width is not None]
    if not known:
        return "The noise is not known."
    worse = [each.label for each in known if each.judged(summary.measure) == "worse"]
    of_all = f"the {'others' if known == rivals else f'{len(known)} others that can be judged'}"
    if len(worse) > 1:
        who = f"{len(worse)} of {of_all} are"
    elif worse:
        who = f"Only {worse[0]} is"
    else:
        who = f"None of {of_all} is" if len(known) > 1 else f"{known[0].label} is not"
    return f"{who} worse by more than the noise."


def _differing(summary: Summary) -> str:
    """What keeps these runs from being ranked, in words."""
    known = [method.experiment for method in summary.study.methods if method.experiment is not None]
    lengths = sorted({experiment.rounds for experiment in known})
    if len(lengths) > 1:
        return f"{', '.join(map(str, lengths[:-1]))} and {lengths[-1]} rounds"
    return "different data" if "clients" in summary.study.differing_conditions() else "different tasks"


def _disagreement(summary: Summary) -> str:
    """A sentence on methods that the objective judges otherwise than the measure; empty if there are none."""
    found = [
        (method, otherwise)
        for method in summary.methods
        if (otherwise := method.judged_otherwise(summary.measure)) is not None
    ]
    if not found or summary.baseline is None:
        return ""
    if len(found) > 1:
        names = f"{', '.join(method.label for method, _ in found[:-1])} and {found[-1][0].label}"
        return f"On the objective that was asked for, {names} stand otherwise: see below."
    ((method, judgement),) = found
    return (
        f"On the objective that was asked for, {method.label} is {judgement} than {summary.baseline.label} by "
        f"{_by_objective(method)}."
    )


def _unlearnt(summary: Summary) -> str:
    """A sentence on methods that learnt nothing; empty if there are none, or all their runs failed: that is told."""
    lost = [method.method for method in summary.methods if not method.method.learnt]
    if not any(run.finished for method in lost for run in method.runs):
        return ""
    return told_unlearnt([method.label for method in lost], len(summary.methods), "method")


def _standing_note(summary: Summary) -> str:
    order = f"Sorted by mean {summary.measure.name} over the last 10 % of rounds. " if summary.ranked else ""
    return (
        f"{order}A difference is taken between runs of "
        "equal seed and is called better or worse if its 95 % interval (Student, over seeds) excludes 0; "
        "intervals are not corrected for the number of methods, and an arrow head is where one goes on beyond "
        f"the row. {COVERED}"
    )


def _shown(found: Estimate, measure: Measure) -> tuple[str, str]:
    return show_estimate(found.mean, found.half_width, measure.kind)


def _rank(found: Estimate | None, measure: Measure) -> float:
    if found is None or not math.isfinite(found.mean):
        return math.inf
    return -found.mean if measure.higher else found.mean


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
