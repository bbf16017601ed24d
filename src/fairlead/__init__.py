"""Federated optimization when clients differ.

Names are imported when they are first used: `import fairlead` alone does not load torch.
"""

from importlib import import_module
from inspect import isclass, isfunction
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlead import diagnostics as diagnostics
    from fairlead import errors as errors
    from fairlead import presets as presets
    from fairlead import settings as settings
    from fairlead import testing as testing
    from fairlead.aggregators import *
    from fairlead.algorithm import Algorithm as Algorithm
    from fairlead.augmentation import Augmentation as Augmentation
    from fairlead.augmentation import HorizontalFlip as HorizontalFlip
    from fairlead.augmentation import Normalize as Normalize
    from fairlead.augmentation import RandomCrop as RandomCrop
    from fairlead.calibration import calibrated_lr as calibrated_lr
    from fairlead.calibration import step_length as step_length
    from fairlead.client_table import ClientTable as ClientTable
    from fairlead.clients import *
    from fairlead.conditions import *
    from fairlead.corrections import *
    from fairlead.experiments import *
    from fairlead.federation import Federation as Federation
    from fairlead.local_solver import LocalSolver as LocalSolver
    from fairlead.models import *
    from fairlead.optimizers import *
    from fairlead.privacy import ClientPrivacy as ClientPrivacy
    from fairlead.randomness import Key as Key
    from fairlead.records import *
    from fairlead.round import run_round as run_round
    from fairlead.samplers import *
    from fairlead.studies import *
    from fairlead.task import *
    from fairlead.transforms import *
    from fairlead.worlds import *

__version__ = "0.1.0"

_MODULES = ("diagnostics", "errors", "presets", "settings", "testing")
_HOMES = (
    *(
        "algorithm",
        "augmentation",
        "calibration",
        "client_table",
        "federation",
        "local_solver",
        "privacy",
        "randomness",
        "records",
        "round",
        "task",
    ),
    *("samplers", "optimizers", "corrections", "aggregators", "transforms"),
    *("clients", "conditions", "models", "worlds", "experiments", "studies"),
)


def __dir__() -> list[str]:
    found = {*_MODULES, "__version__"}
    for home in _HOMES:
        module = import_module(f"fairlead.{home}")
        found |= {name for name in vars(module) if _is_offered(module, name)}
    return sorted(found)


def _is_offered(module: ModuleType, name: str) -> bool:
    """Whether a class or function is for users: defined in the module, or what a package gathers."""
    value = vars(module).get(name)
    origin = value.__module__ if isclass(value) or isfunction(value) else ""
    at_home = origin.startswith("fairlead.") if hasattr(module, "__path__") else origin == module.__name__
    return at_home and not name.startswith("_")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"fairlead.{name}")
    for home in _HOMES if not name.startswith("_") else ():
        module = import_module(f"fairlead.{home}")
        if _is_offered(module, name):
            return vars(module)[name]
    raise AttributeError(f"module 'fairlead' has no attribute {name!r}")
