"""A model imported by its dotted path."""

import inspect
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from torch import nn

from fairlead.errors import DataError, FieldError, field_error, short
from fairlead.models.base import ExampleShape, Model

Argument = bool | int | float | str


class NamedArguments:
    """The values of a field of keyword arguments."""

    def __repr__(self) -> str:
        return "pairs of a name and a value, no name twice"

    def fault(self, value: object) -> str:
        pairs = value if isinstance(value, tuple) and all(map(_is_pair, value)) else ((), ())
        return repr(self) if len({pair[:1] for pair in pairs}) < len(pairs) else ""


@dataclass(frozen=True)
class ImportedModel(Model):
    """An imported model: `path` is "package.module:name" of a function or class that returns a module.

    It is called with the keyword `arguments`, pairs of a name and a value; with `with_shape` also with
    `shape`, an `ExampleShape`, for models that fit themselves to the data. In TOML:

        path = "torchvision.models:resnet18"
        arguments = [["num_classes", 10]]

    >>> layer = ImportedModel("torch.nn:Linear", (("in_features", 3), ("out_features", 2)))
    >>> layer.build(ExampleShape((3,), 2))
    Linear(in_features=3, out_features=2, bias=True)
    """

    path: str
    arguments: Annotated[tuple[tuple[str, Argument], ...], NamedArguments()] = ()
    with_shape: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _divided(self.path, "ImportedModel.path")

    def build(self, shape: ExampleShape) -> nn.Module:
        make = imported(self.path, "ImportedModel.path")
        arguments: dict[str, Argument | ExampleShape] = dict(self.arguments)
        if self.with_shape:
            arguments["shape"] = shape
        self._require_fit(make, arguments)
        module = make(**arguments)
        if not isinstance(module, nn.Module):
            raise field_error(
                self, "path", "the path of a function or class that returns a torch.nn.Module", self.path
            )
        return module

    def _require_fit(self, make: Any, arguments: Mapping[str, object]) -> None:
        """Refuse arguments that the function does not take, before it runs and fails in its own ways."""
        if not callable(make):
            raise field_error(self, "path", "the path of a function or class", self.path)
        if not _promises_module(make):
            raise FieldError(
                f"ImportedModel.path names {short(self.path)}, which is not annotated to return a torch.nn.Module. "
                "For safety a spec cannot call arbitrary installed functions: wrap it in a function of your own module."
            )
        signature = _signature(make)
        try:
            if signature is not None:
                signature.bind(**arguments)
        except TypeError as error:
            raise FieldError(f"ImportedModel.arguments do not fit {short(self.path)}: {error}.") from error


@dataclass(frozen=True)
class InMemoryModel(Model):
    """Stands in the folder of a run for a module that a Python program held: `name` of its class, and its `digest`."""

    name: str
    digest: str

    def build(self, shape: ExampleShape) -> nn.Module:
        raise DataError(
            f"The model {self.name} was in the memory of a Python program, and no spec holds it: give a module of the "
            "same form, as in load_model(folder, module=...) or --model MODULE:FUNCTION, or resume in Python."
        )


def imported(path: str, where: str) -> Any:
    """The object "package.module:name"; `where` is the field named in errors."""
    module_name, name = _divided(path, where)
    if module_name.split(".")[0] in sys.stdlib_module_names:
        raise FieldError(
            f"{where} names {short(path)}, which is part of Python's standard library and returns no model."
        )
    try:
        return getattr(import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise FieldError(f"{where} names {short(path)}, which cannot be imported: {error}.") from error


def _divided(path: str, where: str) -> tuple[str, str]:
    module_name, _, name = path.partition(":") if isinstance(path, str) else ("", "", "")
    if not name.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
        raise FieldError(f"{where} must be of the form 'package.module:name', got {short(path)}.")
    return module_name, name


def _promises_module(make: Any) -> bool:
    """Whether it is user code, a class of modules, or a function annotated to return a module."""
    if isinstance(make, type):
        return issubclass(make, nn.Module)
    origin = getattr(sys.modules.get(getattr(make, "__module__", "") or ""), "__file__", None)
    installed = [sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")]
    if origin is not None and not any(Path(origin).is_relative_to(folder) for folder in installed):
        return True
    signature = _signature(make)
    made = None if signature is None else signature.return_annotation
    return isinstance(made, type) and issubclass(made, nn.Module)


def _is_pair(value: object) -> bool:
    match value:
        case (str() as name, bool() | int() | float() | str()):
            return name.isidentifier()
    return False


def _signature(make: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(make, eval_str=True)
    except (ValueError, TypeError, NameError):
        # Some functions of compiled modules have no signature.
        return None
