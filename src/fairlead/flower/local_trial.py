"""A SuperLink and SuperNodes on this machine, with certificates and node keys, to try an app out."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Self

import tomli_w

from fairlead.errors import FairleadError

_DAYS = "30"


@dataclass(frozen=True)
class Credentials:
    """A certificate authority, the SuperLink's certificate and one key pair per node, in a folder."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def certificate(self) -> Path:
        return self.folder / "server.pem"

    @property
    def server_key(self) -> Path:
        return self.folder / "server.key"

    def private_key(self, client: int) -> Path:
        return self.folder / f"client-{client}"

    def public_key(self, client: int) -> Path:
        return self.folder / f"client-{client}.pub"

    def link_options(self) -> list[str]:
        """What the SuperLink is started with."""
        return [
            *("--ssl-ca-certfile", str(self.ca), "--ssl-certfile", str(self.certificate)),
            *("--ssl-keyfile", str(self.server_key), "--enable-supernode-auth"),
        ]

    def node_options(self, client: int) -> list[str]:
        """What the node of a client is started with."""
        return [
            *("--root-certificates", str(self.ca)),
            *("--auth-supernode-private-key", str(self.private_key(client))),
        ]

    @staticmethod
    def make(folder: Path, num_clients: int, host: str = "127.0.0.1") -> Credentials:
        """New ones that are valid for a month and for one address."""
        made = Credentials(folder.resolve())
        made.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        ca_key, request = made.folder / "ca.key", made.folder / "server.csr"
        extensions = made.folder / "server.ext"
        extensions.write_text(f"subjectAltName = IP:{host}\n")
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:secp384r1", "-nodes")
        _made_by(
            "openssl", "req", "-x509", *curve, "-days", _DAYS, "-subj", "/CN=fairlead trial CA",
            "-keyout", str(ca_key), "-out", str(made.ca),
        )  # fmt: skip
        _made_by(
            "openssl",
            "req",
            *curve,
            "-subj",
            f"/CN={host}",
            "-keyout",
            str(made.server_key),
            "-out",
            str(request),
        )
        _made_by(
            "openssl", "x509", "-req", "-in", str(request), "-CA", str(made.ca), "-CAkey", str(ca_key),
            "-CAcreateserial", "-days", _DAYS, "-extfile", str(extensions), "-out", str(made.certificate),
        )  # fmt: skip
        for client in range(num_clients):
            make_node_key(made.private_key(client))
        return made


def make_node_key(file: Path) -> None:
    """A key pair by which a node proves who it is; the public half is `file` with .pub."""
    for stale in (file, file.with_name(file.name + ".pub")):
        stale.unlink(missing_ok=True)
    _made_by("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-C", "", "-f", str(file))


def _made_by(*command: str) -> None:
    arguments: Sequence[str] = command
    try:
        subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    except FileNotFoundError as error:
        raise FairleadError(
            f"{command[0]} is needed to make certificates and keys, and is not installed."
        ) from error
    except subprocess.CalledProcessError as error:
        raise FairleadError(f"{command[0]} failed: {error.stderr.strip()[-300:]}") from error


_HOST = "127.0.0.1"
_ENDING_SECONDS = 20.0
_STARTING_SECONDS = 120.0


@dataclass(frozen=True)
class Submitted:
    """A run that the SuperLink has taken."""

    run_id: str


