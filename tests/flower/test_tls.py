"""Who a SuperLink with certificates and registered keys lets in."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from time import sleep

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
)
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from trial_app import wait_for
from typer.testing import CliRunner

from fairlead.cli import app
from fairlead.flower.local_trial import Credentials, LocalFederation, make_node_key

_SECONDS = 300.0


def _made(folder: Path, *options: str) -> Path:
    result = CliRunner().invoke(app, ["flower", "credentials", str(folder), *options])
    assert result.exit_code == 0, result.output
    return folder


def _certificate(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def _verify(server: Path, authority: Path, subject: x509.verification.Subject) -> None:
    """The checks of a TLS client: chain, dates, uses and the name of the host."""
    policy = PolicyBuilder().store(Store([_certificate(authority)]))
    policy.build_server_verifier(subject).verify(_certificate(server), [])


def test_credentials_verify_for_their_hosts_alone(tmp_path: Path) -> None:
    folder = _made(
        tmp_path / "keys",
        "--clients",
        "2",
        "--host",
        "link.example.org",
        "--host",
        "10.0.0.7",
        "--days",
        "90",
    )
    server, authority = folder / "server.pem", folder / "ca.pem"
    for name in ("link.example.org", "localhost"):
        _verify(server, authority, x509.DNSName(name))
    for address in ("10.0.0.7", "127.0.0.1"):
        _verify(server, authority, x509.IPAddress(ip_address(address)))
    with pytest.raises(VerificationError):
        _verify(server, authority, x509.DNSName("other.example.org"))
    foreign = _made(tmp_path / "foreign", "--clients", "1")
    with pytest.raises(VerificationError):
        _verify(server, foreign / "ca.pem", x509.DNSName("localhost"))
    left = _certificate(server).not_valid_after_utc - datetime.now(UTC)
    assert timedelta(days=89) < left <= timedelta(days=90)
    key = load_pem_private_key((folder / "server.key").read_bytes(), None)
    assert key.public_key() == _certificate(server).public_key()
    for client in range(2):
        node = load_ssh_private_key((folder / f"client-{client}").read_bytes(), None)
        assert isinstance(node, ec.EllipticCurvePrivateKey)
        public = node.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        assert (folder / f"client-{client}.pub").read_bytes() == public + b"\n"
    private = {"ca.key", "server.key", "client-0", "client-1"}
    for file in folder.iterdir():
        assert (stat.S_IMODE(file.stat().st_mode) == 0o600) == (file.name in private), file
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_made_again_credentials_keep_the_authority_and_the_keys(tmp_path: Path) -> None:
    """So that nodes need nothing new if the server's certificate ends, or if a client is added."""
    folder = _made(tmp_path / "keys", "--clients", "1")
    kept = {name: (folder / name).read_bytes() for name in ("ca.pem", "ca.key", "client-0", "client-0.pub")}
    old = (folder / "server.pem").read_bytes()
    _made(folder, "--clients", "2", "--host", "link.example.org")
    assert {name: (folder / name).read_bytes() for name in kept} == kept
    assert (folder / "server.pem").read_bytes() != old
    _verify(folder / "server.pem", folder / "ca.pem", x509.DNSName("link.example.org"))
    assert (folder / "client-1.pub").exists()


