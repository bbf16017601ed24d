"""A Flower app for a spec: model, data, client, server and configuration, ready to run."""

import keyword
import os.path
import re
import subprocess
import sys
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fairlead.clients.preprocessing import Preprocessing
from fairlead.clients.source import RealClients
from fairlead.clients.tables import TableFile
from fairlead.component import Component
from fairlead.errors import DataError, FieldError, disk_errors, field_error
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.spec import to_toml
from fairlead.flower.requests import refuse_unsuitable
from fairlead.flower.server import count_clients
from fairlead.metrics.base import Metric
from fairlead.models.base import Model
from fairlead.worlds.simulated import example_shape

_FILES = ("pyproject.toml", "README.md", "package/task.py", "package/client_app.py", "package/server_app.py")
_LONGEST_NAME = 32
"""Letters that Flower allows in the name of an app."""


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


def refuse_without_imports(modules: set[str], package: Path) -> None:
    """Raise if the client or the server of an app does not import the modules that its spec needs."""
    for end in ("client_app", "server_app") if modules else ():
        code = f"import sys, {package.name}.{end}; print(*sys.modules)"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=package.parent
        )
        if done.returncode:
            reason = done.stderr.strip().splitlines()[-1:] or ["no error message"]
            raise FieldError(
                f"{package.name}.{end} must be importable from {package.parent}, got {reason[0]}."
            )
        for module in sorted(modules - set(done.stdout.split())):
            raise FieldError(
                f"{package / '__init__.py'} must have the line `import {module}`: servers and nodes read spec.toml "
                "anew, which names parts of that module."
            )


def write_project(experiment: Experiment, folder: Path) -> list[Path]:
    """Write an app for an experiment into a new folder; returns the files.

    With the data of a spec, each node loads the part that simulation gives to its client, and evaluates on the same
    test data, until the user replaces `get_data` and `get_test_data`; for `RealClients` `get_data` is empty. The server
    loads no data. The clients of the app standardize a table by sums (`Preprocessing`). The app imports the user's own
    modules, and holds a copy of those that are a single file; packages must be installed.
    """
    refuse_unsuitable(experiment.algorithm, experiment.weights)
    experiment = _with_federated_scale(experiment)
    name = _package_name(folder)
    if folder.exists() and not folder.is_dir():
        raise FieldError(f"{folder} is a file: choose a folder for the app.")
    if folder.exists() and any(folder.iterdir()):
        raise FieldError(f"{folder} is not empty: choose another folder.")
    modules = own_modules(experiment)
    if name in {module.split(".")[0] for module in modules}:
        raise FieldError(f"{folder} must have another name than the module {name}, which the app imports.")
    # Flower allows no underscores in the name of an app.
    facts: dict[str, Any] = {"package": name, "name": name.replace("_", "-"), **_task_facts(experiment)}
    facts["clients"] = count_clients(experiment)
    templates = Environment(
        loader=PackageLoader("fairlead.flower", "template"),
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    contents = dict[Path, str]()
    for written in _FILES:
        template = templates.get_template(f"{Path(written).name}.jinja")
        contents[folder / written.replace("package/", f"{name}/")] = template.render(facts)
    for module in sorted(modules):
        source = sys.modules[module].__file__
        if "." not in module and source is not None and Path(source).name == f"{module}.py":
            contents[folder / f"{module}.py"] = Path(source).read_text(encoding="utf-8")
    imports = [f"import {module}  # noqa: F401" for module in sorted(modules)]
    why = ["", "# spec.toml names parts of these modules."] if imports else []
    contents[folder / name / "__init__.py"] = "\n".join(['"""A federation on Flower."""', *why, *imports, ""])
    contents[folder / name / "spec.toml"] = to_toml(_with_absolute_paths(experiment))
    with disk_errors(folder, "written", FieldError):
        for file, content in contents.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
    return list(contents)


def _with_federated_scale(experiment: Experiment) -> Experiment:
    """The experiment with `standardize` of its table as preprocessing, because real clients have no common table."""
    clients, wanted = experiment.clients, experiment.preprocessing
    if not isinstance(clients, TableFile) or not clients.standardize:
        return experiment
    scaled = Preprocessing(standardize=True) if wanted is None else replace(wanted, standardize=True)
    return replace(experiment, clients=replace(clients, standardize=False), preprocessing=scaled)


def _with_absolute_paths(experiment: Experiment) -> Experiment:
    """The experiment with its data and trace files at absolute paths, since nodes start in other folders."""
    found = {}
    for name in ("clients", "work", "link"):
        part = getattr(experiment, name)
        paths = {key: getattr(part, key, None) for key in ("path", "test_path")}
        changes = {key: os.path.abspath(os.path.expanduser(path)) for key, path in paths.items() if path}
        found[name] = replace(part, **changes) if changes else part
    return replace(experiment, **found)


def _package_name(folder: Path) -> str:
    name = re.sub(r"\W", "_", folder.resolve().name)
    valid = name.isidentifier() and name[0].isalpha() and not keyword.iskeyword(name)
    if not valid or len(name) > _LONGEST_NAME:
        raise FieldError(
            f"The folder's name must make a Python package and begin with a letter, in {_LONGEST_NAME} letters at "
            f"most, got {folder.name!r}."
        )
    return name


def _task_facts(experiment: Experiment) -> dict[str, Any]:
    """The model, data, loss and metrics of the app's task.py; no `shape` where the user writes model and data."""
    real = isinstance(experiment.clients, RealClients)
    task = experiment.task if real else experiment.task or experiment.clients.default_task()
    loss, metrics = ("cross_entropy", ("accuracy",)) if task is None else (task.loss, task.metrics)
    for field, function in (("loss", loss), *(("metrics", metric) for metric in metrics)):
        if not isinstance(function, str | Metric):
            raise field_error(
                "Task", field, "a known name or 'package.module:function' to be written into an app", function
            )
    named = "".join(f"fl.{each!r}, " if isinstance(each, Metric) else f"{each!r}, " for each in metrics)
    found = {"loss": repr(loss), "metrics": f"({named.rstrip()})"}
    if real or task is None:
        return {**found, "shape": None, "tested": None}
    if not isinstance(task.model, Model) or task.augment:
        raise DataError(
            "Only a spec whose task is a named model without augmentation can be written as an app."
        )
    data, wanted = experiment.load(), experiment.preprocessing
    tested = None
    if data.held_out is not None:
        tested = "held_out"
    elif data.test is not None:
        tested = "test" if data.test.num_clients == data.train.num_clients else "shared"
    return {
        **found,
        "model": re.sub(r"\b(?=[A-Z]\w*\()", "fl.", repr(task.model)),
        "shape": repr(example_shape(data.train, data.test, data.held_out)),
        "by_name": wanted is not None and wanted.classes is not None and data.train.class_names is not None,
        "tested": tested,
    }
