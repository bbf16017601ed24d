"""What fairlead has: parts by kind, presets, published settings, and the papers behind them."""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fairlead.aggregators.base import Aggregator
from fairlead.clients.feature_skew import FeatureSkew
from fairlead.clients.partitioners import Partitioner
from fairlead.clients.source import ClientSource
from fairlead.clients.tokenizers import Tokenizer
from fairlead.component import Component, is_part, parts_of, summary
from fairlead.conditions.devices import DeviceModel
from fairlead.conditions.links import LinkModel
from fairlead.conditions.work import WorkModel
from fairlead.corrections.base import Correction
from fairlead.errors import FieldError, did_you_mean, require_name
from fairlead.experiments.spec_fields import Parameter, argument_parameters, spec_parameters
from fairlead.metrics.base import Metric
from fairlead.models.augmentation import Augmentation
from fairlead.models.base import Model
from fairlead.optimizers.base import Optimizer, Schedule
from fairlead.presets import METHODS, Method
from fairlead.references import REFERENCES, Reference, reference
from fairlead.samplers.base import Sampler
from fairlead.settings import SETTINGS, PublishedSetting
from fairlead.task import LOSSES, METRICS, minimizes
from fairlead.transforms.base import DirectionTransform

ROLES: dict[str, tuple[type[Component], ...]] = {
    "samplers": (Sampler,),
    "optimizers": (Optimizer,),
    "corrections": (Correction,),
    "aggregators": (Aggregator,),
    "transforms": (DirectionTransform,),
    "clients": (ClientSource,),
    "partitioners": (Partitioner,),
    "skews": (FeatureSkew,),
    "tokenizers": (Tokenizer,),
    "augmentations": (Augmentation,),
    "work": (WorkModel,),
    "links": (LinkModel,),
    "devices": (DeviceModel,),
    "models": (Model,),
    "schedules": (Schedule,),
    "metrics": (Metric,),
    "tables": tuple(cls for cls in Component.__subclasses__() if is_part(cls)),
}
"""Kinds of parts, by the name under which they are listed; of each of the "tables" there is only one."""

_BUILT: dict[str, Mapping[str, Method | PublishedSetting]] = {"presets": METHODS, "settings": SETTINGS}

_FUNCTIONS: dict[str, list[Any]] = {
    "losses": [*LOSSES.values()],
    "metrics": [metric for metric in METRICS.values() if not isinstance(metric, Metric)],
}
"""Functions that a spec names."""

KINDS = (*ROLES, "losses", *_BUILT)

_WHERE_ALL_ARE = "See `fairlead list`."
"""Instead of all names, which would fill the screen."""


@dataclass(frozen=True)
class Entry:
    """A part, a preset or a published setting."""

    kind: str
    name: str
    summary: str
    """The first sentence of its docstring."""
    text: str
    """All of it."""
    parameters: tuple[Parameter, ...]
    references: tuple[Reference, ...]


def entries(kind: str) -> list[Entry]:
    """Everything of a kind."""
    if kind in _BUILT:
        return [
            _entry(kind, each.name, each.build, argument_parameters(each.build), each.references)
            for each in _BUILT[kind].values()
        ]
    functions = [_entry(kind, each.__name__, each, (), ()) for each in _FUNCTIONS.get(kind, ())]
    if kind not in KINDS:
        raise FieldError(
            f"{kind!r} is not a kind of parts." + did_you_mean(kind, [*KINDS, "methods", "reproductions"])
        )
    parts = [cls for role in ROLES.get(kind, ()) for cls in parts_of(role).values()]
    return functions + [
        _named(_entry(kind, cls.__name__, cls, spec_parameters(cls), cls.references), cls) for cls in parts
    ]


def _named(found: Entry, cls: type[Component]) -> Entry:
    """The entry of a metric with the names that stand for it in a spec."""
    names = [name for name, metric in METRICS.items() if type(metric) is cls]
    if not names:
        return found
    listed = f"In a spec: {', '.join(names)}." + (" Smaller is better." if minimizes(names[0]) else "")
    return replace(found, summary=f"{found.summary} {listed}", text=f"{found.text}\n\n{listed}")


def entry(name: str) -> Entry:
    """The part, preset or setting of the given name."""
    known = _all_entries()
    metric = METRICS.get(name)
    name = type(metric).__name__ if isinstance(metric, Metric) else name
    if name not in known:
        near = did_you_mean(name, [*known, *METRICS], otherwise=_WHERE_ALL_ARE)
        raise FieldError(f"{name!r} is not a part, a preset or a setting.{near}")
    return known[name]


def citations(name: str) -> list[Reference]:
    """The papers behind a part, a preset or a setting, or the one with the given key."""
    if name in REFERENCES:
        return [reference(name)]
    known = _all_entries()
    names = [*known, *REFERENCES]
    require_name(name, names, "a part, a preset, a setting or the key of a paper", otherwise=_WHERE_ALL_ARE)
    if not known[name].references:
        raise FieldError(f"{name} has no paper to cite.")
    return list(known[name].references)


def _all_entries() -> dict[str, Entry]:
    return {found.name: found for kind in KINDS for found in entries(kind)}


def _entry(
    kind: str, name: str, documented: object, parameters: Iterable[Parameter], keys: Iterable[str]
) -> Entry:
    text = inspect.getdoc(documented) or ""
    return Entry(kind, name, summary(documented), text, tuple(parameters), tuple(map(reference, keys)))