def test_a_renewal_keeps_the_names_and_says_what_is_new(tmp_path: Path) -> None:
    def told(*options: str) -> str:
        result = CliRunner().invoke(app, ["flower", "credentials", str(tmp_path / "keys"), *options])
        assert result.exit_code == 0, result.output
        return result.output.splitlines()[0]

    until = f"of the SuperLink: valid until {datetime.now(UTC) + timedelta(days=30):%Y-%m-%d}, for 127.0.0.1"
    first = told("--clients", "3", "--host", "link.example.org", "--host", "10.0.0.7", "--days", "30")
    names = f"{until}, localhost, link.example.org"
    assert first == (
        f"Made an authority and the certificate {names} and 10.0.0.7. Clients with a new key: 0, 1 and 2."
    )
    added = told("--clients", "4", "--host", "b.example.org", "--host", "10.0.0.7", "--days", "30")
    names += ", 10.0.0.7 and b.example.org"
    assert added == f"Renewed the certificate {names}. Clients with a new key: 3."
    assert told("--clients", "3", "--days", "30") == (
        f"Renewed the certificate {names}. Clients with a new key: none."
    )
    for name in ("link.example.org", "b.example.org", "localhost"):
        _verify(tmp_path / "keys" / "server.pem", tmp_path / "keys" / "ca.pem", x509.DNSName(name))
    (tmp_path / "keys" / "server.pem").write_text("no certificate")
    damaged = CliRunner().invoke(app, ["flower", "credentials", str(tmp_path / "keys"), "--clients", "3"])
    assert damaged.exit_code == 2
    assert "remove it to make a new one" in " ".join(damaged.output.split())


def test_a_damaged_authority_is_refused(tmp_path: Path) -> None:
    folder = _made(tmp_path / "keys", "--clients", "1")
    (folder / "ca.key").write_text("no key")
    result = CliRunner().invoke(app, ["flower", "credentials", str(folder), "--clients", "1"])
    assert result.exit_code == 2
    assert "ca.key must be a key of an elliptic curve without password" in " ".join(result.output.split())


@pytest.mark.parametrize("host", ["link.example.org:8000", "https://link", "überlink", ""])
def test_a_host_is_a_name_or_an_address(host: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["flower", "credentials", str(tmp_path / "keys"), "--clients", "1", "--host", host]
    )
    assert result.exit_code == 2
    assert "--host must be a host name or an IP address, without a port, got" in " ".join(
        result.output.split()
    )
    assert not (tmp_path / "keys").exists()


@pytest.mark.full
def test_the_matrix_of_certificates_and_keys(tmp_path: Path) -> None:
    """The right certificate and key are let in; a wrong CA, no key, an unknown key and plain HTTP are not.

    All five nodes try at the same time, and the one let in is the only one that the link ever activates.
    """
    own, foreign = Credentials.make(tmp_path / "own", 1), Credentials.make(tmp_path / "foreign", 1)
    make_node_key(tmp_path / "unknown")
    trust = ["--root-certificates", str(own.authority)]
    intruders = {
        1: [
            "--root-certificates",
            str(foreign.authority),
            "--auth-supernode-private-key",
            str(own.private_key(0)),
        ],
        2: trust,
        3: [*trust, "--auth-supernode-private-key", str(tmp_path / "unknown")],
        4: ["--insecure"],
    }
    with LocalFederation(tmp_path / "federation", tmp_path, 0, own) as federation:
        for client, options in intruders.items():
            federation.start_node(client, [*options, "--max-retries", "1"])
        logs = {client: tmp_path / "federation" / f"node-{client}.log" for client in intruders}
        link = tmp_path / "federation" / "link.log"
        wait_for(
            lambda: all(node.poll() is not None for node in federation.nodes.values()), _SECONDS, "refusal"
        )
        assert b"Activated node_id" not in link.read_bytes()
        federation.flwr("supernode", "register", str(own.public_key(0)), "local")
        federation.start_node(0)
        wait_for(lambda: b"Activated node_id" in link.read_bytes(), _SECONDS, "activation")
        sleep(1.0)
        assert federation.nodes[0].poll() is None
        assert link.read_bytes().count(b"Activated node_id") == 1
    assert "certificate verify failed" in logs[1].read_text()
    # Without a key a node makes one up, and is not allowed to register it.
    assert "[/v1/fleet/register-node][ApiError:2001]" in link.read_text()
    assert "Failed to activate SuperNode" in logs[3].read_text()
    assert "disconnected" in logs[4].read_text()
