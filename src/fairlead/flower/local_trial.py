"""A SuperLink and SuperNodes on this machine, with certificates and node keys, to try an app."""

import inspect
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
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from fairlead.errors import FairleadError, FieldError
from fairlead.text import listed

_HOST = "127.0.0.1"
_AUTHORITY_DAYS = 3650
_STOP_SECONDS = 20.0
_START_SECONDS = 120.0


@dataclass(frozen=True)
class Credentials:
    """A certificate authority, the SuperLink's certificate, and one key pair per node, in a folder."""

    folder: Path
    change: str = ""
    """A sentence on the certificate and the keys that were made."""

    @property
    def authority(self) -> Path:
        return self.folder / "ca.pem"

    def private_key(self, client: int) -> Path:
        return self.folder / f"client-{client}"

    def public_key(self, client: int) -> Path:
        return self.folder / f"client-{client}.pub"

    def link_options(self) -> list[str]:
        """Options to start the SuperLink with."""
        certificate, key = str(self.folder / "server.pem"), str(self.folder / "server.key")
        return [
            *("--ssl-ca-certfile", str(self.authority), "--ssl-certfile", certificate),
            *("--ssl-keyfile", key, "--enable-supernode-auth"),
        ]

    def node_options(self, client: int) -> list[str]:
        """Options to start the node of a client with."""
        return [
            *("--root-certificates", str(self.authority)),
            *("--auth-supernode-private-key", str(self.private_key(client))),
        ]

    @staticmethod
    def make(folder: Path, num_clients: int, hosts: Sequence[str] = (), days: int = 30) -> "Credentials":
        """A server certificate, valid for some days, for the loopback and `hosts`; authority and keys if missing.

        A renewed certificate keeps the names of the one before.
        """
        made = Credentials(folder.resolve())
        file, signing = made.folder / "server.pem", made.folder / "ca.key"
        kept = _names_in(file) if file.exists() else ()
        names = list(dict.fromkeys([*map(_subject, (_HOST, "localhost")), *kept, *map(_subject, hosts)]))
        made.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        begun = f"{'Renewed' if file.exists() else 'Made'} the certificate"
        if not signing.exists():
            begun = "Made an authority and the certificate"
            root = ec.generate_private_key(ec.SECP384R1())
            certificate = _certificate("fairlead authority", root, root.public_key(), _AUTHORITY_DAYS)
            _write_private(signing, root, PrivateFormat.PKCS8)
            made.authority.write_bytes(certificate.public_bytes(Encoding.PEM))
        authority = _signing_key(signing)
        key = ec.generate_private_key(ec.SECP384R1())
        certificate = _certificate("fairlead SuperLink", authority, key.public_key(), days, names)
        file.write_bytes(certificate.public_bytes(Encoding.PEM))
        _write_private(made.folder / "server.key", key, PrivateFormat.PKCS8)
        new = [client for client in range(num_clients) if not made.private_key(client).exists()]
        for client in new:
            make_node_key(made.private_key(client))
        return Credentials(
            made.folder,
            f"{begun} of the SuperLink: valid until {certificate.not_valid_after_utc:%Y-%m-%d}, for "
            f"{listed([name.value for name in names], len(names))}. Clients with a new key: {listed(new)}.",
        )


def _names_in(file: Path) -> x509.SubjectAlternativeName:
    """The names of the server in its certificate."""
    with suppress(ValueError, x509.ExtensionNotFound):
        certificate = x509.load_pem_x509_certificate(file.read_bytes())
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    raise FieldError(
        f"{file} must be a certificate with the names of the server: remove it to make a new one."
    )


def _signing_key(file: Path) -> ec.EllipticCurvePrivateKey:
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):
        key = load_pem_private_key(file.read_bytes(), None)
        if isinstance(key, ec.EllipticCurvePrivateKey):
            return key
    raise FieldError(f"{file} must be a key of an elliptic curve without password: choose another folder.")


def _subject(host: str) -> x509.GeneralName:
    """A host as TLS names it: by address or by name."""
    with suppress(ValueError):
        return x509.IPAddress(ip_address(host))
    if not re.fullmatch(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", host):
        raise FieldError(f"--host must be a host name or an IP address, without a port, got {host!r}.")
    return x509.DNSName(host)


def _certificate(
    name: str,
    authority: ec.EllipticCurvePrivateKey,
    subject: ec.EllipticCurvePublicKey,
    days: int,
    hosts: Sequence[x509.GeneralName] = (),
) -> x509.Certificate:
    """A certificate signed by an authority: of a server with `hosts`, of the authority itself without."""
    now, is_authority = datetime.now(UTC), not hosts
    issued, issuer = (
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each)])
        for each in (name, "fairlead authority")
    )
    uses = dict.fromkeys(inspect.signature(x509.KeyUsage).parameters, False)
    uses |= {"key_cert_sign": is_authority, "crl_sign": is_authority, "digital_signature": not is_authority}
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    builder = (
        x509.CertificateBuilder(issuer, issued, subject, x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(
            x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True
        )
        .add_extension(x509.KeyUsage(**uses), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(subject), critical=False)
        .add_extension(signer, critical=False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(server, critical=False)
    return builder.sign(authority, hashes.SHA384())


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
        if shutil.which(command[0], path=self.environment["PATH"]) is None:
            raise FairleadError(f"{command[0]} is not installed: pip install 'flwr>=1.41,<2'.")
        with (self.folder / f"{name}.log").open("ab") as log:
            # In a session of its own, so that Ctrl-C reaches this process alone, which then ends it.
            return subprocess.Popen(
                command,
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
            connection["root-certificates"] = str(self.credentials.authority)
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
