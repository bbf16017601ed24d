"""An advised preset as it is written: in Python, in a spec, and for `fairlead compare`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

import tomli_w

from fairlead.diagnostics.foreseen import Arguments
from fairlead.methods import ClientSide
from fairlead.plain_data import NONE


@dataclass(frozen=True)
class SpecFile:
    """The spec that a diagnosis is about."""

    path: str
    method: str | None
    """The present method, as a list of methods names it; None where the spec leaves it to a setting."""
    overrides: tuple[str, ...] = ()
    """Changes of the spec that concern every method."""


def python_call(preset: str, arguments: Arguments, server_lr: float | None) -> str:
    """`fl.presets.fedacs(lr=0.05, cohort_size=20)`; a learning rate that nobody told is left open."""
    named = [f"{name}={value!r}" for name, value in arguments.items()]
    call = f"fl.presets.{preset}({', '.join(named if 'lr' in arguments else ['lr=...', *named])})"
    return call if server_lr is None else f"dataclasses.replace({call}, server=fl.SGD(lr={server_lr!r}))"


def spec_table(preset: str, arguments: Arguments, server_lr: float | None) -> str | None:
    """The `[algorithm]` of a spec; None where nobody told the learning rate of the clients."""
    if "lr" not in arguments:
        return None
    table = tomli_w.dumps({"algorithm": {"preset": preset} | {k: _plain(v) for k, v in arguments.items()}})
    return table if server_lr is None else f"{table}server.lr = {server_lr!r}\n"


def compare_command(spec: SpecFile, preset: str, arguments: Arguments, server_lr: float | None) -> str:
    """The comparison of the present method with the preset, which takes its client side from the spec."""
    own = {k: v for k, v in arguments.items() if k == "cohort_size" or k not in ClientSide.__annotations__}
    if server_lr is not None:
        own["server.lr"] = server_lr
    values = [
        f"{name}={tomli_w.dumps({'': _plain(value)}).split(' = ')[1].strip()}" for name, value in own.items()
    ]
    methods = [*([] if spec.method is None else [spec.method]), ":".join([preset, *values])]
    changes = [part for change in spec.overrides for part in ("--set", change)]
    return shlex.join(["fairlead", "compare", spec.path, "--methods", ",".join(methods), *changes])


def _plain(value: float | int | bool | None) -> float | int | bool | str:
    return NONE if value is None else value
