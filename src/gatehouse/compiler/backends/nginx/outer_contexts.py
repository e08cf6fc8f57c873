"""The contexts around all servers: snippets of trusted users, and the licence of NGINX Plus."""

from __future__ import annotations

from gatehouse.compiler.backends.failures import unserved
from gatehouse.compiler.backends.fragments import Fragment
from gatehouse.compiler.backends.nginx import names, snippets, usage_reporting
from gatehouse.compiler.backends.nginx.capabilities import Capabilities
from gatehouse.compiler.backends.nginx.directives import write
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.file_set import File
from gatehouse.dataplane.origin import of_gateway


def fragment(gateway: ir_gateway.Gateway, capabilities: Capabilities) -> Fragment[File]:
    """Return the files of the contexts around all servers."""
    unsupported: list[Unsupported] = []
    main = _texts(gateway, "main", unsupported)
    if not any(usage_reporting.DIRECTIVE in snippets.outermost(text) for text in main):
        # Only one such block is permitted: a snippet that has it replaces the generated one.
        mgmt = usage_reporting.directives(gateway.usage, capabilities)
        main = [*([write(mgmt).removesuffix("\n")] if mgmt else []), *main]
        unsupported += [
            Unsupported(of_gateway(gateway.name), problem)
            for problem in usage_reporting.unsupported(gateway.usage, capabilities)
        ]
    texts_by_file = {
        names.MAIN_SNIPPETS: main,
        names.HTTP_SNIPPETS: _texts(gateway, "http", unsupported),
    }
    files = [
        File.make(path, "".join(f"{text}\n" for text in texts))
        for path, texts in texts_by_file.items()
        if texts
    ]
    return Fragment(tuple(files), tuple(unsupported))


def _texts(gateway: ir_gateway.Gateway, context: str, unsupported: list[Unsupported]) -> list[str]:
    """Return the snippets of a context around all servers."""
    texts = []
    for snippet in gateway.snippets:
        try:
            texts += [raw.text for raw in snippets.within([snippet], context)]
        except Exception as error:
            unsupported.append(unserved(snippet.origin, error))
    return texts
