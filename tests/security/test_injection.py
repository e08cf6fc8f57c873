"""Values of objects and options in the output of other tools.

Who: the author of any object, and of chart values or options that an automation copies from a
request. Through what: strings with line breaks, quotes, braces, escape sequences of terminals,
Unicode directions, template and YAML syntax, and markup of tables. What must hold: a value is data
in HAProxy and NGINX configuration of the node proxy, kubeconfigs, YAML of the chart, metrics, logs
and tables of `gatehouse status` and `gatehouse explain`; it adds no line and no setting.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from fakes.hostile_objects import TEXTS
from gatehouse.cli import (
    explain_kube_request,
    logs,
    sent_response,
    status_load_balancers,
    status_rendering,
)
from gatehouse.inspection import object_set, status_report
from gatehouse.nodeproxy import options as node_options
from gatehouse.nodeproxy.haproxy import haproxy_configuration
from gatehouse.runtime import prometheus
from gatehouse.standalone.state_directory import State
from kube_base.runtime.printable import printable
from kube_base.types import ip_addresses

ATTACKS = (
    "a\nb", "a\r\nb", "\x1b[2J\x1b[31mok", "\x1b]0;title\x07", "\x9b2J", "\u202egnp.exe", "\u2028x",
    "[/red]", "[red]x", "[link=http://evil.example]x[/link]", '"; evil "', "{{ .Values }}",
    "a: b", "- a", "---\nkind: Pod", "#", "!!python/none", "*x", "&x", "%", "| x", "> x", "\t",
    "yes", "null", "1e3", "0x10", "'", '"', "\\", "${HOME}", "$(id)", "é", "\x00", "\x7f", "",
)  # fmt: skip
hostile = st.one_of(st.sampled_from((*ATTACKS, *TEXTS)), st.text(max_size=40))


def shown(table: Any) -> str:
    """Return what a terminal gets."""
    output = io.StringIO()
    Console(file=output, force_terminal=True, color_system=None, width=4000).print(table)
    return output.getvalue()


def is_harmless(text: str) -> bool:
    return all(line == printable(line) for line in text.split("\n"))


def gateway(text: str) -> dict[str, Any]:
    conditions = [{"type": "Programmed", "status": "False", "message": text}]
    return {
        "kind": "Gateway",
        "metadata": {"namespace": "ns", "name": "gw"},
        "spec": {"listeners": [{"name": "http", "port": 80, "protocol": text}]},
        "status": {"conditions": conditions, "addresses": [{"value": text}]},
    }


def route(text: str) -> dict[str, Any]:
    accepted = {"type": "Accepted", "status": text, "message": text}
    parent = {"parentRef": {"name": text}, "conditions": [accepted]}
    return {
        "kind": "HTTPRoute",
        "metadata": {"namespace": "ns", "name": "r"},
        "spec": {"hostnames": [text]},
        "status": {"parents": [parent]},
    }


def pod(text: str) -> dict[str, Any]:
    waiting = {"state": {"waiting": {"message": text}}, "restartCount": 1}
    return {
        "metadata": {"namespace": "ns", "name": "p"},
        "status": {"podIP": text, "phase": text, "containerStatuses": [waiting]},
    }


def load_balancer(text: str) -> dict[str, Any]:
    return {"version": text, "hosts": [{"name": text, "server": text, "error": text}]}


@given(hostile)
def test_hostile_values_add_no_lines_to_the_output_of_status(text: str) -> None:
    good = "x" * len(printable(text))
    outputs: tuple[Callable[[str], str], ...] = (
        lambda value: shown(status_load_balancers.hosts_table([("ns/lb", load_balancer(value))])),
        lambda value: "\n".join(status_rendering.status_lines(report_of(value), wide=True)),
        lambda value: "\n".join(status_rendering.tree_lines(report_of(value))),
        lambda value: "\n".join(status_rendering.problem_lines(report_of(value))),
    )
    for output_of in outputs:
        output = output_of(text)
        assert is_harmless(output)
        assert output.count("\n") == output_of(good).count("\n")


def report_of(value: str) -> tuple[status_report.ReportedObject, ...]:
    cluster = {"kind": "UpstreamCluster", "metadata": {"name": value}}
    objects = [gateway(value), route(value), cluster]
    return status_report.report_status(object_set.ObjectSet(objects, [pod(value)], ()))


@given(hostile)
def test_explain_shows_values_as_text(text: str) -> None:
    decision = {
        "cluster": text,
        "mismatches": [{"policy": 0, "rule": 0, "field": text, "value": text, "wanted": text}],
        "policy": None,
        "rule": None,
        "outcome": text,
        "schema": None,
        "servers": [text],
        "logged": True,
        "problems": [text],
        "differences": [text],
    }
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        explain_kube_request._print(decision, sent_response.SentResponse.compared(text, True))
    assert is_harmless(output.getvalue())


@contextlib.contextmanager
def configured(style: str, stream: io.StringIO) -> Iterator[None]:
    before = structlog.get_config()
    try:
        logs.configure("info", style, stream)
        yield
    finally:
        structlog.configure(**before)


@pytest.mark.parametrize("style", ["json", "text"])
def test_log_event_with_hostile_values_is_one_line(style: str) -> None:
    for text in (*ATTACKS, *TEXTS):
        stream = io.StringIO()
        with configured(style, stream):
            structlog.get_logger("gatehouse.test").info("event", error=text, message=[text])
        line = stream.getvalue().removesuffix("\n")
        assert "\n" not in line
        assert is_harmless(line)
        if style == "json":
            assert json.loads(line)["error"] == text.encode("utf-8", "replace").decode() or text


@given(hostile)
def test_label_of_a_metric_adds_no_sample(text: str) -> None:
    with contextlib.suppress(UnicodeEncodeError):
        text.encode()
        page = f"# TYPE m gauge\nm{{{prometheus.label_text({'l': text, 'z': 'z'})}}} 1\n"
        if "\r" in text or any(c in text for c in "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"):
            # Lines end only with a line feed in this format.
            assert page.count("\n") == 2
            return
        [family] = text_string_to_metric_families(page)
        [sample] = family.samples
        assert sample.labels == {"z": "z"} | ({"l": text} if text else {})


ADDRESSES = (
    "::1%\n  evil",
    "fe80::1%a; b",
    "fe80::1%eth0",
    "::1%a b/64",
    "10.0.0.1\n",
    "10.0.0.1 ",
)


@pytest.mark.parametrize("text", ADDRESSES)
def test_address_with_a_scope_or_other_text_is_refused(text: str) -> None:
    for parse in (ip_addresses.ip_address, ip_addresses.ip_network):
        with pytest.raises(ValueError, match=r"scope|does not appear|not permitted|Only|Expected"):
            parse(text)


@given(st.one_of(st.sampled_from(ADDRESSES), hostile))
def test_gateway_of_the_node_proxy_adds_no_line(text: str) -> None:
    for address in (f"{text}:443", f"[{text}]:443"):
        try:
            gateway_address = node_options.parse_gateway(address)
        except node_options.NodeProxyOptionsError:
            continue
        given_options = node_options.NodeProxyOptions(
            addresses=node_options.parse_addresses(("192.0.2.1",)), gateway=gateway_address
        )
        lines = haproxy_configuration(given_options, "/run/status").split("\n")
        servers = [line.split() for line in lines if line.strip().startswith("server ")]
        assert len(servers) == 1
        assert servers[0][:2] == ["server", "gateway"]
        assert servers[0][3] == "send-proxy-v2"
        assert "#" not in servers[0][2]


@pytest.mark.parametrize("text", [text for text in ATTACKS if text and "\0" not in text])
def test_path_and_server_in_a_kubeconfig_are_data(tmp_path: Path, text: str) -> None:
    state = State(tmp_path / f"x{text}".replace("/", "_"))
    state.directory.mkdir()
    state.pki.ensure()
    state.write_kubeconfigs(f"https://{text}")
    config = yaml.load(state.kubeconfig.read_bytes(), yaml.CSafeLoader)
    assert config["clusters"][0]["cluster"] == {
        "server": f"https://{text}",
        "certificate-authority": str(state.pki.ca().cert),
    }
    assert len(config["users"]) == len(config["contexts"]) == 1


CHART = Path(__file__).parents[2] / "charts" / "gatehouse"
HELM = Path(__file__).parents[2] / ".cache" / "helm" / "helm"
MARK = "gh-mark"


def strings(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield the strings of an object with their paths, keys included."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, "<key>"), str(key)
            yield from strings(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from strings(inner, (*path, index))
    elif isinstance(value, str):
        yield path, value


def decoded(text: str) -> Any:
    """Return the JSON of an option's value, else the text."""
    name, separator, value = text.partition("=")
    if separator and value[:1] in ("{", "["):
        return [name, json.loads(value)]
    return text


