"""The image, the compose file and the manifests in deploy/ fit each other, fairlead and Flower."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from deployed import DEPLOY, ROOT, composed
from flwr.superlink.cli.flower_superlink import _parse_args_run_superlink
from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode
from packaging.specifiers import SpecifierSet

import fairlead
from fairlead.flower.local_trial import Credentials


def _nodes() -> dict[int, dict[str, Any]]:
    services = composed()["services"]
    return {int(name[5:]): service for name, service in services.items() if name.startswith("node-")}


def test_each_service_has_its_own_secrets_alone() -> None:
    services, secrets = composed()["services"], composed()["secrets"]
    assert services["superlink"]["secrets"] == ["ca.pem", "server.pem", "server.key"]
    assert services["run"]["secrets"] == ["ca.pem"]
    assert sorted(_nodes()) == [0, 1, 2]
    for client, node in _nodes().items():
        assert node["secrets"] == ["ca.pem", f"client-{client}"]
        assert node["volumes"] == [f"node-{client}:/state"]
    used = {name for service in services.values() for name in service["secrets"]}
    assert used == secrets.keys()
    for service in services.values():
        named = re.findall(r"/run/secrets/([\w.-]+)", " ".join(service["command"]))
        assert {*named, "ca.pem"} == {*service["secrets"]}
        assert service["image"] == f"fairlead:{fairlead.__version__}"


def test_the_secrets_are_files_that_credentials_makes(tmp_path: Path) -> None:
    made = {file.name for file in Credentials.make(tmp_path, len(_nodes()), ["superlink"]).folder.iterdir()}
    for name, secret in composed()["secrets"].items():
        assert secret == {"file": f"kubernetes/credentials/{name}"}
    # The key of the authority never reaches a container.
    assert made - composed()["secrets"].keys() == {"ca.key"}


def test_flower_knows_the_options_of_the_commands() -> None:
    link, *options = composed()["services"]["superlink"]["command"]
    assert link == "flower-superlink"
    parsed = _parse_args_run_superlink().parse_args(options)
    assert parsed.enable_supernode_auth
    assert not parsed.runtime_dependency_install
    assert not parsed.insecure
    for client, node in _nodes().items():
        command, *options = node["command"]
        assert command == "flower-supernode"
        found = _parse_args_run_supernode().parse_args(options)
        assert found.superlink == f"superlink:{parsed.port}"
        assert found.node_config == f'client-id={client} memory-folder="/state/memory"'
        assert not found.insecure
    connection = tomllib.loads((DEPLOY / "flower.toml").read_text())["superlink"]
    assert connection[connection["default"]] == {
        "address": f"superlink:{parsed.port}",
        "root-certificates": parsed.ssl_ca_certfile,
    }


def test_one_command_makes_the_keys_and_starts_the_federation() -> None:
    """By `make federation`, with the lines of the guide."""
    done = subprocess.run(
        ["make", "-n", "--no-print-directory", "federation"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    *_, made, started = (line.strip() for line in done.stdout.splitlines())
    guide = (ROOT / "docs" / "flower.md").read_text()
    assert f"$ {made.removeprefix('.venv/bin/')}\n$ {started}\n```\n" in guide


def test_the_image_has_the_versions_that_the_tests_run_with() -> None:
    image = (DEPLOY / "Dockerfile").read_text()
    (python,) = re.findall(r"^FROM python:([0-9.]+)-", image, flags=re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert python in SpecifierSet(project["requires-python"])
    assert f"Programming Language :: Python :: {python}" in project["classifiers"]
    assert "-c constraints.txt '.[flower]'" in image
    assert f"fairlead:{fairlead.__version__} " in image
    # Everything that the build reads reaches the builder.
    passed = set(re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), flags=re.MULTILINE))
    needed = {"pyproject.toml", "constraints.txt", "src", project["readme"], *project["license-files"]}
    assert passed == needed | set(re.findall(r"deploy/(?!Dockerfile)[\w.-]+", image))
    assert all((ROOT / path).exists() for path in passed)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_manifests_build_and_start_the_commands_of_the_compose_file(tmp_path: Path) -> None:
    folder = shutil.copytree(
        DEPLOY / "kubernetes", tmp_path / "kubernetes", ignore=shutil.ignore_patterns("credentials")
    )
    Credentials.make(folder / "credentials", 3, ["superlink"])
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = {
        (each["kind"], re.sub(r"-[0-9a-z]{10}$", "", each["metadata"]["name"])): each
        for each in yaml.safe_load_all(done.stdout)
    }
    services = composed()["services"]
    for kind, name, service in (
        ("StatefulSet", "superlink", "superlink"),
        ("Job", "register", "register"),
        ("StatefulSet", "node", "node-1"),
    ):
        pod = built[kind, name]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        command = [word.replace("$(CLIENT)", "1") for word in container["command"]]
        # A pod has one key, whose name has no number.
        wanted = [
            word.replace("/client-1", "/client") if name == "node" else word
            for word in services[service]["command"]
        ]
        assert command == wanted
        assert container["image"] == f"fairlead:{fairlead.__version__}"
        assert pod["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        (secret,) = (volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume)
        kept = next(each for each in built.values() if each["metadata"]["name"] == secret)["data"].keys()
        mounted = [each for each in container["volumeMounts"] if each["name"] != "state"]
        assert {each["mountPath"] for each in mounted} == set(
            re.findall(r"/run/secrets/[\w.-]+", " ".join([*command, "/run/secrets/ca.pem"]))
        )
        assert {
            each.get("subPath") or each["subPathExpr"].replace("$(CLIENT)", "1") for each in mounted
        } <= kept
    assert built["StatefulSet", "node"]["spec"]["replicas"] == len(_nodes())
    assert built["Service", "superlink"]["spec"]["ports"] == [{"port": 8000}]
