"""Users' own models by dotted path."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from fairlead import presets
from fairlead.clients.images import Digits
from fairlead.errors import FieldError
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.spec import from_toml, to_toml
from fairlead.models.base import ExampleShape, Model
from fairlead.models.imported import ImportedModel
from fairlead.plain_data import from_plain, to_plain
from fairlead.task import Task

SHAPE = ExampleShape((2, 3), 4)


def network(width: int, *, scale: float = 1.0, name: str = "a", bias: bool = True) -> nn.Module:
    """A module that shows what it was given."""
    layer = nn.Linear(width, 1, bias=bias)
    nn.init.constant_(layer.weight, scale)
    return nn.Sequential(layer, nn.Identity(), *[nn.ReLU()] * len(name))


def fitted(shape: ExampleShape, depth: int = 1) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(shape.inputs).numel(), shape.outputs * depth))


def not_a_module(width: int) -> int:
    return width


def failing() -> nn.Module:
    raise TypeError("from within")


NO_FUNCTION = 3


def test_arguments_of_every_kind_arrive() -> None:
    arguments = (("width", 2), ("scale", 0.5), ("name", "abc"), ("bias", False))
    module = ImportedModel(f"{__name__}:network", arguments).build(SHAPE)
    assert isinstance(module, nn.Sequential)
    assert len(module) == 5
    assert {name: value.tolist() for name, value in module.named_parameters()} == {"0.weight": [[0.5, 0.5]]}


def test_a_model_may_fit_itself_to_the_data() -> None:
    model = ImportedModel(f"{__name__}:fitted", (("depth", 2),), with_shape=True)
    assert model.build(SHAPE)(torch.zeros(5, 2, 3)).shape == (5, 8)


def test_specs_round_trip_with_the_kinds_of_values_kept() -> None:
    model = ImportedModel(
        f"{__name__}:network", (("width", 2), ("scale", 1.0), ("name", "x"), ("bias", True)), with_shape=True
    )
    plain = to_plain(model, Model)
    assert plain["arguments"] == [["width", 2], ["scale", 1.0], ["name", "x"], ["bias", True]]
    read = from_plain(Model, plain)  # type: ignore[type-abstract]
    assert read == model
    assert isinstance(read, ImportedModel)
    assert [type(value) for _, value in read.arguments] == [int, float, str, bool]
    lists: Any = [list(pair) for pair in model.arguments]
    assert hash(replace(model, arguments=lists)) == hash(model)


def test_toml_round_trip() -> None:
    model = ImportedModel(f"{__name__}:network", (("width", 2), ("scale", 1.0)))
    experiment = Experiment(Digits(num_clients=2), presets.fedavg(lr=0.1), rounds=1, task=Task(model))
    assert from_toml(Experiment, to_toml(experiment)) == experiment


@pytest.mark.parametrize("path", ["", "torch.nn.Linear", "torch.nn:", ":Linear", ".nn:Linear", "a b:c", 3])
def test_a_path_of_another_form_is_refused_at_once(path: str) -> None:
    with pytest.raises(FieldError) as error:
        ImportedModel(path)
    assert str(error.value) == f"ImportedModel.path must be of the form 'package.module:name', got {path!r}."


@pytest.mark.parametrize(
    "arguments", [(1,), (("width",),), ((2, "width"),), (("width", None),), (("a", 1), ("a", 2)), 5, ("ab",)]
)
def test_arguments_that_are_no_pairs_are_refused(arguments: tuple[tuple[str, int], ...]) -> None:
    with pytest.raises(FieldError) as error:
        ImportedModel("torch.nn:Linear", arguments)
    assert str(error.value) == (
        f"ImportedModel.arguments must be pairs of a name and a value, no name twice, got {arguments!r}."
    )


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "no_such_package:Net",
            "ImportedModel.path names 'no_such_package:Net', which cannot be imported: "
            "No module named 'no_such_package'.",
        ),
        (
            "torch.nn:Linea",
            "ImportedModel.path names 'torch.nn:Linea', which cannot be imported: "
            "module 'torch.nn' has no attribute 'Linea'.",
        ),
        (
            f"{__name__}:not_a_module",
            "ImportedModel.path must be the path of a function or class that returns a torch.nn.Module, got "
            f"'{__name__}:not_a_module'.",
        ),
        (
            f"{__name__}:NO_FUNCTION",
            f"ImportedModel.path must be the path of a function or class, got '{__name__}:NO_FUNCTION'.",
        ),
        (
            f"{__name__}:fitted",
            f"ImportedModel.arguments do not fit '{__name__}:fitted': missing a required argument: 'shape'.",
        ),
    ],
)
def test_what_cannot_be_made_is_refused_in_a_sentence(path: str, message: str) -> None:
    arguments = (("width", 1),) if path.endswith("not_a_module") else ()
    with pytest.raises(FieldError) as error:
        ImportedModel(path, arguments).build(SHAPE)
    assert str(error.value) == message


def test_errors_of_the_users_own_code_are_left_alone() -> None:
    with pytest.raises(TypeError, match=r"^from within$"):
        ImportedModel(f"{__name__}:failing").build(SHAPE)
