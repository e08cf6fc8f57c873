"""Output of both back ends for a configuration, by file and by resource."""

from __future__ import annotations

from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.ir import gateway as ir


def output(gateway: ir.GatewayConfiguration) -> dict[tuple[str, ...], bytes]:
    """Return the files of NGINX and the resources of Envoy, except files shared by all hosts."""
    files = (
        nginx.NginxGenerator(nginx.NginxCapabilities.parse("1.31.3"))
        .generate(gateway)
        .file_set.files
    )
    resources = envoy.EnvoyGenerator(envoy.EnvoyCapabilities()).generate(gateway).resources
    return {("nginx", path): file.content for path, file in files.items()} | {
        ("envoy", kind, name): resource.body
        for kind, named in resources.by_type.items()
        for name, resource in named.items()
    }
