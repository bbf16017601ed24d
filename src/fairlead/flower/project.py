"""A Flower app for a user's spec: model, data, client, server and configuration, ready to run."""

from __future__ import annotations

import keyword
import re
import subprocess
import sys
from dataclasses import fields, is_dataclass
from importlib.resources import files
from pathlib import Path

from fairlead.clients.source import RealClients
from fairlead.component import Component
from fairlead.errors import DataError, FieldError, field_error
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.spec import to_toml
from fairlead.flower.validation import refuse_reported_weights
from fairlead.models.base import ExampleShape, Model
from fairlead.task import PerExample, Task
from fairlead.worlds.host_data import example_shape


def own_modules(value: object) -> set[str]:
    """Modules outside fairlead that define parts of an experiment, or functions that it names."""
    if isinstance(value, str):
        named = re.fullmatch(r"([A-Za-z_][\w.]*):[A-Za-z_]\w*", value)
        return {named[1]} if named and named[1] in sys.modules else set()
    if isinstance(value, tuple):
        return {module for item in value for module in own_modules(item)}
    if not isinstance(value, Component) or not is_dataclass(value):
        return set()
    found = {module for field in fields(value) for module in own_modules(getattr(value, field.name))}
    module = type(value).__module__
    if module == "__main__":
        raise FieldError(
            f"{type(value).__name__} must be defined in a module that an app can import, got a script."
        )
    return found if module.split(".")[0] == "fairlead" else {*found, module}


def bring_modules(modules: set[str], folder: Path) -> list[Path]:
    """Copy modules that are one file into the folder of an app; packages and what else they need must be installed."""
    copies = []
    for module in sorted(modules):
        source = sys.modules[module].__file__
        if "." not in module and source is not None and Path(source).name == f"{module}.py":
            copies.append(folder / f"{module}.py")
            copies[-1].write_bytes(Path(source).read_bytes())
    return copies


def refuse_without_imports(modules: set[str], package: Path) -> None:
    """Raise if an end of an app does not import what its spec needs: its processes would not know the parts."""
    for end in ("client_app", "server_app") if modules else ():
        code = f"import sys, {package.name}.{end}; print(*sys.modules)"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=package.parent
        )
        if done.returncode:
            reason = done.stderr.strip().splitlines()[-1:] or ["it ended without a word"]
            raise FieldError(
                f"{package.name}.{end} must be importable from {package.parent}, got {reason[0]}."
            )
        for module in sorted(modules - set(done.stdout.split())):
            raise FieldError(
                f"{package / '__init__.py'} must have the line `import {module}`: servers and nodes read spec.toml "
                "anew, which names parts of that module."
            )


_FILES = ("pyproject.toml", "README.md", "package/task.py", "package/client_app.py", "package/server_app.py")

_LONGEST_NAME = 32
"""That Flower allows."""


def write_project(experiment: Experiment, folder: Path) -> list[Path]:
    """Write an app for an experiment into a new folder, and say what was written.

    Clients of a spec with data are dealt as in simulation, each node loading its own part, until the function
    that loads them is replaced; those of `RealClients` start with a function to be filled in. Modules with parts
    of one's own are imported by the app, which also brings those that are a single file.
    """
    refuse_reported_weights(experiment.algorithm.aggregator, experiment.weights)
    name = _package_name(folder)
    if folder.exists() and not folder.is_dir():
        raise FieldError(f"{folder} is a file: choose a folder for the app.")
    if folder.exists() and any(folder.iterdir()):
        raise FieldError(f"{folder} is not empty: choose another folder.")
    modules = own_modules(experiment)
    if name in {module.split(".")[0] for module in modules}:
        raise FieldError(f"{folder} must have another name than the module {name}, which the app imports.")
    # Flower takes no name of an app with underscores.
    words = {"PACKAGE": name, "NAME": name.replace("_", "-"), **_task_words(experiment)}
    written = []
    try:
        for file in _FILES:
            target = folder / file.replace("package/", f"{name}/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_template(file, words), encoding="utf-8")
            written.append(target)
        package = folder / name
        (package / "__init__.py").write_text(_package_source(modules), encoding="utf-8")
        written += bring_modules(modules, folder)
        (package / "spec.toml").write_text(to_toml(experiment), encoding="utf-8")
    except OSError as error:
        raise FieldError(f"{folder} cannot be written: {error.strerror}.") from error
    return [*written, package / "__init__.py", package / "spec.toml"]


def _package_source(modules: set[str]) -> str:
    imports = [f"import {module}  # noqa: F401" for module in sorted(modules)]
    why = ["", "# spec.toml names parts of these modules."] if imports else []
    return "\n".join(['"""A federation on Flower."""', *why, *imports, ""])


def _package_name(folder: Path) -> str:
    name = re.sub(r"\W", "_", folder.resolve().name)
    if (
        not name.isidentifier()
        or keyword.iskeyword(name)
        or not name[0].isalpha()
        or len(name) > _LONGEST_NAME
    ):
        raise FieldError(
            f"The folder's name must make a Python package and begin with a letter, in {_LONGEST_NAME} letters at "
            f"most, got {folder.name!r}."
        )
    return name


def _template(file: str, words: dict[str, str]) -> str:
    text = files("fairlead.flower").joinpath(f"template/{Path(file).name}.txt").read_text(encoding="utf-8")
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return text


def _task_words(experiment: Experiment) -> dict[str, str]:
    """What the app's task.py says of model and data."""
    if isinstance(experiment.clients, RealClients):
        return {
            "MODEL": '    raise NotImplementedError("Return the torch module that all clients train.")',
            "DATA": '    raise NotImplementedError("Return this client\'s inputs and targets, a row per example.")',
            "IMPORTS": "from torch import nn",
            "METRICS": repr(_metrics(experiment.task)),
            "LOSS": repr(_loss(experiment.task)),
        }
    data = experiment.load()
    task = experiment.task or experiment.clients.default_task()
    shape = example_shape(data.train, data.test)
    return {
        "MODEL": f"    return {_model_source(task, shape)}",
        "DATA": "    data = fl.load_experiment(SPEC).load().train\n"
        "    rows = data.rows_of(client_of(context))\n"
        "    return data.inputs[rows], data.targets[rows]",
        "IMPORTS": "from torch import nn\n\nimport fairlead as fl\n"
        "from fairlead.models.base import ExampleShape",
        "METRICS": repr(_metrics(task)),
        "LOSS": repr(_loss(task)),
    }


def _model_source(task: Task, shape: ExampleShape) -> str:
    if not isinstance(task.model, Model) or task.augment:
        raise DataError(
            "Only a spec whose task is a named model without augmentation can be written as an app."
        )
    return f"fl.{task.model!r}.build({shape!r})"


def _loss(task: Task | None) -> str:
    return "cross_entropy" if task is None else _written("loss", task.loss)


def _metrics(task: Task | None) -> tuple[str, ...]:
    return ("accuracy",) if task is None else tuple(_written("metrics", metric) for metric in task.metrics)


def _written(field: str, function: str | PerExample) -> str:
    """What the app's source says of a loss or a metric."""
    if not isinstance(function, str):
        raise field_error(
            "Task", field, "a known name or 'package.module:function' to be written into an app", function
        )
    return function