def replaced(value: Any, text: str) -> Any:
    """Return a value with the text in place of the mark."""
    if isinstance(value, dict):
        return {replaced(key, text): replaced(inner, text) for key, inner in value.items()}
    if isinstance(value, list):
        return [replaced(inner, text) for inner in value]
    return value.replace(MARK, text) if isinstance(value, str) else value


def hostile_values(schema: Any, root: Any, text: str) -> Any:
    """Return values with a text in each string that the chart's schema does not restrict."""
    schema = root["definitions"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if schema.get("type") == "string" and not {"enum", "pattern", "const"} & set(schema):
        return text
    if schema.get("type") == "array" and "items" in schema:
        inner = hostile_values(schema["items"], root, text)
        return None if inner is None else [inner]
    values = {
        name: inner_value
        for name, item in schema.get("properties", {}).items()
        if (inner_value := hostile_values(item, root, text)) is not None
    }
    if isinstance(schema.get("additionalProperties"), dict):
        inner = hostile_values(schema["additionalProperties"], root, text)
        values |= {} if inner is None else {"key": inner}
    return values or None


def rendered(tmp_path: Path, text: str) -> list[Any]:
    root = json.loads((CHART / "values.schema.json").read_text())
    values = tmp_path / "values.yaml"
    values.write_text(json.dumps(hostile_values(root, root, text)))
    command = [
        *(str(HELM), "template", "gatehouse", str(CHART)),
        *("--kube-version", "1.34", "--values", str(values)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.load_all(done.stdout, yaml.CSafeLoader) if document]


@pytest.mark.long
@pytest.mark.skipif(not HELM.exists(), reason="no helm: make helm")
def test_strings_of_chart_values_are_data(tmp_path: Path) -> None:
    plain = rendered(tmp_path, MARK)
    expected = [path for one in plain for path, text in strings(one) if MARK in text]
    assert len(expected) > 5
    for attack in ATTACKS:
        if not attack or printable(attack, keep="\n\t") != attack:
            continue
        # The mark keeps values apart that the chart treats as not set.
        text = f"{MARK}{attack}"
        attacked = rendered(tmp_path, text)
        assert [path for one in attacked for path, _ in strings(one)] == [
            path for one in plain for path, _ in strings(one)
        ], attack
        for before, after in zip(plain, attacked, strict=True):
            for (_, old), (path, new) in zip(strings(before), strings(after), strict=True):
                assert decoded(new) == replaced(decoded(old), text), (attack, path)
