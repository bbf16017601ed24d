"""The one set of sentences: every result of a comparison in plain words."""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead.diagnostics.consistency import ConsistencyReport
from fairlead.results.comparison import Ranking, Standing, Summary, Tuning
from fairlead.results.estimates import Estimate, NumberKind, show, show_difference, show_estimate
from fairlead.results.figures import Measure, MethodFigures
from fairlead.results.methods import MethodRuns
from fairlead.text import counted, label, listed

COVERED = (
    "Intervals cover everything that a seed draws: the initial model, cohorts, batches, work and links, and the "
    "data, if they are generated or split at random. Everything else, such as a test set that comes with the data, is "
    "the same in all runs."
)
"""The meaning of an interval over seeds."""

_FIRST = "{first} comes first with {value} {over}"

_HEADLINES: dict[Ranking, str] = {
    "not evaluated": "No run was evaluated, so there is nothing to compare yet.",
    "one method": "{first}: {value} {over}.",
    "not comparable": "These runs are of {differing}, which cannot be compared, so no method is ranked first.",
    "not measured": "{lacking}",
    "unfinished": "{finished} has finished all its runs, so no method is ranked first.",
    "all diverged": "There is nothing to compare.",
    "diverged": "{finished} has a finite {measure} at the end of all its runs, so no method is ranked first.",
    "nothing learned": "{first} has the best {measure}, but its final objective is not below the initial model's, so "
    "no method is ranked first.",
    "tied": "{tied} are tied at {value} {over}.",
    "baseline first": "{first}, the baseline, comes first with {value} {over}. {behind}",
    "baseline unfinished": f"{_FIRST}.",
    "baseline diverged": f"{_FIRST}. It cannot be compared with {{baseline}}, which diverged.",
    "no common seed": f"{_FIRST}; it has no run of the same seed and length as {{baseline}}, so the noise is unknown.",
    "behind on common seeds": f"{_FIRST}, but is not ahead of {{baseline}} on the seeds that both have.",
    "noise unknown": f"{_FIRST}, {{ahead}}. With only {{seeds}}, the noise is unknown.",
    "beyond noise": f"{_FIRST}, {{ahead}}: more than the noise over seeds.",
    "within noise": f"{_FIRST}, {{ahead}}, which is within the noise over seeds.",
}

_STANDINGS: dict[Standing, tuple[str, str]] = {
    "no round": ("", "no round was finished"),
    "one method": ("", "{runs}"),
    "baseline": ("", "baseline"),
    "not comparable": ("", "{why_not}"),
    "failed": ("", "{shortfall}"),
    "diverged": ("", "{divergence}"),
    "not measured": ("", "not comparable, because {lacking} no {measure}"),
    "no common seed": ("", "no run of the same seed and length as {baseline}'s"),
    "equal": ("equal", "in {measure} on {pairs}{objective}"),
    "noise unknown": ("", "{difference}; {seeds}, so the noise is unknown"),
    "unfinished": ("", "{difference} on the seeds that both finished"),
    "better": ("better", "{difference}{objective}"),
    "worse": ("worse", "{difference}{objective}"),
    "unclear": ("no clear difference", "{difference}{objective}"),
}
"""The judgement, if there is one, and the numbers behind it."""


class StandingText(NamedTuple):
    """A method against the baseline in words."""

    judgement: str
    """"better", "worse", "equal" or "no clear difference"; empty where nothing is judged."""
    numbers: str

    def __str__(self) -> str:
        return " ".join(filter(None, self))


def headline(summary: Summary) -> str:
    """Which method is better, by how much, and whether that is more than noise; and the limits of the comparison."""
    ranking = summary.ranking
    values = _headline_values(summary) if summary.evaluated else {}
    sentences = (
        _HEADLINES[ranking].format(**values),
        _contradictions(summary),
        _unlearned(summary),
        _lengths(summary),
        divergences(summary),
        summary.study.shortfalls,
    )
    return " ".join(filter(None, sentences))


