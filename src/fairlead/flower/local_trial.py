"""A SuperLink and SuperNodes on this machine, with certificates and node keys, to try an app."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple, Self

import tomli_w
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from fairlead.errors import FairleadError

_HOST = "127.0.0.1"
_STOP_SECONDS = 20.0
_START_SECONDS = 120.0


@dataclass(frozen=True)
class Credentials:
    """The SuperLink's self-signed certificate, and one key pair per node, in a folder."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "server.pem"

    def private_key(self, client: int) -> Path:
        return self.folder / f"client-{client}"

    def public_key(self, client: int) -> Path:
        return self.folder / f"client-{client}.pub"

    def link_options(self) -> list[str]:
        """Options to start the SuperLink with."""
        certificate, key = str(self.certificate), str(self.folder / "server.key")
        return [
            *("--ssl-ca-certfile", certificate, "--ssl-certfile", certificate),
            *("--ssl-keyfile", key, "--enable-supernode-auth"),
        ]

    def node_options(self, client: int) -> list[str]:
        """Options to start the node of a client with."""
        return [
            *("--root-certificates", str(self.certificate)),
            *("--auth-supernode-private-key", str(self.private_key(client))),
        ]

    @staticmethod
    def make(folder: Path, num_clients: int, hosts: Sequence[str] = (), days: int = 30) -> "Credentials":
        """New credentials, valid for some days, for the loopback address and for names of `hosts`."""
        made = Credentials(folder.resolve())
        made.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        key, now = ec.generate_private_key(ec.SECP384R1()), datetime.now(UTC)
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "fairlead trial")])
        names = [x509.DNSName(host) for host in ("localhost", *hosts)]
        address = x509.SubjectAlternativeName([x509.IPAddress(ip_address(_HOST)), *names])
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(address, critical=False)
            .add_extension(identifier, critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(key, hashes.SHA384())
        )
        made.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
        _write_private(made.folder / "server.key", key, PrivateFormat.PKCS8)
        for client in range(num_clients):
            make_node_key(made.private_key(client))
        return made


def make_node_key(file: Path) -> None:
    """A key pair by which a node proves its identity; the public half is `file` with .pub."""
    key = ec.generate_private_key(ec.SECP384R1())
    _write_private(file, key, PrivateFormat.OpenSSH)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    file.with_name(f"{file.name}.pub").write_bytes(public + b"\n")


def _write_private(file: Path, key: ec.EllipticCurvePrivateKey, form: PrivateFormat) -> None:
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))


class ServerLog(NamedTuple):
    """The log of a ServerApp."""

    warnings: list[str]
    error: str
    """The exception that ended it, in one line."""