class LocalFederation:
    """Processes of a small federation; everything they write is under `folder`, and they end with the block.

    What clients remember is under `memory` if that is given: a run that goes on later needs it again.

    Nobody outside this machine can reach it. With `credentials` the link speaks TLS and takes nodes only whose
    keys are registered; without, plain HTTP.
    """

    def __init__(
        self,
        folder: Path,
        app: Path,
        num_nodes: int,
        credentials: Credentials | None = None,
        *,
        memory: Path | None = None,
    ) -> None:
        self.folder, self.app, self.num_nodes = folder.resolve(), app.resolve(), num_nodes
        self.credentials = credentials
        self.memory = (memory or folder / "memory").resolve()
        self.port = free_port()
        self.link: subprocess.Popen[bytes] | None = None
        self.nodes: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_connection()
        try:
            self.start_link()
            if self.credentials is not None:
                for client in range(self.num_nodes):
                    self.flwr("supernode", "register", str(self.credentials.public_key(client)), "local")
            for client in range(self.num_nodes):
                self.start_node(client)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def environment(self) -> dict[str, str]:
        """Of every process: a home of its own, and nothing that reaches for the network."""
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "FLWR_HOME": str(self.folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        }

    def start_link(self) -> None:
        """Start the SuperLink, or start it again with the state that it had; returns when it listens."""
        trust = ["--insecure"] if self.credentials is None else self.credentials.link_options()
        address = ["--host", _HOST, "--port", str(self.port)]
        database = ["--database", str(self.folder / "state.db")]
        self.link = self._start("link", ["flower-superlink", *trust, *address, *database])
        closing = monotonic() + _STARTING_SECONDS
        while not _listens(self.port):
            if self.link.poll() is not None or monotonic() > closing:
                raise FairleadError(f"The SuperLink does not start: see {self.folder / 'link.log'}.")
            sleep(0.2)

    def start_node(self, client: int, options: Sequence[str] | None = None) -> None:
        """Start the node of a client; `options` replace those by which it would prove who it is."""
        if options is None:
            credentials = self.credentials
            options = ["--insecure"] if credentials is None else credentials.node_options(client)
        config = f'client-id={client} memory-folder="{self.memory}"'
        address = ["--superlink", f"{_HOST}:{self.port}", "--port", str(free_port())]
        command = ["flower-supernode", *options, *address, "--node-config", config]
        self.nodes[client] = self._start(f"node-{client}", command)

    def submit(self, config: Mapping[str, str | bool]) -> Submitted:
        """Start a run of the app."""
        words = [f"{name}={json.dumps(value)}" for name, value in config.items()]
        answer = self.flwr("run", str(self.app), "local", "--run-config", " ".join(words), "--format", "json")
        told = json.loads(answer)
        if "run-id" not in told:
            raise FairleadError(f"The SuperLink takes no run: {told.get('error-message', answer)}")
        return Submitted(str(told["run-id"]))

    def outcome(self, run: Submitted) -> str | None:
        """How a run ended, such as "finished:completed"; None while it goes on."""
        answer = self.flwr("list", "local", "--run-id", run.run_id, "--format", "json")
        status = str(json.loads(answer)["runs"][0]["status"])
        return status if status.startswith("finished") else None

    def flwr(self, *arguments: str) -> str:
        """What the command `flwr` prints."""
        try:
            done = subprocess.run(
                ["flwr", *arguments],
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=_STARTING_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise FairleadError(
                f"flwr {arguments[0]} has not ended within {_STARTING_SECONDS:g} s."
            ) from error
        if done.returncode != 0:
            raise FairleadError(f"flwr {arguments[0]} failed: {(done.stderr or done.stdout).strip()[-500:]}")
        return done.stdout

    def end(self) -> None:
        """End all processes, and wait for them."""
        end_groups([*self.nodes.values(), *([self.link] if self.link else [])])
        self.nodes, self.link = {}, None

    def _start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        found = shutil.which(command[0], path=self.environment["PATH"])
        if found is None:
            raise FairleadError(f"{command[0]} is not installed: pip install 'flwr>=1.41,<2'.")
        with (self.folder / f"{name}.log").open("ab") as log:
            # A group of its own, since the process starts others that must end with it.
            return subprocess.Popen(
                [found, *command[1:]],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _write_connection(self) -> None:
        connection: dict[str, str | bool] = {"address": f"{_HOST}:{self.port}"}
        if self.credentials is None:
            connection["insecure"] = True
        else:
            connection["root-certificates"] = str(self.credentials.ca)
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        content = tomli_w.dumps({"superlink": {"default": "local", "local": connection}})
        (home / "config.toml").write_text(content)


def end_groups(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes and those that they started: asked first, made to after a while."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        closing = monotonic() + _ENDING_SECONDS
        while monotonic() < closing:
            # Reaped as soon as they have ended, or their groups would seem to live on.
            ended = [process.poll() is not None and not _group_lives(process.pid) for process in processes]
            if all(ended):
                return
            sleep(0.1)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def free_port() -> int:
    """A port of the loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((_HOST, port)) == 0
