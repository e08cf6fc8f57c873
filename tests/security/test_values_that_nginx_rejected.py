"""Tenants of a shared NGINX, through values that were admitted, and that NGINX rejected.

Each was found by :mod:`test_hostile_objects`. NGINX must accept the configuration.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes import nginx_check
from fakes.compiled_objects import CAPABLE_NGINX
from fakes.every_kind import authority
from fakes.one_route import BACKEND, GATEWAY, engine
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.backends.nginx import names
from gatehouse.compiler.backends.nginx.weighted_upstreams import split_rows
from gatehouse.compiler.frontends import gateway_api, pem
from gatehouse.dataplane.origin import Origin

Object = dict[str, Any]
MISSING = {"name": "missing", "port": 80}
SESSION = {"header": {"name": "X-Session"}, "type": "Header"}


def mirrored(fraction: Object) -> Object:
    mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": BACKEND} | fraction}
    return {"filters": [mirror], "backendRefs": [BACKEND]}


RULES: dict[str, Object] = {
    "session among backends without endpoints": {
        "sessionPersistence": SESSION,
        "backendRefs": [BACKEND, BACKEND | {"weight": 2}],
    },
    "session on a route that cannot be served": {
        "sessionPersistence": {"type": "Cookie"},
        "retry": {"attempts": 5, "backoff": "100ms", "codes": []},
        "backendRefs": [BACKEND],
    },
    "mirrored share below the smallest step": mirrored(
        {"fraction": {"numerator": 1, "denominator": 2**53}}
    ),
    "mirrored share of almost everything": mirrored(
        {"fraction": {"numerator": 99_999, "denominator": 100_000}}
    ),
    "share below the smallest step": {
        "backendRefs": [BACKEND | {"weight": 1}, MISSING | {"weight": 1_000_000}]
    },
    "path of the location that delays retries": {
        "matches": [
            {"path": {"type": "Exact", "value": names.REFUSED}},
            {"path": {"type": "PathPrefix", "value": "/a"}},
        ],
        "retry": {"attempts": 1, "backoff": "100ms", "codes": []},
        "backendRefs": [BACKEND],
    },
}


@pytest.mark.process
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("ready", [True, False])
def test_nginx_accepts_the_route(name: str, ready: bool, tmp_path: Path) -> None:
    slice_key = ("EndpointSlice", "n", "s-1")
    with_route = engine("HTTPRoute", [RULES[name]])
    raw = {
        "metadata": {
            "name": "s-1", "namespace": "n", "labels": {"kubernetes.io/service-name": "s"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "p", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": ready}}],
    }  # fmt: skip
    with_route.commit({slice_key: gateway_api.decode_gateway_api_object("EndpointSlice", raw)})
    with with_route.compile() as ask:
        gateway = ask(gateway_api.compile_gateway, GATEWAY)
    assert gateway is not None
    generated = nginx.NginxGenerator(CAPABLE_NGINX).generate(gateway)
    result = nginx_check.check(generated.file_set, tmp_path)
    assert result.accepted, result.output
    assert {item.origin.whole for item in generated.unsupported} <= {Origin("HTTPRoute", "n", "r")}


@pytest.mark.parametrize("last", [1, 25, 1000])
def test_shares_of_many_backends_do_not_exceed_100_percent(last: int) -> None:
    rows = split_rows([*((f"b{number}", 66_665) for number in range(15)), ("b15", last)])
    percentages = [float(row.name.rstrip("%")) for row in rows if row.name != "*"]
    assert len(percentages) == 15
    assert sum(percentages) <= 100


@pytest.mark.parametrize("prefix", [b"::1", b"text ", b"# comment\n", b"\n\n", b"\xef\xbb\xbf"])
def test_certificates_are_written_in_one_form(prefix: bytes) -> None:
    text = authority().encode()
    assert pem.certificates(prefix + text + b"trailing text") == text
