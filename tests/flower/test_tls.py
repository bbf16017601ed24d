"""Who a SuperLink with certificates and registered keys lets in."""

from __future__ import annotations

from pathlib import Path
from time import sleep

import pytest
from trial_app import wait_for

from fairlead.flower.local_trial import Credentials, LocalFederation, make_node_key

_SECONDS = 300.0


@pytest.mark.full
def test_the_matrix_of_certificates_and_keys(tmp_path: Path) -> None:
    """The right certificate and key are let in; a wrong CA, no key, an unknown key and plain HTTP are not.

    All five nodes try at the same time, and the one let in is the only one that the link ever activates.
    """
    own, foreign = Credentials.make(tmp_path / "own", 1), Credentials.make(tmp_path / "foreign", 1)
    make_node_key(tmp_path / "unknown")
    trust = ["--root-certificates", str(own.certificate)]
    intruders = {
        1: [
            "--root-certificates",
            str(foreign.certificate),
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
