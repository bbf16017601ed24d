"""Nothing is sent anywhere: importing fairlead, running an experiment and reporting it open no connection."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import socket
import sys

attempts = []


def forbidden(*arguments, **named):
    attempts.append(arguments)
    raise OSError("this test has no network")


for name in ("connect", "connect_ex", "sendto", "bind"):
    setattr(socket.socket, name, forbidden)
for name in ("create_connection", "getaddrinfo", "gethostbyname"):
    setattr(socket, name, forbidden)
sys.addaudithook(lambda event, arguments: forbidden(event) if event in EVENTS else None)

from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app

for name in fl.__dir__():
    getattr(fl, name)
for arguments in (
    ["init", "experiment.toml"],
    ["run", "experiment.toml", "--rounds", "2", "-o", "run"],
    ["report", "run"],
    ["doctor"],
    ["list"],
    ["diagnose", "experiment.toml", "--quick"],
):
    ended = CliRunner().invoke(app, arguments)
    assert ended.exit_code == 0, (arguments, ended.output, ended.exception)
assert not attempts, attempts
print("no connection")
"""
EVENTS = ("socket.connect", "socket.sendto", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname")
PROBE = "import socket; socket.create_connection(('127.0.0.1', 9), timeout=1)"


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    content = script.replace("EVENTS", repr(EVENTS))
    return subprocess.run(
        [sys.executable, "-c", content], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


def test_no_connection_is_opened(tmp_path: Path) -> None:
    ended = run(SCRIPT, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "no connection\n"


def test_a_connection_would_be_seen(tmp_path: Path) -> None:
    """The guard itself works: a script that connects behind it fails."""
    guard = SCRIPT.partition("from typer.testing")[0]
    ended = run(f"{guard}\n{PROBE}", tmp_path)
    assert ended.returncode != 0
    assert "this test has no network" in ended.stderr
