"""`fairlead doctor`: versions, devices, paths of the engines and extras of this machine."""

import os
import platform
import re
import shlex
import sys
from importlib import metadata
from typing import Any, NamedTuple

from fairlead import __version__
from fairlead.cli.console import print_json, print_table, say
from fairlead.cli.options import JsonOption

PURPOSES = {
    "data": "Parquet tables and Hugging Face folders",
    "docs": "building the documentation",
    "flower": "real federations on Flower",
    "hf": "Hugging Face models, LoRA and tokenizers",
    "native": "faster softmax regression, pooling and FedAWARE on CPUs",
    "plots": "figures for papers and of diagnoses",
    "privacy": "accounts of differential privacy",
    "onnx": "export of models to ONNX",
    "wandb": "tracking with Weights & Biases",
    "aim": "tracking with Aim",
    "ray": "simulations over several processes and machines",
    "test": "working on fairlead",
    "track": "logs for TensorBoard and MLflow",
}
"""The purpose of each extra; an extra without an entry is listed too."""


class _Package(NamedTuple):
    """A package that fairlead or one of its extras requires."""

    name: str
    wanted: str
    """The accepted versions, as in the requirement."""
    installed: str | None


def doctor(as_json: JsonOption = False) -> None:
    """Check versions, devices, engines and extras, and show how to install missing packages."""
    from fairlead.worlds.engines.paths import PATHS

    core, extras = _requirements()
    software = {"fairlead": __version__, "python": platform.python_version()}
    software |= {package.name: package.installed or "missing" for package in core}
    software["platform"] = platform.platform()
    devices = _devices()
    # In the order in which engines try them.
    paths = [
        {
            "path": path.name,
            "engine": path.engine,
            "backend": path.backend,
            "devices": path.devices,
            "takes": path.takes_only,
            "missing": path.missing(),
        }
        for path in PATHS
    ]
    offers = {name: _offer(name, packages) for name, packages in extras.items()}
    if as_json:
        print_json({"versions": software, "devices": devices, "paths": paths, "extras": offers})
        return
    print_table(["software", "version"], [[name, version] for name, version in software.items()])
    say()
    rows = [[name, "yes" if device["usable"] else "no", device["what"]] for name, device in devices.items()]
    print_table(["device", "usable", "what it is"], rows)
    say()
    rows = [
        [
            f"{path['path']} ({path['backend']})",
            path["engine"],
            f"no: {path['missing']}" if path["missing"] else "yes",
            path["takes"],
        ]
        for path in paths
    ]
    print_table(["path, fastest first", "engine", "usable", "takes"], rows)
    say()
    rows = [
        [name, "yes" if offer["usable"] else "no", offer["purpose"], ", ".join(offer["missing"])]
        for name, offer in offers.items()
    ]
    print_table(["extra", "usable", "for", "missing"], rows)
    missing = [name for name, offer in offers.items() if not offer["usable"]]
    if missing:
        say(f"\nFor example, for {missing[0]}, in fairlead's folder: pip install -e '.[{missing[0]}]'")


def _requirements() -> tuple[list[_Package], dict[str, list[_Package]]]:
    """Packages of the core and of each extra, as the installed package declares them."""
    core: list[_Package] = []
    extras: dict[str, list[_Package]] = {}
    for requirement in _declared():
        extra = re.search(r"extra\s*==\s*['\"]([\w.-]+)['\"]", requirement)
        match = re.match(r"([\w.-]+)(?:\[[^]]*\])?\s*([^;]*)", requirement)
        assert match is not None
        package = _Package(match[1], match[2].strip(), _version_of(match[1]))
        if extra is None:
            core.append(package)
        elif package.name != "fairlead":
            extras.setdefault(extra[1], []).append(package)
    return core, dict(sorted(extras.items()))


def _declared() -> list[str]:
    try:
        return metadata.requires("fairlead") or []
    except metadata.PackageNotFoundError:
        # Run from a checkout that was never installed.
        return []


def _offer(extra: str, packages: list[_Package]) -> dict[str, Any]:
    missing = [package for package in packages if package.installed is None]
    # By their own names: on the package index "fairlead" is another project.
    wanted = [package.name + package.wanted for package in missing]
    python = os.path.basename(sys.executable) or "python"
    return {
        "purpose": PURPOSES.get(extra, ""),
        "usable": not missing,
        "packages": {
            package.name: {"wanted": package.wanted, "installed": package.installed} for package in packages
        },
        "missing": [package.name for package in missing],
        "install": shlex.join([python, "-m", "pip", "install", *wanted]) if missing else "",
    }


def _devices() -> dict[str, dict[str, Any]]:
    """The CPU, and GPUs, each tested by a small product, or the reason why there is none."""
    import torch

    from fairlead.text import counted

    threads = counted(torch.get_num_threads(), "thread")
    cores = f"{os.cpu_count()} cores, torch uses {threads}, {platform.machine()}"
    devices: dict[str, dict[str, Any]] = {"cpu": {"usable": True, "what": cores}}
    if torch.version.cuda is None:
        what = "this torch is built for CPUs only: install a build for CUDA"
        devices["cuda"] = {"usable": False, "what": what}
    elif torch.cuda.device_count() == 0:
        devices["cuda"] = {"usable": False, "what": "torch is built for CUDA but finds no GPU or no driver"}
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        what, usable = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB", True
        try:
            one = torch.ones(2, 2, device=f"cuda:{index}")
            (one @ one).cpu()
        except RuntimeError as error:
            what, usable = f"{what}: {str(error).splitlines()[0]}", False
        devices[f"cuda:{index}"] = {"usable": usable, "what": what}
    if torch.backends.mps.is_available():
        what = "Apple's GPU: clients train there in float32, one after another; sums are taken on the CPU"
        devices["mps"] = {"usable": True, "what": what}
    return devices


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
