"""The contexts around all servers: snippets of trusted users, the licence of NGINX Plus, and
connections of workers."""

from __future__ import annotations

from gatehouse.compiler.backends.failures import unserved
from gatehouse.compiler.backends.fragments import Fragment
from gatehouse.compiler.backends.nginx import names, snippets, usage_reporting
from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.backends.nginx.directives import format_directives, simple_directive
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.file_set import File
from gatehouse.dataplane.origin import gateway_origin

MIN_WORKER_CONNECTIONS = 1024
"""Workers do not start if they have more listening sockets than connections. `nginx -t` does not
notice that."""


def fragment(
    gateway: ir_gateway.GatewayConfiguration, capabilities: NginxCapabilities
) -> Fragment[File]:
    """Return the files of the contexts around all servers."""
    unsupported: list[Unsupported] = []
    main = _texts(gateway, "main", unsupported)
    if not any(usage_reporting.DIRECTIVE in snippets.outermost(text) for text in main):
        # Only one such block is permitted: a snippet that has it replaces the generated one.
        mgmt = usage_reporting.directives(gateway.usage, capabilities)
        main = [*([format_directives(mgmt).removesuffix("\n")] if mgmt else []), *main]
        unsupported += [
            Unsupported(gateway_origin(gateway.name), problem)
            for problem in usage_reporting.unsupported_usage_reporting(gateway.usage, capabilities)
        ]
    texts_by_file = {
        names.MAIN_SNIPPETS: main,
        names.HTTP_SNIPPETS: _texts(gateway, "http", unsupported),
        names.EVENTS_CONTEXT: _events(gateway.settings),
    }
    files = [
        File.make(path, "".join(f"{text}\n" for text in texts))
        for path, texts in texts_by_file.items()
        if texts
    ]
    return Fragment(tuple(files), tuple(unsupported))


def _events(edge: DataPlaneSettings) -> list[str]:
    """Return the directives of the ``events`` context that replace those of the main file."""
    if edge.nginx.connections_per_worker is None:
        return []
    number = max(MIN_WORKER_CONNECTIONS, edge.nginx.connections_per_worker)
    directives = [simple_directive("worker_connections", str(number))]
    return [format_directives(directives).removesuffix("\n")]


def _texts(
    gateway: ir_gateway.GatewayConfiguration, context: str, unsupported: list[Unsupported]
) -> list[str]:
    """Return the snippets of a context around all servers."""
    texts = []
    for snippet in gateway.snippets:
        try:
            texts += [raw.text for raw in snippets.within([snippet], context)]
        except Exception as error:
            unsupported.append(unserved(snippet.origin, error))
    return texts
