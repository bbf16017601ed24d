"""Certificates and node keys of a federation that is tried out on one machine, made by openssl and ssh-keygen."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
