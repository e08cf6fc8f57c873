"""Details of hostnames, precedence, certificates and status merges."""

from __future__ import annotations

import base64
import datetime
import random
from typing import Any

import pytest
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.apis import core, meta, routes
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api import hostnames
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import merge_defaults
from gatehouse.compiler.frontends.gateway_api.extensions.policy_parsing import set_fields
from gatehouse.compiler.frontends.gateway_api.extensions.upstream_settings import upstream_settings
from gatehouse.compiler.frontends.gateway_api.findings import (
    Condition,
    Finding,
    Reason,
    fold_findings,
)
from gatehouse.compiler.frontends.gateway_api.listeners import certificates
from gatehouse.compiler.frontends.gateway_api.routes import durations, precedence
from gatehouse.compiler.frontends.gateway_api.status.types import ParentStatus, RouteStatus
from gatehouse.compiler.ir.gateway import Certificate
from gatehouse.compiler.ir.proxy_settings import NginxClientSettings
from gatehouse.compiler.ir.settings import ClientSettings
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Engine, Snapshot

LABELS = st.sampled_from(["a", "b", "example"])
EXACT = st.lists(LABELS, min_size=1, max_size=4).map(".".join)
NAMES = st.just("") | EXACT | EXACT.map(lambda name: f"*.{name}")


@given(NAMES, NAMES)
def test_hostname_intersection_is_covered_by_both_and_is_commutative(a: str, b: str) -> None:
    common = hostnames.intersect(a, b)
    assert common == hostnames.intersect(b, a)
    if common is not None:
        assert hostnames.hostname_covers(a, common)
        assert hostnames.hostname_covers(b, common)


@given(NAMES, NAMES, NAMES)
def test_hostname_covers_is_a_partial_order(a: str, b: str, c: str) -> None:
    assert hostnames.hostname_covers(a, a)
    if hostnames.hostname_covers(a, b) and hostnames.hostname_covers(b, c):
        assert hostnames.hostname_covers(a, c)
    if hostnames.hostname_covers(a, b) and a != b:
        assert hostnames.specificity(a) < hostnames.specificity(b)


@pytest.mark.parametrize(
    ("pattern", "name", "covered"),
    [
        ("*.example", "a.example", True),
        ("*.example", "a.b.example", True),
        ("*.example", "example", False),
        ("*.example", "*.b.example", True),
        ("a.example", "*.example", False),
        ("", "a.example", True),
        ("a.example", "", False),
    ],
)
def test_hostname_covers_table(pattern: str, name: str, covered: bool) -> None:
    assert hostnames.hostname_covers(pattern, name) is covered


@given(st.randoms(use_true_random=False))
def test_precedence_does_not_depend_on_input_order(source: random.Random) -> None:
    header = routes.NamedMatch("h", "v")
    matches = [
        routes.RouteMatch(routes.PathMatchSpec("Exact", "/a")),
        routes.RouteMatch(routes.PathMatchSpec("RegularExpression", "/.+")),
        routes.RouteMatch(routes.PathMatchSpec("RegularExpression", "/.")),
        routes.RouteMatch(routes.PathMatchSpec("PathPrefix", "/long/er")),
        routes.RouteMatch(routes.PathMatchSpec("PathPrefix", "/a/"), "GET", (header,)),
        routes.RouteMatch(routes.PathMatchSpec("PathPrefix", "/a"), "GET"),
        routes.RouteMatch(routes.PathMatchSpec("PathPrefix", "/a"), "", (header,)),
        routes.RouteMatch(routes.PathMatchSpec("PathPrefix", "/a"), "", (), (header,)),
        routes.RouteMatch(routes.PathMatchSpec("PathPrefix", "/a")),
    ]
    ranked = [
        (precedence.rank(match, meta.Meta("r", "ns"), 0, number), number)
        for number, match in enumerate(matches)
    ]
    shuffled = list(ranked)
    source.shuffle(shuffled)
    assert [number for _, number in sorted(shuffled)] == list(range(len(matches)))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10s", 10.0), ("1h2m3s", 3723.0), ("500ms", 0.5), ("0s", 0.0), ("1d", None), ("", None)],
)
def test_duration_is_parsed(text: str, seconds: float | None) -> None:
    assert durations.parse_duration(text) == seconds


def compiled_certificate(crt: str, key: str) -> Certificate | str:
    secret = core.Secret(meta.Meta("s", "ns"), data={"tls.crt": crt, "tls.key": key})
    engine = Engine(Snapshot({}))
    engine.commit({("Secret", "ns", "s"): secret})
    with engine.compile() as ask:
        return ask(certificates.key_pair_of_secret, ("ns", "s"))


@pytest.mark.parametrize("value", ["", "é", "not base64!", base64.b64encode(b"x").decode()])
def test_certificate_finding_names_the_problem_of_an_invalid_secret(value: str) -> None:
    finding = compiled_certificate(value, value)
    assert isinstance(finding, str)
    assert finding.startswith("Secret ns/s")


