"""A user's own model, by dotted path."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torch import nn

from fairlead.errors import FieldError, field_error
from fairlead.models.base import ExampleShape, Model


@dataclass(frozen=True)
class ImportedModel(Model):
    """A user's own model: `path` is "package.module:function", called with `arguments`."""

    path: str
    arguments: tuple[int, ...] = ()

    def build(self, shape: ExampleShape) -> nn.Module:
        module = imported(self.path, "ImportedModel.path")(*self.arguments)
        if not isinstance(module, nn.Module):
            raise field_error(self, "path", "a function that returns a torch.nn.Module", self.path)
        return module


def imported(path: str, where: str) -> Any:
    """What "package.module:name" names; `where` is the field that the error names."""
    module_name, colon, name = path.partition(":")
    if not colon:
        raise FieldError(f"{where} must be of the form 'package.module:name', got {path!r}.")
    try:
        return getattr(import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise FieldError(f"{where} names {path!r}, which cannot be imported: {error}.") from error
