"""Copies of gRPC calls on NGINX, whose gRPC module has directives of its own."""

from __future__ import annotations

from fakes.envoy_serving import host, plain, route_to
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.ir import http as ir

TLS = ir.BackendTls("copy.test", "t")


def test_copy_of_a_grpc_call_verifies_the_backend_and_has_the_headers_of_the_call() -> None:
    endpoints = (ir.Endpoint("127.0.0.1", 1),)
    clusters = [
        ir.Cluster("c", endpoints, protocol="grpc"),
        ir.Cluster("copy", endpoints, protocol="grpc", tls=TLS),
    ]
    routes = host("a.example", route_to("c", mirrors=(ir.Mirror("copy"),)))
    generator = nginx.NginxGenerator(nginx.NginxCapabilities.parse("1.31.3"))
    files = generator.generate(plain([routes], clusters)).file_set.files
    text = "\n".join(file.content.decode() for file in files.values())
    _, _, rest = text.partition("internal;")
    location, passed, _ = rest.partition("grpc_pass grpcs://copy;")
    assert passed
    assert "}" not in location
    assert "grpc_ssl_verify on;" in location
    assert 'grpc_ssl_name "copy.test";' in location
    assert 'grpc_set_header "Host" $gh_host;' in location
    assert " proxy_" not in location
