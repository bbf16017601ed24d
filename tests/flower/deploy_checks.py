"""The commands of deploy/compose.yaml as processes of this machine: `make test-flower`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

from cryptography.hazmat.primitives.serialization import load_pem_public_key, load_ssh_public_key
from deployed import DEPLOY, ROOT, composed
from trial_app import is_finished, processes_of, wait_for

from fairlead.experiments.run_folder import load_records
from fairlead.flower.local_trial import Credentials, free_port
from fairlead.flower.server import MEMBERS

_SECONDS = 900.0
"""For processes to start and three rounds to end on a busy machine."""


def test_the_commands_of_the_compose_file_run_a_federation(tmp_path: Path) -> None:
    """With TLS and node keys; registering again, as a second `up` does, changes nothing.

    Processes share a machine, so paths lead to the folder of a service, and each has a port of its own.
    """
    credentials, port = Credentials.make(tmp_path / "secrets", 3, ["superlink"]), free_port()
    home = tmp_path / "home"
    home.mkdir()
    connection = (DEPLOY / "flower.toml").read_text()

    def here(text: str, service: str) -> str:
        for found, own in (
            ("/run/secrets", str(credentials.folder)),
            ("/state", str(tmp_path / service)),
            ("superlink:8000", f"localhost:{port}"),
            ("--port=8000", f"--port={port}"),
        ):
            text = text.replace(found, own)
        return str(ROOT / "examples" / "flower_app") if text == "/app" else text

    (home / "config.toml").write_text(here(connection, "home"))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{DEPLOY}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    }
    services, started = composed()["services"], list[subprocess.Popen[bytes]]()

    def start(service: str, *more: str) -> subprocess.Popen[bytes]:
        (tmp_path / service).mkdir(exist_ok=True)
        # The run folder is written by the ServerApp, a process of the SuperLink.
        owner = "superlink" if service == "run" else service
        words = [*(here(word, owner) for word in services[service]["command"]), *more]
        found = shutil.which(words[0], path=environment["PATH"])
        assert found is not None
        with (tmp_path / f"{service}.log").open("ab") as log:
            process = subprocess.Popen(
                [found, *words[1:]], env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=tmp_path
            )
        started.append(process)
        return process

    def completes(service: str) -> None:
        assert start(service).wait(_SECONDS) == 0, (tmp_path / f"{service}.log").read_text()

    def healthy() -> bool:
        _, *check = services["superlink"]["healthcheck"]["test"]
        check = [word.replace("8000", str(port)) for word in check]
        return subprocess.run(check, env=environment, capture_output=True, check=False).returncode == 0

    def end() -> None:
        for process in processes_of(home):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for each in started:
            each.wait()

    with ExitStack() as ended:
        ended.callback(end)
        start("superlink")
        wait_for(healthy, _SECONDS, "the start of the SuperLink")
        completes("register")
        completes("register")
        for client in range(3):
            start(f"node-{client}", f"--port={free_port()}")
        folder = tmp_path / "superlink" / "run"
        run = start("run")
        wait_for(lambda: is_finished(folder), _SECONDS, "the end of the run")
        assert run.wait(_SECONDS) == 0
    assert [record.arrived for record in load_records(folder)] == [(0, 1, 2)] * 3
    members = json.loads((folder / MEMBERS).read_text())["clients"]
    for client, member in enumerate(members):
        own = load_ssh_public_key(credentials.public_key(client).read_bytes())
        assert load_pem_public_key(bytes.fromhex(member["public_key"])) == own
