"""The first line of `gatehouse explain` names the cause, for each fault of the table."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from fakes import request_causes
from fakes.authority import Authority
from fakes.request_causes import CASES, CauseCase
from gatehouse.cli.explain import explain
from gatehouse.inspection.errors import InspectionError

Object = dict[str, Any]
CLASSES = ("gatehouse-nginx", "gatehouse-envoy")


@pytest.fixture(scope="module", params=CLASSES)
def gateway_class(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def manifests(gateway_class: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the objects of all cases, and an empty EndpointSlice of `idle`."""
    directory = tmp_path_factory.mktemp("manifests")
    files = zip(("tls.crt", "tls.key"), Authority(directory).issue("tls.example"), strict=True)
    data = {name: base64.b64encode(path.read_bytes()).decode() for name, path in files}
    secret = {
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": request_causes.metadata("tls"), "data": data,
    }  # fmt: skip
    empty = {**request_causes.endpoints("idle", "127.0.0.1", 9), "endpoints": []}
    objects = request_causes.base(gateway_class, ("127.0.0.1", 9000), secret)
    text = yaml.dump_all([*objects, empty, *request_causes.case_objects()], Dumper=yaml.CSafeDumper)
    (directory / "all.yaml").write_text(text)
    return directory


def run(*words: str) -> Result:
    return CliRunner().invoke(explain, words)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_first_line_names_the_cause(manifests: Path, gateway_class: str, case: CauseCase) -> None:
    result = run("-f", str(manifests), *case.arguments)
    assert case.cause_at(gateway_class) in result.output.splitlines()[0], result.output
    assert result.exit_code == (0 if case.name == "fine" else 3)


def test_table_has_many_causes() -> None:
    assert len(CASES) == len({case.name for case in CASES}) >= 25


@pytest.mark.parametrize("gateway_class", ["gatehouse-nginx"], indirect=True)
def test_program_exits_with_the_status_of_the_answer(manifests: Path) -> None:
    program = (sys.executable, "-m", "gatehouse", "explain", "-f", str(manifests))
    for path, expected in (("fine", 0), ("method", 3)):
        url = f"http://{path}.example:{request_causes.HTTP_PORT}/"
        done = subprocess.run((*program, "POST", url), capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (expected, ""), done.stdout


def test_json_has_every_part(manifests: Path) -> None:
    url = f"http://fine.example:{request_causes.HTTP_PORT}/"
    document = json.loads(run("-f", str(manifests), url, "-o", "json").stdout)
    assert document["gateway"] == "default/web"
    assert document["match"] == "HTTPRoute default/fine: spec.rules[0].matches[0]"
    assert document["listener"]["name"] == "http"
    assert document["hostname"] == "fine.example"
    assert document["answer"]["verdict"] == "forwarded"
    (backend,) = document["backends"]
    assert backend["endpoints"] == [
        {"address": "127.0.0.1:9000", "ready": True, "terminating": False}
    ]
    assert (backend["weight"], backend["share"]) == (1, 100.0)
    (applied,) = document["applied"]
    assert applied["source"] == "HTTPRoute default/fine: spec.rules[0].filters[0]"


def test_service_without_endpoint_slices_is_assumed_to_have_endpoints(tmp_path: Path) -> None:
    secret = {"kind": "Secret", "metadata": {"name": "tls"}}
    objects = request_causes.base("gatehouse-nginx", ("127.0.0.1", 9000), secret)
    route = request_causes.http_route("a", request_causes.to("app"))
    remaining = [entry for entry in (*objects, route) if entry["kind"] != "EndpointSlice"]
    (tmp_path / "all.yml").write_text(yaml.dump_all(remaining, Dumper=yaml.CSafeDumper))
    result = run("-f", str(tmp_path), "http://a.example:8080/")
    assert result.output.splitlines()[0] == "forwarded to Service default/app:80"
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("shop.example",), "must be a URL such as"),
        (("GET", "ftp://shop.example/"), "must be a URL such as"),
        (("A", "B", "http://a/"), "must be a URL, or a method and a URL"),
        (("tcp://a.example",), "must contain a port"),
        (("http://a:99999/",), "Port out of range"),
        (("http://a/", "-H", "x"), "--header: 'x' must be Name: value"),
        (("http://a/", "--client", "x"), "--client: 'x' must be an IP address"),
        (("http://a/", "--gateway", "x/y"), "Gateway x/y not found"),
        (("http://a/", "--send"), "--send needs a cluster"),
        (("POST", "tcp://a:1"), "a method or headers need http or https"),
    ],
)
def test_wrong_arguments_are_rejected(
    manifests: Path, words: tuple[str, ...], message: str
) -> None:
    result = run("-f", str(manifests), *words)
    assert isinstance(result.exception, InspectionError)
    assert message in str(result.exception)


def test_gateway_of_another_controller_is_named(tmp_path: Path) -> None:
    gateway_class = {
        "kind": "GatewayClass", "metadata": {"name": "foreign"},
        "spec": {"controllerName": "example.com/other"},
    }  # fmt: skip
    gateway = {
        "kind": "Gateway", "metadata": {"name": "web"},
        "spec": {"gatewayClassName": "foreign", "listeners": []},
    }  # fmt: skip
    (tmp_path / "a.yaml").write_text(
        yaml.dump_all([gateway_class, gateway], Dumper=yaml.CSafeDumper)
    )
    result = run("-f", str(tmp_path), "http://a/", "--gateway", "default/web")
    assert "its GatewayClass foreign does not exist or names another" in str(result.exception)
    assert "no Gateway that Gatehouse manages among web" in str(
        run("-f", str(tmp_path), "http://a/").exception
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "a document is not an object with kind and metadata"),
        ("kind: Service\nmetadata: {}", "metadata.name must be a string"),
        ("a: [", "a.yaml: while parsing"),
    ],
)
def test_unreadable_manifest_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    assert message in str(run("-f", str(tmp_path), "http://a/").exception)
    missing = run("-f", str(tmp_path / "nowhere"), "http://a/").exception
    assert "nowhere: no such file or directory" in str(missing)


CHECKED = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: CLASS
  listeners:
  - name: checked
    port: 8080
    protocol: HTTP
    filters:
      requests:
      - type: ExternalAuth
        externalAuth:
          protocol: HTTP
          backendRef: {name: SERVER, port: 80}
          http: {allowedResponseHeaders: [X-User]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r}
spec:
  parentRefs: [{name: web}]
  rules: [{backendRefs: [{name: s, port: 80}]}]
---
apiVersion: v1
kind: Service
metadata: {name: s}
spec: {ports: [{port: 80}]}
"""


def explain_checked(directory: Path, gateway_class: str, server: str) -> Result:
    manifest = directory / "objects.yaml"
    manifest.write_text(CHECKED.replace("CLASS", gateway_class).replace("SERVER", server))
    return run("-f", str(manifest), "http://a.example:8080/")


def test_check_of_a_listener_is_named(tmp_path: Path) -> None:
    result = explain_checked(tmp_path, "gatehouse-envoy", "s")
    assert "authorization service of the listener may reject the request" in result.output
    assert result.exit_code == 0
    result = explain_checked(tmp_path, "gatehouse-nginx", "s")
    field = "listener checked: filters.requests[0].externalAuth"
    assert f"{field}: requires an NGINX with http_auth_request_module" in result.output
    result = explain_checked(tmp_path, "gatehouse-nginx", "none")
    first = result.output.splitlines()[0]
    assert first.startswith("500")
    assert "filters.requests[0].externalAuth.backendRef: Service default/none not found" in first
    assert result.exit_code == 3