def _headline_values(summary: Summary) -> dict[str, str]:
    measure, first, baseline = summary.measure, summary.evaluated[0], summary.baseline
    found, difference = first.value, first.difference
    assert found is not None
    assert baseline is not None
    so_far = "" if any(run.finished for run in first.method.runs) else " so far"
    complete = [method.label for method in summary.evaluated if method.complete]
    ahead = ""
    if difference is not None:
        size = show_difference(abs(difference.mean), measure.kind).lstrip("+")
        ahead = f"{size}{_unit(measure)} {'above' if measure.higher else 'below'} {baseline.label}"
    return {
        "first": first.label,
        "baseline": baseline.label,
        "measure": measure.name,
        "value": found.text(measure.kind),
        "over": f"{measure.described}{so_far}, {counted(found.count, 'seed')}",
        "differing": _differing(summary),
        "finished": f"Only {complete[0]}" if complete else "No method",
        "lacking": _lacking(summary),
        "tied": listed([method.label for method in summary.tied]),
        "behind": _behind(summary),
        "ahead": ahead,
        "seeds": "" if difference is None else difference.too_few,
    }


def _has_none(methods: Sequence[MethodFigures]) -> str:
    return f"{listed([each.label for each in methods])} {'has' if len(methods) == 1 else 'have'}"


def _lacking(summary: Summary) -> str:
    """Sentences on finished methods without the measure."""
    missing = f"{_has_none(summary.unmeasured)} no {summary.measure.name}"
    in_training = [each for each in summary.evaluated if not any(run.run.held_out for run in each.runs)]
    if not summary.measure.metric.startswith("personal_"):
        return f"{missing}, so no method is ranked first."
    if not in_training:
        return f"{missing}, because its clients were not evaluated one by one. Set per_client = true to compare them."
    return (
        f"{missing}, because no examples of clients are held out. That of {listed([m.label for m in in_training])} "
        "is on training data, which flatters. Set clients.holdout = 0.2 to compare them."
    )


def _unit(measure: Measure) -> str:
    return " points" if measure.kind == "share" else ""


def _behind(summary: Summary) -> str:
    """A sentence on the methods behind a baseline that comes first; unfinished ones are not judged."""
    rivals = [each for each in summary.methods if each is not summary.baseline]
    finished = [each for each in rivals if each.both_complete and each.difference is not None]
    known = [each for each in finished if each.difference and each.difference.half_width is not None]
    if not known:
        return "The noise is unknown."
    worse = [each.label for each in known if each.judged == "worse"]
    of_all = f"the {'others' if known == rivals else f'{len(known)} others that can be judged'}"
    if len(worse) > 1:
        who = f"{len(worse)} of {of_all} are"
    elif worse:
        who = f"{worse[0]} is" if len(known) == 1 else f"Only {worse[0]} is"
    else:
        who = f"None of {of_all} is" if len(known) > 1 else f"{known[0].label} is not"
    return f"{who} worse by more than the noise."


_LENGTHS_NAMED = 4
"""Numbers of rounds that the headline names one by one, at most."""


def _differing(summary: Summary) -> str:
    """The condition that keeps these runs from being ranked."""
    known = [method.experiment for method in summary.study.methods if method.experiment is not None]
    lengths = sorted({experiment.rounds for experiment in known})
    if len(lengths) > _LENGTHS_NAMED:
        return f"{len(lengths)} different lengths, from {lengths[0]} to {lengths[-1]} rounds"
    if len(lengths) > 1:
        return f"{listed(lengths)} rounds"
    return "different data" if "clients" in summary.study.differing_conditions() else "different tasks"


