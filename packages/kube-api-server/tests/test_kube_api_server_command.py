"""`kube-api-server` serves until it is stopped, with a kubeconfig for kubectl and libraries."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import signal
import socket
import ssl
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
import yaml

from fakes import patience

PACKAGE = Path(__file__).parents[1]
HOST = "127.0.0.1"
COMMAND = (sys.executable, "-m", "kube_api_server")


@contextlib.contextmanager
def running(
    *arguments: str, command: tuple[str, ...] = COMMAND, stderr: IO[str] | None = None
) -> Iterator[Path]:
    """Run the command with the path of its kubeconfig, and stop it."""
    process = subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=stderr, text=True
    )
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


def failed(*arguments: str) -> tuple[int, str]:
    """Run a command that must not serve. Return its status and its message, after any log."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True, text=True, check=False, timeout=patience.SECONDS,
    )  # fmt: skip
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    start = done.stderr.index("kube-api-server: ")
    return done.returncode, done.stderr[start:].rstrip("\n")


def argument_error(name: str, text: str) -> tuple[int, str]:
    return 2, f"kube-api-server: error: argument {name}: {text}"


@pytest.mark.process
def test_second_server_of_a_directory_leaves_the_first_intact(tmp_path: Path) -> None:
    with running(str(tmp_path)) as kubeconfig:
        message = f"kube-api-server: {tmp_path} is in use by another process"
        assert failed(str(tmp_path)) == (1, message)
        assert request(kubeconfig, "GET", f"{NAMESPACES}/default")["kind"] == "Namespace"


@pytest.mark.process
def test_interrupt_at_a_terminal_ends_the_server_and_removes_its_directory() -> None:
    process = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stderr
    with process.stdout as output, process.stderr as errors:
        directory = Path(output.readline().removeprefix("export KUBECONFIG=").strip()).parent
        process.send_signal(signal.SIGINT)
        assert process.wait(patience.SECONDS) == 0
        assert "Traceback" not in errors.read()
    assert not directory.exists()


@pytest.mark.parametrize("port", ["http", "-1", "65536", "٣"])
def test_port_that_is_none_is_rejected(port: str) -> None:
    text = f"{port!r} is not a port between 0 and 65535"
    assert failed(f"--port={port}") == argument_error("--port", text)


def test_port_in_use_is_reported() -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        message = f"kube-api-server: {HOST}:{port}: address already in use"
        assert failed("--port", str(port)) == (1, message)


def test_file_is_no_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for name, arguments in (("directory", [str(file)]), ("--crds", ["--crds", str(file)])):
        assert failed(*arguments) == argument_error(name, f"'{file}' is not a directory")


def test_directory_that_cannot_be_created_is_reported() -> None:
    # Not even root can create directories there.
    path = "/proc/kube-api-server"
    assert failed(path) == (1, f"kube-api-server: {path}: No such file or directory")


FAILING = """
from kube_api_server import __main__
from kube_api_server.objects.admission import Admission

def fail(_, call, obj, __):
    if obj["metadata"]["name"] == "failing":
        raise RuntimeError("a defect")

Admission.finish = fail
__main__.main()
"""


@pytest.mark.process
def test_log_of_an_internal_error_has_a_traceback_without_values(tmp_path: Path) -> None:
    secret = {"metadata": {"name": "failing"}, "stringData": {"password": "hush-hush"}}
    script, log = tmp_path / "failing.py", tmp_path / "log"
    script.write_text(FAILING)
    with (
        log.open("w") as stderr,
        running(command=(sys.executable, str(script)), stderr=stderr) as (kubeconfig),
    ):
        assert request(kubeconfig, "POST", f"{NAMESPACES}/default/secrets", secret)["code"] == 500
    text = log.read_text()
    assert "Traceback" in text
    assert "RuntimeError: a defect" in text
    assert "hush" not in text
    assert base64.b64encode(b"hush-hush").decode() not in text


def test_version_is_that_of_the_package_and_its_api() -> None:
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    done = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"kube-api-server {project['version']}, Kubernetes 1.34\n"


CRD = """\
# Of a project.
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: carts.shop.example}
spec:
  group: shop.example
  scope: Namespaced
  names: {plural: carts, singular: cart, kind: Cart}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {size: {type: integer}}
            x-kubernetes-validations: [{rule: self.size > 0}]
"""
OTHER = CRD.replace("cart", "bill").replace("Cart", "Bill")
VERSION = "apiVersion must be apiextensions.k8s.io/v1, not"


@pytest.mark.process
def test_crds_of_a_project_are_served(tmp_path: Path) -> None:
    (tmp_path / "carts.yaml").write_text(f"{CRD}---\n{OTHER}---\n")
    (tmp_path / "kustomization.yaml").write_text("resources: [carts.yaml]\n")
    (tmp_path / "README.md").write_text("CRDs of the shop")
    with running("--crds", str(tmp_path)) as kubeconfig:
        served = request(kubeconfig, "GET", "/apis/shop.example/v1")["resources"]
        assert {item["name"] for item in served} == {"carts", "bills"}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", "{", "Input data was truncated"),
        ("a.yaml", "a: [", "did not find expected node content"),
        (
            "a.yaml",
            CRD.replace("io/v1", "io/v1beta1"),
            VERSION,
        ),
        ("a.yml", "kind: CustomResourceDefinition", VERSION),
        ("a.yaml", CRD.replace("{name: carts.shop.example}", "{}"), "metadata.name is missing"),
        ("a.yaml", CRD.replace("spec:\n  group", "Spec:\n  group"), "spec is missing"),
    ],
)
def test_file_of_crds_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    (tmp_path / name).write_text(text)
    status, message = failed("--crds", str(tmp_path))
    assert status == 1
    assert f"kube-api-server: {tmp_path / name}: " in message
    assert words in message


@pytest.mark.parametrize(
    ("good", "bad", "words"),
    [
        ("type: integer", "type: intger", "[size].type: Unsupported value"),
        ("self.size > 0", "self.colour > 0", "undefined field 'colour'"),
        ("group: shop.example", "colour: red", "spec.group: Required value"),
        ("versions:", "releases:", "spec.versions: Required value"),
        ("scope: Namespaced", "scope: [1]", "scope"),
    ],
)
def test_crd_that_is_invalid_ends_the_server(
    tmp_path: Path, good: str, bad: str, words: str
) -> None:
    assert good in CRD
    (tmp_path / "carts.yaml").write_text(CRD.replace(good, bad))
    status, message = failed("--crds", str(tmp_path))
    assert status == 1
    assert "kube-api-server: carts.shop.example: " in message
    assert words in message
