"""`kube-api-server` serves until it is stopped, with a kubeconfig for kubectl and libraries."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fakes import patience

COMMAND = (sys.executable, "-m", "kube_api_server")


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[Path]:
    """Run the command with the path of its kubeconfig, and stop it."""
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    with process.stdout as output:
        line = output.readline()
        try:
            yield Path(line.removeprefix("export KUBECONFIG=").rstrip("\n"))
        finally:
            process.terminate()
            assert process.wait(patience.SECONDS) == 0


def request(kubeconfig: Path, method: str, path: str, body: Any = None) -> Any:
    """Send a request with the credentials of a kubeconfig. Return its response."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    context.load_cert_chain(user["client-certificate"], user["client-key"])
    host = cluster["server"].removeprefix("https://")
    with contextlib.closing(http.client.HTTPSConnection(host, context=context)) as connection:
        headers = {"Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        return json.load(connection.getresponse())


NAMESPACES = "/api/v1/namespaces"


@pytest.mark.process
def test_directory_of_a_server_without_one_is_removed() -> None:
    with running() as kubeconfig:
        items = request(kubeconfig, "GET", NAMESPACES)["items"]
        assert "default" in {item["metadata"]["name"] for item in items}
    assert not kubeconfig.parent.exists()


@pytest.mark.process
def test_objects_of_a_directory_are_served_again(tmp_path: Path) -> None:
    shop = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    with running(str(tmp_path / "data")) as kubeconfig:
        uid = request(kubeconfig, "POST", NAMESPACES, shop)["metadata"]["uid"]
    with running(str(tmp_path / "data")) as kubeconfig:
        assert request(kubeconfig, "GET", f"{NAMESPACES}/shop")["metadata"]["uid"] == uid


@pytest.mark.process
def test_second_server_of_a_directory_leaves_the_first_intact(tmp_path: Path) -> None:
    with running(str(tmp_path)) as kubeconfig:
        second = subprocess.run(
            [*COMMAND, str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=patience.SECONDS,
        )
        message = f"kube-api-server: {tmp_path} is in use by another process\n"
        assert (second.returncode, second.stdout, second.stderr) == (1, "", message)
        assert request(kubeconfig, "GET", f"{NAMESPACES}/default")["kind"] == "Namespace"
