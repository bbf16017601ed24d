"""`fairlead init` and `fairlead doctor`: how to start, and whether one can."""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead import __version__
from fairlead.cli.console import JsonOption, print_json, print_table, say
from fairlead.errors import FieldError


def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("fairlead.toml"),
) -> None:
    """Write a commented spec that runs as it is."""
    text = files("fairlead.experiments").joinpath("starter.toml").read_text(encoding="utf-8")
    name = shlex.quote(str(path))
    if path.exists():
        raise FieldError(f"{path} exists already: choose another name.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text.replace("THIS_FILE", name))
    except OSError as error:
        raise FieldError(f"{path} cannot be written: {error.strerror}.") from error
    say(f"Wrote {path}. Run it with: fairlead run {name}")


def doctor(as_json: JsonOption = False) -> None:
    """Check versions, devices and optional packages."""
    versions, devices, extras = _versions(), _devices(), _extras()
    if as_json:
        print_json({"versions": versions, "devices": devices, "extras": extras})
        return
    print_table(["software", "version"], [[name, version] for name, version in versions.items()])
    say()
    print_table(["device", "what it is"], [[name, what] for name, what in devices.items()])
    if extras:
        say()
        rows = [
            [name, "yes" if extra["usable"] else "no", ", ".join(extra["missing"]), extra["install"]]
            for name, extra in extras.items()
        ]
        print_table(["extra", "usable", "missing", "install with"], rows)


def _versions() -> dict[str, str]:
    found = {"fairlead": __version__, "python": platform.python_version()}
    for package in ("torch", "numpy", "safetensors", "rich", "typer", "tomli-w"):
        found[package] = _version_of(package) or "missing"
    return {**found, "platform": platform.platform()}


def _devices() -> dict[str, str]:
    import torch

    threads = torch.get_num_threads()
    devices = {"cpu": f"{os.cpu_count()} cores, torch uses {threads} threads, {platform.machine()}"}
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        devices[f"cuda:{index}"] = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    return devices


def _extras() -> dict[str, dict[str, Any]]:
    """Optional packages by extra, as the installed package declares them."""
    try:
        declared = metadata.requires("fairlead") or []
    except metadata.PackageNotFoundError:
        return {}
    packages: dict[str, list[str]] = {}
    for requirement in declared:
        extra = re.search(r"extra\s*==\s*['\"]([\w.-]+)['\"]", requirement)
        name = re.match(r"[\w.-]+", requirement)
        if extra and name:
            packages.setdefault(extra[1], []).append(name[0])
    extras: dict[str, dict[str, Any]] = {}
    for extra_name, names in packages.items():
        missing = [package for package in names if _version_of(package) is None]
        command = (
            "" if not missing else f"{Path(sys.executable).name} -m pip install 'fairlead[{extra_name}]'"
        )
        extras[extra_name] = {"usable": not missing, "missing": missing, "install": command}
    return extras


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
