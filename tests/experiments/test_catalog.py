"""The catalog finds everything, also what others add, and explains it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest
from torch import Tensor

import fairlead as fl
from fairlead.component import Component, parts_of
from fairlead.errors import FieldError
from fairlead.experiments.catalog import KINDS, ROLES, citations, entries, entry
from fairlead.presets import METHODS
from fairlead.records import ClientUpdates, Conditions


@dataclass(frozen=True)
class TopHeavyMean(fl.LinearAggregator):
    """Counts the first arrival `factor` times."""

    factor: float = 2.0
    """How often."""
    ties: Literal["first", "last"] = "first"

    references = ("wang2021fednova",)

    def coefficients(self, updates: ClientUpdates, conditions: Conditions) -> Tensor:
        weights = updates.importance.clone()
        weights[0] *= self.factor
        return weights / weights.sum()


def test_every_part_of_the_library_has_a_kind() -> None:
    listed = {cls for roles in ROLES.values() for role in roles for cls in parts_of(role).values()}
    own = {cls for cls in parts_of(Component).values() if cls.__module__.startswith("fairlead.")}
    assert own <= listed


@pytest.mark.parametrize("kind", KINDS)
def test_everything_of_a_kind_has_a_name_and_a_sentence(kind: str) -> None:
    found = entries(kind)
    assert found
    for each in found:
        assert each.kind == kind
        assert entry(each.name) == each
        assert each.summary
        assert "\n" not in each.summary


def test_a_new_part_is_found_and_explained_without_registration() -> None:
    found = entry("TopHeavyMean")
    assert (found.kind, found.summary) == ("aggregators", "Counts the first arrival `factor` times.")
    factor, ties = found.parameters
    assert (factor.name, factor.type, factor.written, factor.default) == ("factor", float, "float", 2.0)
    assert factor.description == "How often."
    assert (ties.written, ties.description) == ("'first' | 'last'", "")
    assert [reference.key for reference in citations("TopHeavyMean")] == ["wang2021fednova"]
    spec = "solver = {optimizer = {type='SGD', lr=1.0}}\naggregator = {type='TopHeavyMean', factor=3}"
    assert fl.from_toml(fl.Algorithm, spec).aggregator == TopHeavyMean(3.0)


def test_inherited_fields_keep_their_descriptions() -> None:
    parameters = {parameter.name: parameter for parameter in entry("Adam").parameters}
    assert parameters["lr"].required
    assert parameters["schedule"].description == "Factor on `lr` by round."


def test_presets_show_their_own_arguments_and_those_of_the_clients() -> None:
    parameters = {parameter.name: parameter for parameter in entry("fedprox").parameters}
    assert next(iter(parameters)) == "mu"
    assert {name for name, parameter in parameters.items() if parameter.required} == {"mu", "lr"}
    assert parameters["batch_size"].type == int | None
    assert parameters["cohort_size"].description


def test_citations_by_part_preset_and_key() -> None:
    (by_key,) = citations("wang2021fednova")
    assert citations("FedNova") == citations("fednova") == [by_key]
    assert by_key.bibtex().startswith("@")


def test_every_method_can_be_cited() -> None:
    for name in METHODS:
        assert citations(name)


@pytest.mark.parametrize(
    ("function", "name", "message"),
    [
        (entries, "sampler", "'sampler' is not a kind of parts. Did you mean 'samplers'?"),
        (entry, "Proximall", "'Proximall' is not a part, a preset or a setting. Did you mean 'Proximal'?"),
        (entry, "q", "'q' is not a part, a preset or a setting. See `fairlead list`."),
        (citations, "wang2021", "'wang2021' is not a part, a preset, a setting or the key of a paper. Did"),
        (citations, "Constant", "Constant has no paper to cite."),
    ],
)
def test_names_that_do_not_exist(function: object, name: str, message: str) -> None:
    assert callable(function)
    with pytest.raises(FieldError) as caught:
        function(name)
    assert str(caught.value).startswith(message)
