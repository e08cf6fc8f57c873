"""`pathNormalization` of GatewayParameters: slashes that Envoy leaves as the client sent them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from differential import proxies
from fakes import served_objects
from fakes.authorized_traffic import served
from fakes.one_route import BACKEND, GATEWAY, Object
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.evaluation.http_request import normalize_path, pattern_path
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.compiler.ir.http import Endpoint
from gatehouse.incremental.query import Engine, Key

PARAMETERS: Key = ("GatewayParameters", "n", "paths")
OPEN, GUARDED = "open", "guarded"


def rules() -> list[Object]:
    """Return a guarded prefix with a space in its path, a guarded one, and an open rule."""

    def rule(path: str, case: str) -> Object:
        changes = {"set": [{"name": "X-Rule", "value": case}]}
        modifier = {"type": "RequestHeaderModifier", "requestHeaderModifier": changes}
        match = {"path": {"type": "PathPrefix", "value": path}}
        return {"matches": [match], "filters": [modifier], "backendRefs": [BACKEND]}

    return [rule("/admin", GUARDED), rule("/for admins/all", GUARDED), rule("/", OPEN)]


def dot_segments(gateway: GatewayConfiguration) -> GatewayConfiguration:
    """Return a gateway with the setting."""
    settings = msgspec.structs.replace(gateway.settings, merge_slashes=False)
    return msgspec.structs.replace(gateway, settings=settings)


UNCHANGED = [
    ("/group%2Fname", OPEN),
    ("/@scope%2fname", OPEN),
    ("/bucket//key", OPEN),
    ("/a%5Cb", OPEN),
    ("/admin/a%2Fb//c", GUARDED),
    ("/admin//", GUARDED),
    ("/admin%2Fx", OPEN),
    ("//admin", OPEN),
    ("/for%20admins/all", GUARDED),
    ("/for%20admins%2Fall", OPEN),
    ("/for%20admins//all", OPEN),
    ("/a/%252F", OPEN),
]
RESOLVED = [
    ("/a/../admin//x", "/admin//x"),
    ("/%61dmin/x", "/admin/x"),
    ("/a/%2e%2e/admin", "/admin"),
]
REJECTED = [
    "/a%2F..%2Fadmin", "/a%2F../admin%2F..", "/a/..%2Fadmin", "/a%5C..%5Cadmin",
    "/a%2f%2e%2e%2fadmin", "/..%2Fadmin", "/a%2F.", "/a/.%2F?b",
]  # fmt: skip


@pytest.mark.process
async def test_routes_and_backends_see_the_slashes_of_the_client(tmp_path: Path) -> None:
    async with served(proxies.with_envoy, tmp_path, 0, *rules(), change=dot_segments) as proxy:
        for path, rule in UNCHANGED:
            status, _, echo = await proxy.send(path)
            assert (status, echo["target"], dict(echo["headers"])["x-rule"]) == (200, path, rule)
        for path, sent in RESOLVED:
            status, _, echo = await proxy.send(path)
            headers = dict(echo["headers"])
            assert (status, echo["target"], headers["x-rule"]) == (200, sent, GUARDED)


@pytest.mark.process
@pytest.mark.parametrize("hostnames", [(), ("*.example",), ("a.example",)])
async def test_dot_segments_between_encoded_slashes_are_rejected(
    tmp_path: Path, hostnames: tuple[str, ...]
) -> None:
    """A client, with a path that some backends decode once more: no backend gets it."""
    async with served(
        proxies.with_envoy, tmp_path, 0, *rules(), change=dot_segments, hostnames=hostnames
    ) as proxy:
        for path in REJECTED:
            assert (await proxy.send(path))[0] == 400, path
        assert (await proxy.send("/a?b=/..%2Fadmin"))[0] == 200


@pytest.mark.process
async def test_slashes_are_merged_and_decoded_by_default(tmp_path: Path) -> None:
    async with served(proxies.with_envoy, tmp_path, 0, *rules()) as proxy:
        for path in ("/admin%2Fx", "//admin//x", "/a%2F..%2Fadmin%2Fx"):
            status, _, echo = await proxy.send(path)
            headers = dict(echo["headers"])
            assert (status, echo["target"], headers["x-rule"]) == (200, "/admin/x", GUARDED)


def test_explanation_sees_the_same_path_as_envoy() -> None:
    """`gatehouse explain` names the rule that serves a request."""
    for path, _ in UNCHANGED:
        result = normalize_path(path, bounded=True, merge=False)
        assert result is not None
        assert result.startswith((b"/admin/", b"/for admins/all")) == ((path, GUARDED) in UNCHANGED)
        if "%20" not in path:
            assert pattern_path(path, encoded=True, merge=False) == path.encode()
    for path, sent in RESOLVED:
        assert normalize_path(path, bounded=True, merge=False) == sent.encode()
    assert [normalize_path(path, bounded=True, merge=False) for path in REJECTED] == [None] * len(
        REJECTED
    )


def world(value: str) -> Engine:
    """Return an engine with a Gateway whose parameters have the setting."""
    reference = {"group": "gatehouse.dev", "kind": PARAMETERS[0], "name": PARAMETERS[2]}
    gateway: Object = {
        "gatewayClassName": "c",
        "listeners": [{"name": "l", "port": 80, "protocol": "HTTP"}],
        "infrastructure": {"parametersRef": reference},
    }
    spec: dict[str, Any] = {"pathNormalization": value} if value else {}
    endpoint = Endpoint("192.0.2.1", 80)
    return served_objects.engine(rules(), endpoint, (GATEWAY, gateway), (PARAMETERS, spec))


@pytest.mark.parametrize(("value", "merges"), [("DotSegments", False), ("Full", True), ("", True)])
def test_parameters_of_a_gateway_set_it(value: str, merges: bool) -> None:
    with world(value).compile() as ask:
        gateway = ask(gateway_api.compile_gateway, GATEWAY)
    assert gateway is not None
    assert gateway.settings.merge_slashes == merges


@pytest.mark.parametrize(("value", "reported"), [("DotSegments", True), ("Full", False)])
def test_nginx_reports_the_setting(value: str, reported: bool) -> None:
    with world(value).compile() as ask:
        gateway = ask(gateway_api.compile_gateway, GATEWAY)
    assert gateway is not None
    generated = nginx.NginxGenerator(nginx.NginxCapabilities.parse("1.31.3")).generate(gateway)
    settings = [str(item.setting) for item in generated.unsupported]
    assert settings == (["GatewayParameters n/paths: spec.pathNormalization"] if reported else [])