def _contradictions(summary: Summary) -> str:
    """A sentence on methods about which the objective says more than the measure, or otherwise; empty without any."""
    found = [method for method in summary.methods if method.judged_otherwise is not None]
    if not found or summary.baseline is None:
        return ""
    if len(found) == 1:
        (method,) = found
        judged = f"{method.label} is {method.judged_otherwise} than {summary.baseline.label}"
        return f"By the objective, {judged} by {_by_objective(method)}."
    parts = []
    for judged in ("better", "worse"):
        names = [method.label for method in found if method.judged_otherwise == judged]
        verb = "is" if len(names) == 1 else "are"
        parts += [f"{listed(names)} {verb} {judged} than {summary.baseline.label}"] if names else []
    return f"By the objective, {' and '.join(parts)}: see the table."


def _by_objective(method: MethodFigures) -> str:
    """The size of the difference in the objective, with its interval."""
    found = method.objective_difference
    assert found is not None
    return _size(found, "number")


def _size(difference: Estimate, kind: NumberKind) -> str:
    """A difference without its sign, with its interval."""
    parts = show_estimate(abs(difference.mean), difference.half_width, kind, sign=True)
    return " ".join(parts).strip("+ ")


def _unlearned(summary: Summary) -> str:
    """A sentence on methods that learned nothing; empty if there are none, or if all their runs failed."""
    lost = [method.method for method in summary.methods if not method.method.learned]
    if not any(run.finished for method in lost for run in method.runs):
        return ""
    names = any_or_listed([method.label for method in lost], len(summary.methods), "method")
    return (
        f"No run of {names} ended with a lower objective than its initial model: the learning rate may be too large, "
        "or the rounds too few."
    )


def _lengths(summary: Summary) -> str:
    """A sentence on methods that `stop_when` ended at different rounds; empty if all runs are of one length."""
    said, lengths = [], set[int]()
    for method in summary.methods:
        ended = [run.run for run in method.runs if run.run.finished]
        done = sorted({len(run.records) for run in ended if run.experiment and run.experiment.stop_when})
        lengths |= {*done}
        if done:
            said.append(f"{method.label} after {' to '.join(map(str, dict.fromkeys((done[0], done[-1]))))}")
    if len(lengths) < 2 or not summary.study.comparable:
        return ""
    return (
        f"stop_when ended runs at different rounds: {', '.join(said)}. Every figure is of a run's own last rounds, so "
        "methods are compared after unequal work."
    )


def divergences(summary: Summary) -> str:
    """A sentence on methods whose runs diverged; empty if there are none."""
    found = [f"{each.label} (in {_diverged_runs(each)})" for each in summary.diverged]
    if not found:
        return ""
    told = any(not method.complete for method in summary.study.methods)
    ranked = " Methods with such runs are not ranked." if summary.compared and not told else ""
    return f"The {summary.measure.name} diverged to infinity or NaN: {', '.join(found)}.{ranked}"


def _diverged_runs(method: MethodFigures) -> str:
    return f"{method.num_diverged} of {counted(method.method.num_runs, 'run')}"


def any_or_listed(names: Sequence[str], number: int, noun: str) -> str:
    """`any method` where the names are those of all, else the names."""
    return f"any {noun}" if len(names) == number > 1 else listed(names)


def describe_standing(summary: Summary, method: MethodFigures) -> StandingText:
    """How a method compares with the baseline."""
    standing, baseline, measure = summary.standing(method), summary.baseline, summary.measure
    difference, otherwise = method.difference, method.judged_otherwise
    shortfall, named = method.method.shortfall, "" if baseline is None else baseline.label
    own = f"{measure.name} diverged in {_diverged_runs(method)}" if method.num_diverged else ""
    values = {
        "runs": counted(len(method.runs), "seed"),
        "shortfall": shortfall,
        "baseline": named,
        "divergence": own or f"not comparable with {named}, which diverged",
        "why_not": "" if baseline is None else _why_not(method.method, baseline.method),
        "difference": difference and f"{difference.text(measure.kind, sign=True)}{_unit(measure)}",
        "seeds": difference and difference.too_few,
        "pairs": difference and ("one seed" if difference.count == 1 else f"all {difference.count} seeds"),
        "lacking": _has_none([each for each in (method, baseline) if each is not None and each.unmeasured]),
        "measure": measure.name,
        "objective": f"; objective {otherwise} by {_by_objective(method)}" if otherwise else "",
    }
    judgement, numbers = _STANDINGS[standing]
    lacking = ["" if standing in ("no round", "failed") else shortfall, "" if standing == "diverged" else own]
    text, shown = numbers.format(**values), "; ".join(filter(None, lacking))
    return StandingText(judgement, f"{text} ({shown})" if shown else text)


