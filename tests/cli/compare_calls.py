"""`fairlead compare` on a small spec, called in this process."""

from __future__ import annotations

import json
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from fairlead.cli import app

SPEC = """
rounds = 4
evaluate_every = 1
[clients]
type = "Digits"
num_clients = 4
[algorithm]
preset = "fedavg"
lr = 0.1
steps = 3
[link]
type = "BernoulliLink"
drop = 0.3
"""


def call(*arguments: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["compare", "spec.toml", "--jobs", "1", *arguments])
    assert result.exit_code == exit_code, result.output
    return result


def data(*arguments: str, exit_code: int = 0) -> Any:
    return json.loads(call(*arguments, "--json", exit_code=exit_code).stdout)
