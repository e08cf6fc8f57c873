"""InferencePools with endpoint pickers on NGINX: the configuration of the picker client."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fakes.origins import match_of
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.backends.nginx import names
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.endpoints import WeightedEndpoint
from gatehouse.dataplane.file_set import FileSet
from gatehouse.sidecars.base.san_match import SubjectAltName
from gatehouse.sidecars.picker import config
from gatehouse.sidecars.picker.config import PickerTls, Pool

PICKER = ir.EndpointPicker("c-picker", fail_open=True)
POOL = ir.Cluster("c-pool", (ir.Endpoint("10.0.0.1", 8000),), picker=PICKER)
PICKERS = ir.Cluster("c-picker", (ir.Endpoint("2001:db8::1", 9002),), "grpc", is_picker=True)
SERVICE = ir.Cluster("c-service", (ir.Endpoint("10.0.0.3", 80),))


def generated(
    *clusters: ir.Cluster,
    pickers: bool = True,
    named: bool = False,
    version: str = "1.31.3",
    **action: Any,
) -> nginx.GeneratedFiles:
    """Compile a route to the first cluster, or with another action."""
    forward = ir.Forward(**({"backends": (ir.Backend(clusters[0].name),)} | action))
    route = ir.Route("a/b/0/0", ir.Match(), forward, origin=match_of("a/b/0/0"))
    listener = ir_gateway.Listener(8080, "HTTP", (ir.VirtualHost("", (route,)),))
    gateway = ir_gateway.GatewayConfiguration(
        "shop/web", bind_address="127.0.0.1", listeners=(listener,), clusters=clusters
    )
    able = nginx.NginxCapabilities.parse(version, pickers=pickers, named_endpoints=named)
    return nginx.NginxGenerator(able).generate(gateway)


def changed(cluster: ir.Cluster, **fields: Any) -> ir.Cluster:
    return msgspec.structs.replace(cluster, **fields)


def pools(files: FileSet) -> list[Pool]:
    return msgspec.json.decode(files.files[config.POOLS_FILE].content, type=list[Pool])


@pytest.mark.parametrize("named", [False, True])
def test_requests_go_to_the_socket_of_the_pool(named: bool) -> None:
    result = generated(POOL, PICKERS, named=named)
    [pool] = pools(result.file_set)
    upstream = result.file_set.files["gatehouse/upstreams/c-pool.conf"].content.decode()
    assert f"server unix:pools/{pool.socket} max_fails=0;" in upstream
    assert "10.0.0.1" not in upstream
    assert "gatehouse/upstreams/c-picker.conf" not in result.file_set.files
    assert (pool.cluster, pool.fail_open, pool.tls) == ("c-pool", True, None)
    for path, address, port in (
        (pool.endpoints, "10.0.0.1", 8000),
        (pool.pickers, "2001:db8::1", 9002),
    ):
        content = result.file_set.files[path].content
        assert msgspec.json.decode(content, type=list[WeightedEndpoint]) == [
            WeightedEndpoint(address, port)
        ]
    assert result.unsupported == ()


def test_endpoints_change_in_files_of_their_own() -> None:
    before = dict(generated(POOL, PICKERS).file_set.files.items())
    other = changed(POOL, endpoints=(ir.Endpoint("10.0.0.2", 8000),))
    after = dict(generated(other, PICKERS).file_set.files.items())
    assert {path for path in before | after if before.get(path) != after.get(path)} == {
        "gatehouse/pools/c-pool.json"
    }


def test_pool_without_a_picker_needs_no_sidecar() -> None:
    files = generated(changed(POOL, picker=None)).file_set.files
    assert "server 10.0.0.1:8000" in files["gatehouse/upstreams/c-pool.conf"].content.decode()
    assert config.POOLS_FILE not in files


def test_pools_and_services_share_requests_by_weight() -> None:
    backends = (ir.Backend("c-pool", 3), ir.Backend("c-service", 1))
    result = generated(POOL, PICKERS, SERVICE, backends=backends)
    text = "".join(file.content.decode() for file in result.file_set.files.values())
    assert "split_clients" in text
    assert "75.00%" in text
    assert result.unsupported == ()


@pytest.mark.parametrize(
    ("tls", "expected"),
    [
        (
            ir.BackendTls("epp.n.svc", "", verified=False),
            PickerTls(server_name="epp.n.svc", names=(SubjectAltName("dns", "epp.n.svc"),)),
        ),
        (
            ir.BackendTls("epp", "ca", (ir.SubjectName("uri", "spiffe://epp"),), "own"),
            PickerTls(
                server_name="epp",
                trust=names.trust_file("ca"),
                names=(SubjectAltName("uri", "spiffe://epp"),),
                certificate=names.certificate_file("own", "crt"),
                key=names.certificate_file("own", "key"),
            ),
        ),
    ],
)
def test_picker_is_asked_by_the_tls_of_its_cluster(tls: ir.BackendTls, expected: PickerTls) -> None:
    [pool] = pools(generated(POOL, changed(PICKERS, tls=tls)).file_set)
    assert pool.tls == expected


@pytest.mark.parametrize("version", ["1.22.1", "1.31.3"])
def test_picker_client_speaks_http_2_to_endpoints(version: str) -> None:
    result = generated(changed(POOL, protocol="h2c"), PICKERS, version=version)
    [pool] = pools(result.file_set)
    assert pool.http2
    text = "".join(file.content.decode() for file in result.file_set.files.values())
    assert "proxy_http_version 2;" not in text
    assert result.unsupported == ()


def test_pool_of_a_grpc_route_with_a_picker_is_not_served() -> None:
    result = generated(changed(POOL, protocol="grpc"), PICKERS)
    [unsupported] = result.unsupported
    assert unsupported.origin == match_of("a/b/0/0")
    assert "pickers of GRPCRoutes are not supported by NGINX; use Envoy" in unsupported.reason


def test_agent_without_a_picker_client_serves_no_pool_with_a_picker() -> None:
    result = generated(POOL, PICKERS, pickers=False)
    [unsupported] = result.unsupported
    assert "endpoint pickers require an agent with a picker client" in unsupported.reason
    assert config.POOLS_FILE not in result.file_set.files


def test_common_capabilities_require_a_picker_client_of_all_agents() -> None:
    able = nginx.NginxCapabilities.parse("1.31.3", pickers=True)
    for other in (able, nginx.NginxCapabilities.parse("1.31.3")):
        common = nginx.NginxCapabilities.common([able, other])
        assert common is not None
        assert common.pickers == other.pickers