def standings(summary: Summary) -> list[str]:
    """A sentence for each method but the baseline."""
    rivals = [method for method in summary.methods if method is not summary.baseline]
    return [f"{method.label}: {describe_standing(summary, method)}." for method in rivals]


def tunings(summary: Summary) -> list[str]:
    """A sentence for each method that was tuned, with a warning where the choice is at an edge of the grid."""
    return [_tuned(tuning) for tuning in summary.tunings]


def _tuned(tuning: Tuning) -> str:
    tried = f"{counted(len(tuning.settings), 'setting')} on {counted(len(tuning.seeds), 'tuning seed')}"
    if not tuning.chosen:
        reasons = "; ".join(f"{each.label}: {each.problem}" for each in tuning.settings)
        return f"{tuning.method} is not compared, because none of {tried} can be chosen ({reasons})."
    said = f"{tuning.method}: {listed([each.label for each in tuning.chosen])} chosen of {tried}."
    better = [each.label for each in tuning.settings if each.name == tuning.best and not each.chosen]
    if better:
        said += (
            f" By {tuning.measure.described}, {better[0]} is better: another measure or fewer seeds decided."
        )
    return said + "".join(
        f" {edge}: extend the grid, since a better one may lie beyond." for edge in tuning.edges
    )


def show_lead(summary: Summary, method: MethodFigures, other: MethodFigures) -> str:
    """A sentence on whether a method is clearly better than another that is not the baseline."""
    difference = method.difference_to(other)
    if difference is None:
        return f"{method.label} has no run of the same seed and length as {other.label}, the next."
    amount = f"{difference.text(summary.measure.kind, sign=True)}{_unit(summary.measure)}"
    if difference.half_width is None:
        return f"Against {other.label}, the next: {amount}; {difference.too_few}, so the noise is unknown."
    clear = "more than" if difference.excludes_zero else "within"
    return f"Against {other.label}, the next: {amount}, {clear} the noise over seeds."


def _why_not(method: MethodRuns, baseline: MethodRuns) -> str:
    """Why a method cannot be compared with the baseline."""
    ours, theirs = method.experiment, baseline.experiment
    if ours is not None and theirs is not None and ours.rounds != theirs.rounds:
        return f"{counted(ours.rounds, 'round')}, not comparable with {theirs.rounds}"
    other = ours is None or theirs is None or ours.clients != theirs.clients
    return f"{'other data' if other else 'another task'}, not comparable with {baseline.label}"


def target_resolution(summary: Summary) -> str:
    """A sentence on how late a target is noticed if evaluations are rounds apart; empty if they are not."""
    runs = [run.run for method in summary.methods for run in method.runs]
    apart = max((summary.measure.quantity.read(run).spacing for run in runs), default=0)
    if apart < 2:
        return ""
    return (
        f"Evaluations are up to {apart} rounds apart: a target may have been met up to "
        f"{counted(apart - 1, 'round')} before it was noticed."
    )


_EXACT, _NEARLY = 0.005, 0.1
"""Shares of misplaced weight up to which a method is called right, and nearly right."""