class LocalFederation:
    """The processes of a small federation, which end with the `with` block; all their files are under `folder`.

    Client memory is under `memory` if given: a run that resumes later needs it again.

    The federation cannot be reached from outside this machine. With `credentials` the link uses TLS and accepts only
    nodes with registered keys; without, plain HTTP.
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

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def environment(self) -> dict[str, str]:
        """Environment of every process: a separate home, and no network access by Flower itself."""
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "FLWR_HOME": str(self.folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        }

    def start_link(self) -> None:
        """Start the SuperLink, or restart it with its old state; returns when it listens."""
        trust = ["--insecure"] if self.credentials is None else self.credentials.link_options()
        address = ["--host", _HOST, "--port", str(self.port)]
        database = ["--database", str(self.folder / "state.db")]
        self.link = self._start("link", ["flower-superlink", *trust, *address, *database])
        closing = monotonic() + _START_SECONDS
        while not _listens(self.port):
            if self.link.poll() is not None or monotonic() > closing:
                raise FairleadError(f"The SuperLink did not start: see {self.folder / 'link.log'}.")
            sleep(0.2)

    def start_node(self, client: int, options: Sequence[str] | None = None) -> None:
        """Start the node of a client; `options` replace its credentials."""
        if options is None:
            credentials = self.credentials
            options = ["--insecure"] if credentials is None else credentials.node_options(client)
        config = f'client-id={client} memory-folder="{self.memory}"'
        address = ["--superlink", f"{_HOST}:{self.port}", "--port", str(free_port())]
        command = ["flower-supernode", *options, *address, "--node-config", config]
        self.nodes[client] = self._start(f"node-{client}", command)

    def submit(self, config: Mapping[str, str | bool]) -> str:
        """Start a run of the app; returns its id."""
        words = [f"{name}={json.dumps(value)}" for name, value in config.items()]
        answer = self.flwr("run", str(self.app), "local", "--run-config", " ".join(words), "--format", "json")
        reply = json.loads(answer)
        if "run-id" not in reply:
            raise FairleadError(f"The SuperLink rejects the run: {reply.get('error-message', answer)}")
        return str(reply["run-id"])

    def outcome(self, run_id: str) -> str | None:
        """How a run ended, such as "finished:completed"; None while it is running."""
        answer = self.flwr("list", "local", "--run-id", run_id, "--format", "json")
        status = str(json.loads(answer)["runs"][0]["status"])
        return status if status.startswith("finished") else None

    def server_log(self, run_id: str) -> "ServerLog":
        """What the ServerApp of a run has said so far; also kept in `server.log`."""
        text = self.flwr("log", run_id, "local", "--show")
        (self.folder / "server.log").write_text(text)
        lines = [re.sub(r"\x1b\[\d*m", "", line).rstrip() for line in text.splitlines()]
        warnings = [re.sub(r"^WARNING\s*:\s*", "", line) for line in lines if line.startswith("WARNING")]
        ends = [
            line for line in lines if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b", line)
        ]
        return ServerLog(warnings, ends[-1] if ends else "it gave no reason.")

    def flwr(self, *arguments: str) -> str:
        """The output of a `flwr` command."""
        try:
            done = subprocess.run(
                ["flwr", *arguments],
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=_START_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise FairleadError(f"flwr {arguments[0]} did not end within {_START_SECONDS:g} s.") from error
        if done.returncode != 0:
            raise FairleadError(f"flwr {arguments[0]} failed: {(done.stderr or done.stdout).strip()[-500:]}")
        return done.stdout

    def end(self) -> None:
        """Stop all processes, and wait for them: SIGTERM first, SIGKILL after a while."""
        started = [*self.nodes.values(), *([self.link] if self.link else [])]
        for number in (signal.SIGTERM, signal.SIGKILL):
            told, closing = set[int](), monotonic() + _STOP_SECONDS
            while (alive := self._alive(started)) and monotonic() < closing:
                for process in alive - told:
                    with suppress(ProcessLookupError):
                        os.kill(process, number)
                told |= alive
                sleep(0.1)
        self.nodes, self.link = {}, None

    def _alive(self, started: Sequence[subprocess.Popen[bytes]]) -> set[int]:
        """Processes of this federation: those started here, and those that they have started.

        These are found by their environment, since Flower puts some into sessions of their own, and a process whose
        parent was killed has no other mark.
        """
        alive = {process.pid for process in started if process.poll() is None}
        mark = self.environment["FLWR_HOME"]
        for process in Path("/proc").glob("[0-9]*"):
            # It may end in between, or belong to another user; that of a zombie is empty.
            with suppress(OSError):
                if f"FLWR_HOME={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    alive.add(int(process.name))
        return alive

    def _start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        found = shutil.which(command[0], path=self.environment["PATH"])
        if found is None:
            raise FairleadError(f"{command[0]} is not installed: pip install 'flwr>=1.41,<2'.")
        with (self.folder / f"{name}.log").open("ab") as log:
            # In a session of its own, so that Ctrl-C reaches this process alone, which then ends it.
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
            connection["root-certificates"] = str(self.credentials.certificate)
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        content = tomli_w.dumps({"superlink": {"default": "local", "local": connection}})
        (home / "config.toml").write_text(content)


def free_port() -> int:
    """A free port of the loopback."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((_HOST, port)) == 0
