"""Backends whose certificates require a TLS connector, on agents without one."""

from __future__ import annotations

import pytest

from fakes.origins import match_of
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.origin import Origin, port_origin
from gatehouse.sidecars.tls_connector import config

TLS = ir.BackendTls("front.internal", "", (ir.SubjectName("uri", "spiffe://real"),))
ROUTE = ir.Route(
    "a/b/0/0", ir.Match(), ir.Forward((ir.Backend("c-app"),)), origin=match_of("a/b/0/0")
)
HTTP = ir_gateway.Listener(8080, "HTTP", (ir.VirtualHost("", (ROUTE,)),))
WHOLE = ir_gateway.L4Host("", (ir_gateway.L4Backend("c-tcp"),))
TCP = ir_gateway.L4Listener(9000, "TCP", (WHOLE,))
ENDPOINTS = (ir.Endpoint("127.0.0.1", 9443),)
GATEWAY = ir_gateway.GatewayConfiguration(
    "shop/web",
    bind_address="127.0.0.1",
    listeners=(HTTP,),
    l4_listeners=(TCP,),
    clusters=(
        ir.Cluster("c-app", ENDPOINTS, "http", TLS),
        ir.Cluster("c-tcp", ENDPOINTS, "tcp", TLS),
    ),
)


@pytest.mark.parametrize(
    ("connectors", "unsupported"),
    [(True, set()), (False, {match_of("a/b/0/0"), port_origin("shop/web", 9000)})],
)
def test_missing_connector_is_reported(connectors: bool, unsupported: set[Origin]) -> None:
    capabilities = nginx.NginxCapabilities.parse("1.31.3", connectors=connectors)
    generated = nginx.NginxGenerator(capabilities).generate(GATEWAY)
    assert {item.origin for item in generated.unsupported} == unsupported
    assert (config.CONNECTORS_FILE in generated.file_set.files) == connectors


def test_common_capabilities_require_connector_of_all_agents() -> None:
    able = nginx.NginxCapabilities.parse("1.31.3", connectors=True)
    common = nginx.NginxCapabilities.common([able, nginx.NginxCapabilities.parse("1.31.3")])
    assert common is not None
    assert not common.connectors