def objective_verdict(name: str, consistency: ConsistencyReport, chance: float) -> str:
    """One sentence on the objective that a method optimized; `chance` is the share of weight that chance misplaces."""
    surrogate, misplaced, intended = consistency.surrogate, consistency.total_variation, consistency.intended
    if surrogate is None or misplaced is None:
        return f"{name} has no weights that can be measured, so its objective is unknown."
    if consistency.restored:
        return f"{name} optimized the intended objective by design: its corrections undo unequal work and losses."
    if misplaced < 1e-6:
        return f"{name} optimized the intended objective."
    if misplaced < 2 * chance:
        rounds, expected = consistency.rounds, consistency.predicted_total_variation
        if expected is not None and expected >= _NEARLY:
            return (
                f"{name} optimized another objective, by theory: it misplaces {expected:.0%} of the weight; the "
                f"{misplaced:.0%} measured over {rounds} rounds alone may be chance."
            )
        if expected is None:
            return (
                f"{name} cannot be judged after {rounds} rounds: {misplaced:.0%} of the weight went to the wrong "
                "clients, which may be chance."
            )
        nearly = "nearly " if expected >= _EXACT else ""
        return (
            f"{name} {nearly}optimized the intended objective: theory misplaces {expected:.0%} of the weight, and "
            f"the {misplaced:.0%} measured over {rounds} rounds are within chance."
        )
    if misplaced < _NEARLY:
        return f"{name} nearly optimized the intended objective: {misplaced:.0%} of the weight went to wrong clients."
    favored = surrogate > intended
    return (
        f"{name} optimized another objective: {int(favored.sum())} of {len(intended)} clients got "
        f"{float(surrogate[favored].sum()):.0%} of the weight instead of {float(intended[favored].sum()):.0%}."
    )


def why(method: MethodFigures) -> str:
    """The objective that a method optimized in its first run, and the clients that gained and lost most weight.

    Empty where weights are unknown.
    """
    report = method.runs[0].consistency if method.runs else None
    if report is None:
        return ""
    if report.surrogate is None:
        return method.no_weights() or ""
    chance = method.runs[0].by_chance or 0.0
    verdict = objective_verdict("It", report, chance)
    if report.restored or (report.total_variation or 0.0) < max(2 * chance, _EXACT):
        return verdict
    moved, ratios = (report.surrogate - report.intended), method.runs[0].client_ratios()
    most, least = int(moved.argmax()), int(moved.argmin())
    names = method.runs[0].run.names
    gained = "" if ratios[most] is None else f" ({show(ratios[most], 'factor')} its weight)"
    # Without the rest of the name in small letters, as `capitalize` would write it.
    return (
        f"{verdict} C{label(most, names)[1:]} gained most{gained}, {label(least, names)} lost most "
        f"({show(ratios[least], 'factor')})."
    )


class Recommendation(NamedTuple):
    """The method to use after a trial, and the reason."""

    method: str | None
    """None if the trial does not say."""
    sentence: str


def recommendation(summary: Summary) -> Recommendation:
    """The best method that beats the baseline, the present method, beyond noise; else the baseline.

    Where the measure tells no method apart, a lower objective decides, if the mean of the measure is not worse.
    """
    present, measure = summary.baseline, summary.measure
    if present is None or not present.complete:
        return Recommendation(None, "the present method did not finish, so the trial recommends nothing.")
    over = f"over {counted(present.method.num_runs, 'seed')}"
    for method in summary.best_first:
        if summary.standing(method) == "better" and method.difference is not None:
            size = f"{_size(method.difference, measure.kind)}{_unit(measure)}"
            said = f"{over} its {measure.described} is {size} {'higher' if measure.higher else 'lower'}"
            return Recommendation(method.label, f"use {method.label}: {said}.")
    for method in summary.best_first:
        if method is present or not method.both_complete:
            break
        found = method.objective_difference
        if found is not None and found.excludes_zero and found.mean < 0:
            said = f"{over} its objective is {_by_objective(method)} lower, and its {measure.described} is not worse"
            return Recommendation(method.label, f"use {method.label}: {said}.")
    said = f"{over} no other method is better in {measure.described} beyond noise."
    return Recommendation(present.label, f"keep {present.label}: {said}")