def test_rsa_key_that_proxies_reject_is_a_finding() -> None:
    key = rsa.generate_private_key(65537, 1024)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, now, now + day)
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    contents = (
        builder.sign(key, hashes.SHA256()).public_bytes(pem),
        key.private_bytes(pem, *plain),
    )
    crt, private = (base64.b64encode(content).decode() for content in contents)
    problem = "Secret ns/s: tls.crt: the RSA key must have 2048 to 8192 bits"
    assert compiled_certificate(crt, private) == problem


def test_key_of_unsupported_type_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise UnsupportedAlgorithm("curve")

    monkeypatch.setattr(x509, "load_pem_x509_certificates", refuse)
    monkeypatch.setattr(serialization, "load_pem_private_key", refuse)
    finding = compiled_certificate("eA==", "eA==")
    assert isinstance(finding, str)
    assert "with a supported key type" in finding


OURS = "gatehouse.dev/nginx"
REF = routes.ParentRef("gw")


def route_status(status: str = "True") -> RouteStatus:
    return RouteStatus((ParentStatus(OURS, REF, (Condition("Accepted", status),)),))


def test_merge_keeps_entries_of_others_and_skips_an_equal_status() -> None:
    other = {"parentRef": {"name": "x"}, "controllerName": "other", "conditions": []}
    first = gateway_api.merge_gateway_api_status({"parents": [other]}, route_status(), "T1")
    assert first is not None
    assert [entry["controllerName"] for entry in first["parents"]] == ["other", OURS]
    turned = {"parents": list(reversed(first["parents"]))}
    assert gateway_api.merge_gateway_api_status(turned, route_status(), "T2") is None
    gone = gateway_api.merge_gateway_api_status(first, RouteStatus(), "T2")
    assert gone == {"parents": [other]}


def test_transition_time_changes_only_with_the_status() -> None:
    first = gateway_api.merge_gateway_api_status(None, route_status(), "T1")
    assert gateway_api.merge_gateway_api_status(first, route_status(), "T2") is None
    second = gateway_api.merge_gateway_api_status(first, route_status("False"), "T2")
    assert second is not None
    assert second["parents"][0]["conditions"][0]["lastTransitionTime"] == "T2"


def test_route_of_another_controller_is_not_written() -> None:
    assert gateway_api.merge_gateway_api_status(None, RouteStatus(), "T1") is None


def test_condition_has_the_messages_of_all_findings_with_its_reason() -> None:
    findings = [
        Finding(Reason.UNSUPPORTED_VALUE, "rules[10]: a"),
        Finding(Reason.UNSUPPORTED_VALUE, "rules[1]: a"),
        Finding(Reason.UNSUPPORTED_VALUE, "rules[1]: a"),
        Finding(Reason.UNSUPPORTED_VALUE, "1]: a"),
    ]
    (condition,) = fold_findings(findings, [Finding(Reason.ACCEPTED, "accepted")], 1)
    assert condition.message == "rules[10]: a; rules[1]: a; 1]: a"


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"zoneSize": "1m"}, {"upstream.nginx.memory": "zoneSize"}),
        ({"keepAlive": {"connections": 8}}, {"upstream.connections": "keepAlive.connections"}),
        (
            {"loadBalancingMethod": "round_robin"},
            {"upstream.balancing": "loadBalancingMethod"},
        ),
    ],
)
def test_policy_conflicts_only_about_the_fields_that_it_sets(
    spec: dict[str, Any], fields: dict[str, str]
) -> None:
    targets = {"targetRefs": [{"group": "core", "kind": "Service", "name": "s"}]}
    raw = {"metadata": {"name": "p", "namespace": "ns"}, "spec": targets | spec}
    policy: Any = gateway_api.decode_gateway_api_object("UpstreamSettingsPolicy", raw)
    settings = upstream_settings(policy, ResourceLimits()).settings
    assert set_fields(("UpstreamSettingsPolicy", "ns", "p"), settings) == fields


def test_inner_settings_override_outer_ones_field_by_field_in_sections() -> None:
    outer_origin, inner_origin = (Origin("ClientSettingsPolicy", "ns", name) for name in "oi")
    outer = ClientSettings(
        body_size=1,
        nginx=NginxClientSettings(idle=1.0, requests=1),
        sources=(("nginx.idle", outer_origin), ("nginx.requests", outer_origin)),
    )
    inner = ClientSettings(
        nginx=NginxClientSettings(requests=2, lifetime=2.0),
        sources=(("nginx.requests", inner_origin), ("nginx.lifetime", inner_origin)),
    )
    merged = merge_defaults(outer, inner)
    assert merged.body_size == 1
    assert merged.nginx == NginxClientSettings(idle=1.0, requests=2, lifetime=2.0)
    assert dict(merged.sources) == {
        "nginx.idle": outer_origin,
        "nginx.requests": inner_origin,
        "nginx.lifetime": inner_origin,
    }
    assert merge_defaults(outer, ClientSettings()) == outer
