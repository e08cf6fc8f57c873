"""`gatehouse check`: every kind of finding has its place, and changes in traffic are listed."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from fakes import envoy_running, request_causes
from fakes.inprocess import Server
from fakes.installation import apply
from gatehouse.apis import resources
from gatehouse.cli.check import check_manifests
from gatehouse.cli.check_proxies import EnvoyTest
from gatehouse.cli.errors import CLIError
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds.resources import ResourceSet
from gatehouse.standalone.state_directory import State

Object = dict[str, Any]
CLASSES = ("gatehouse-nginx", "gatehouse-envoy")


def gateway(gateway_class: str = "gatehouse-nginx", *ports: int) -> Object:
    listeners = [
        {"name": f"p{port}", "port": port, "protocol": "HTTP"} for port in ports or (8080,)
    ]
    return {
        "apiVersion": request_causes.API, "kind": "Gateway", "metadata": {"name": "web"},
        "spec": {"gatewayClassName": gateway_class, "listeners": listeners},
    }  # fmt: skip


def route(name: str, *rules: Object, **spec: Any) -> Object:
    result = request_causes.http_route(name, *rules, **spec)
    result["metadata"] = {"name": name}
    return result


def snippets_filter(text: str) -> Object:
    return {
        "apiVersion": "gateway.nginx.org/v1alpha1", "kind": "SnippetsFilter",
        "metadata": {"name": "raw"},
        "spec": {"snippets": [{"context": "http.server.location", "value": text}]},
    }  # fmt: skip


SERVICE = {
    "apiVersion": "v1", "kind": "Service", "metadata": {"name": "app"},
    "spec": {"ports": [{"port": 80}, {"port": 81, "name": "b"}]},
}  # fmt: skip
SERVICE["spec"]["ports"][0]["name"] = "a"  # type: ignore[index]
GOOD = (gateway(), SERVICE, route("fine", request_causes.to("app")))


def write(directory: Path, *objects: Object, name: str = "all.yaml") -> Path:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(yaml.safe_dump_all(objects))
    return directory


def run(*words: str, text: str | None = None) -> Result:
    return CliRunner().invoke(check_manifests, words, input=text)


def report(*words: str, status: int, text: str | None = None) -> Any:
    result = run(*words, "--no-proxy-test", "-o", "json", text=text)
    assert result.exit_code == status, (result.output, result.exception)
    return json.loads(result.stdout)


def test_good_manifests_have_no_findings(tmp_path: Path) -> None:
    result = run("-f", str(write(tmp_path, *copy.deepcopy(GOOD))), "--no-proxy-test")
    assert (result.exit_code, result.output) == (0, "3 objects checked: no findings\n")


def test_findings_of_every_source_have_file_document_object_and_field(tmp_path: Path) -> None:
    broken = route("broken", request_causes.to("app"))
    broken["spec"]["rules"][0]["matches"] = [{"path": {"type": "Prefix", "value": "/"}}]
    misspelled = route("misspelled", {**request_causes.to("app"), "filtres": []})
    cel = route("cel", request_causes.to("app"))
    cel["spec"]["rules"][0]["matches"] = [{"path": {"type": "Exact", "value": "no-slash"}}]
    gone = route("gone", request_causes.to("gone"))
    orphan = route("orphan", request_causes.to("app"), parentRefs=[{"name": "wbe"}])
    beta = {**route("beta"), "apiVersion": "gateway.networking.k8s.io/v1beta2"}
    objects = (*copy.deepcopy(GOOD), broken, misspelled, cel, gone, orphan, beta, gone)
    document = report("-f", str(write(tmp_path, *objects)), status=3)
    assert document["objects"] == 8
    rows = {
        (item["document"], item["object"], item["source"], item["field"])
        for item in document["findings"]
    }
    assert {item["file"] for item in document["findings"]} == {str(tmp_path / "all.yaml")}
    assert rows >= {
        (4, "HTTPRoute default/broken", "schema", "spec.rules[0].matches[0].path.type"),
        (5, "HTTPRoute default/misspelled", "unknown-field", "spec.rules[0].filtres"),
        (6, "HTTPRoute default/cel", "schema", "spec.rules[0].matches[0].path"),
        (7, "HTTPRoute default/gone", "condition", "spec.rules[0].backendRefs[0]"),
        (8, "HTTPRoute default/orphan", "reference", "spec.parentRefs[0]"),
        (9, "HTTPRoute beta", "schema", "apiVersion"),
        (10, "HTTPRoute default/gone", "duplicate", ""),
    }
    text = run("-f", str(tmp_path), "--no-proxy-test").output
    assert (
        f"{tmp_path}/all.yaml#7: HTTPRoute default/gone: rules[0].backendRefs[0]: Service "
        "default/gone not found (ResolvedRefs: BackendNotFound)"
    ) in text.splitlines()


def test_listener_is_named_by_its_index(tmp_path: Path) -> None:
    item = gateway("gatehouse-nginx", 8080)
    tls = {"certificateRefs": [{"name": "missing"}]}
    item["spec"]["listeners"].append(
        {"name": "https", "port": 8443, "protocol": "HTTPS", "tls": tls}
    )
    (finding,) = report("-f", str(write(tmp_path, item)), status=3)["findings"]
    assert finding["field"] == "spec.listeners[1].tls.certificateRefs[0]"
    assert finding["message"].startswith("listener https: tls.certificateRefs[0]: Secret")


def test_standard_input_and_files_are_read_together(tmp_path: Path) -> None:
    write(tmp_path, gateway(), SERVICE)
    text = yaml.safe_dump(route("a", request_causes.to("nope")))
    (finding,) = report("-f", str(tmp_path), "-f", "-", status=3, text=text)["findings"]
    assert (finding["file"], finding["document"]) == ("stdin", 1)


def test_repeated_key_is_a_finding(tmp_path: Path) -> None:
    text = yaml.safe_dump(SERVICE) + "spec: {ports: [{port: 9}]}\n"
    (finding,) = report("-f", "-", status=3, text=text)["findings"]
    assert (finding["source"], finding["field"]) == ("duplicate", "spec")


def test_kinds_of_others_are_noted_and_those_of_manifests_checked(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "required": ["size"]}}}
    version = {
        "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema},
    }  # fmt: skip
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boxes.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "boxes", "singular": "box", "kind": "Box", "listKind": "BoxList"},
        },
    }  # fmt: skip
    box = {"apiVersion": "example.com/v1", "kind": "Box", "metadata": {"name": "b"}, "spec": {}}
    other = {"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {"name": "c"}}
    document = report("-f", str(write(tmp_path, definition, box, other)), status=3)
    assert [item["field"] for item in document["findings"]] == ["spec.size"]
    assert document["notes"] == [f"{tmp_path}/all.yaml#3: Certificate c: kind not checked"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-f", "/nowhere"), "/nowhere: no such file or directory"),
        (("-f", "-", "--against", "/a", "--against-cluster"), "--against must not be set with"),
        (("-f", "-", "--against", "/nowhere"), "/nowhere: no such file or directory"),
    ],
)
def test_wrong_arguments_are_errors(words: tuple[str, ...], message: str) -> None:
    result = run(*words, text="")
    assert isinstance(result.exception, CLIError)
    assert message in str(result.exception)


def test_options_are_those_of_the_controller(tmp_path: Path) -> None:
    reference = {"group": "gateway.nginx.org", "kind": "SnippetsFilter", "name": "raw"}
    filters = [{"type": "ExtensionRef", "extensionRef": reference}]
    item = route("a", {**request_causes.to("app"), "filters": filters})
    objects = (gateway(), SERVICE, snippets_filter("limit_rate 1k;"), item)
    path = str(write(tmp_path, *objects))
    assert report("-f", path, status=3)["findings"]
    assert report("-f", path, "--snippets", status=0)["findings"] == []


def test_changes_in_traffic_have_object_and_target(tmp_path: Path) -> None:
    def rule(path: str, service: str = "app", port: int = 80, **fields: Any) -> Object:
        return {
            **request_causes.to(service, port),
            "matches": [{"path": {"value": path}}],
            **fields,
        }

    change = {"set": [{"name": "X-A", "value": "a"}]}
    changed = {"type": "RequestHeaderModifier", "requestHeaderModifier": change}
    old = write(
        tmp_path / "old", gateway("gatehouse-nginx", 8080, 8081), SERVICE,
        route(
            "a", rule("/same"), rule("/moved"), rule("/gone"), rule("/slow"), rule("/session"),
            rule("/headers"),
        ),
        route("b", rule("/")),
    )  # fmt: skip
    new = write(
        tmp_path / "new", gateway("gatehouse-nginx", 8080), SERVICE,
        route(
            "a", rule("/same"), rule("/moved", "app", 81), rule("/new"),
            rule("/slow", timeouts={"request": "9s"}),
            rule("/session", sessionPersistence={"cookie": {"name": "shop"}}),
            rule("/headers", backendRefs=[{"name": "app", "port": 80, "filters": [changed]}]),
        ),
        route("c", rule("/")),
    )  # fmt: skip
    document = report("-f", str(new), "--against", str(old), status=0)
    on_8080 = [item for item in document["traffic"] if item["entry"]["port"] == 8080]
    rows = {
        (item["change"], item["entry"]["type"], item["entry"]["host"], item["entry"]["match"])
        for item in on_8080
    }
    assert rows == {
        ("removed", "route", "a.example", "/gone/*"), ("added", "route", "a.example", "/new/*"),
        ("target", "route", "a.example", "/moved/*"),
        ("settings", "route", "a.example", "/slow/*"),
        ("settings", "route", "a.example", "/session/*"),
        ("settings", "route", "a.example", "/headers/*"),
        ("removed", "host", "b.example", ""), ("removed", "route", "b.example", "/*"),
        ("added", "host", "c.example", ""), ("added", "route", "c.example", "/*"),
    }  # fmt: skip
    (moved,) = (item for item in on_8080 if item["change"] == "target")
    assert (moved["before"], moved["after"]) == ("Service default/app:80", "Service default/app:81")
    assert moved["object"] == "HTTPRoute default/a: spec.rules[1].matches[0]"
    lines = run("-f", str(new), "--against", str(old), "--no-proxy-test").output.splitlines()
    assert lines[0] == "traffic at Gateway default/web:"
    assert "  - 8081/HTTP" in lines
    assert (
        "  ~ 8080/HTTP a.example /moved/*: Service default/app:80 -> Service default/app:81 "
        "(HTTPRoute default/a: spec.rules[1].matches[0])"
    ) in lines
    same = run("-f", str(old), "--against", str(old), "--no-proxy-test").output
    assert same.splitlines()[0] == "traffic: no change"


@pytest.mark.process
async def test_cluster_is_compared_as_if_manifests_were_applied(tmp_path: Path) -> None:
    server = Server(State(tmp_path / "state"))
    async with server.running(), server.client() as client:
        objects = [gateway(), copy.deepcopy(SERVICE), route("old", request_causes.to("app"))]
        for item in objects:
            item["metadata"]["namespace"] = "default"
        await apply(client, objects)
        await client.create(
            resources.GATEWAY_CLASSES,
            {"metadata": {"name": "gatehouse-nginx"},
             "spec": {"controllerName": "gatehouse.dev/nginx"}},
        )  # fmt: skip
        path = write(tmp_path / "new", route("new", request_causes.to("app")))
        words = ("-f", str(path), "--against-cluster", "--kubeconfig", str(server.state.kubeconfig))
        document = await asyncio.to_thread(report, *words, status=0)
        assert [(item["change"], item["entry"]["host"]) for item in document["traffic"]] == [
            ("added", "new.example"), ("added", "new.example"),
        ]  # fmt: skip
        assert document["notes"] == []


@pytest.mark.process
def test_every_snippet_that_nginx_rejects_is_named(tmp_path: Path) -> None:
    reference = {"group": "gateway.nginx.org", "kind": "SnippetsFilter", "name": "raw"}
    filters = [{"type": "ExtensionRef", "extensionRef": reference}]
    item = route("a", {**request_causes.to("app"), "filters": filters})
    other = copy.deepcopy(item)
    other["metadata"]["name"], other["spec"]["hostnames"] = "b", ["b.example"]
    second = snippets_filter("also_wrong 1;")
    second["metadata"]["name"] = "second"
    other["spec"]["rules"][0]["filters"][0]["extensionRef"] = {**reference, "name": "second"}
    objects = (gateway("gatehouse-nginx", 80), SERVICE, snippets_filter("wrong_word on;"), second,
               item, other)  # fmt: skip
    path = str(write(tmp_path, *objects))
    result = run("-f", path, "--snippets", "--proxy-test", "-o", "json")
    assert result.exit_code == 3, result.output
    findings = json.loads(result.stdout)["findings"]
    rows = {(item["document"], item["object"]) for item in findings if item["source"] == "proxy"}
    assert rows == {(3, "SnippetsFilter default/raw"), (4, "SnippetsFilter default/second")}
    messages = " ".join(item["message"] for item in findings)
    assert 'unknown directive "wrong_word"' in messages
    assert 'unknown directive "also_wrong"' in messages


@pytest.mark.process
async def test_resource_that_envoy_rejects_is_named() -> None:
    origin = Origin("HTTPRoute", "default", "a")
    good, bad = envoy_running.cluster("good"), envoy_running.bad_cluster("bad", origins=(origin,))
    endpoints = envoy_running.endpoints("good", ("127.0.0.1", 9))
    ((rejected, reason),) = await EnvoyTest(None).rejected_resources(
        ResourceSet([good, endpoints, bad])
    )
    assert rejected.origins == (origin,)
    assert "no-address" in reason


@pytest.mark.process
def test_envoy_reads_configuration_of_privileged_port(tmp_path: Path) -> None:
    listener = gateway("gatehouse-envoy", 80)
    path = write(tmp_path, listener, SERVICE, route("a", request_causes.to("app")))
    accepted = run("-f", str(path), "--proxy-test")
    assert accepted.exit_code == 0, (accepted.output, accepted.exception)
    assert "read by envoy/" in accepted.output


@pytest.mark.process
@pytest.mark.parametrize("gateway_class", CLASSES)
def test_proxy_reads_configuration_of_every_protocol(tmp_path: Path, gateway_class: str) -> None:
    """Two UDP listeners, as Envoy opens the ports of such listeners even in a test."""
    every = gateway(gateway_class)
    every["spec"]["listeners"] += [
        {"name": "tcp", "port": 8445, "protocol": "TCP"},
        {"name": "dns", "port": 8446, "protocol": "UDP"},
        {"name": "syslog", "port": 8447, "protocol": "UDP"},
        {"name": "tls", "port": 8444, "protocol": "TLS", "tls": {"mode": "Passthrough"}},
    ]
    service = request_causes.service("datagrams", 53, protocol="UDP")
    routes = [
        route(section, request_causes.to(name, port), kind=kind,
              parentRefs=[{"name": "web", "sectionName": section}])
        for kind, name, port, section in (
            ("TCPRoute", "app", 80, "tcp"), ("UDPRoute", "datagrams", 53, "dns"),
            ("TLSRoute", "app", 80, "tls"),
        )
    ]  # fmt: skip
    syslog = route("syslog", request_causes.to("datagrams", 53), kind="UDPRoute",
                   parentRefs=[{"name": "web", "sectionName": "syslog"}])  # fmt: skip
    path = write(tmp_path, every, SERVICE, service, *routes, syslog)
    accepted = run("-f", str(path), "--proxy-test")
    assert accepted.exit_code == 0, (accepted.output, accepted.exception)


def test_missing_proxy_is_an_error_only_if_requested(tmp_path: Path) -> None:
    path = str(write(tmp_path, *copy.deepcopy(GOOD)))
    result = run("-f", path, "--nginx", "/nowhere/nginx")
    assert "--proxy-test: /nowhere/nginx is not an executable file" in str(result.exception)
