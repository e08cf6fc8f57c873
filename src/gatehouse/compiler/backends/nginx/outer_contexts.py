"""The contexts around all servers: what trusted users wrote for them, and NGINX Plus' licence."""

from __future__ import annotations

from gatehouse.compiler.backends.nginx import names, snippets, usage_reporting
from gatehouse.compiler.backends.nginx.capabilities import Capabilities
from gatehouse.compiler.backends.nginx.directives import write
from gatehouse.compiler.backends.nginx.fragments import Part
from gatehouse.compiler.backends.nginx.quoting import InvalidValueError
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.dataplane.file_set import File


def part(gateway: ir_gateway.Gateway, capabilities: Capabilities) -> Part:
    """Give the files of the contexts around all servers."""
    unsupported: list[tuple[str, str]] = []
    main = _texts(gateway, "main", unsupported)
    if not any(usage_reporting.DIRECTIVE in snippets.outermost(text) for text in main):
        # Once: whoever writes this block writes it whole.
        own = usage_reporting.directives(gateway.usage, capabilities)
        main = [*([write(own).removesuffix("\n")] if own else []), *main]
        unsupported += [
            ("edge", each) for each in usage_reporting.unsupported(gateway.usage, capabilities)
        ]
    found = {
        names.MAIN_SNIPPETS: main,
        names.HTTP_SNIPPETS: _texts(gateway, "http", unsupported),
    }
    files = [
        File.make(path, "".join(f"{text}\n" for text in texts))
        for path, texts in found.items()
        if texts
    ]
    return Part(tuple(files), tuple(unsupported))


def _texts(
    gateway: ir_gateway.Gateway, context: str, unsupported: list[tuple[str, str]]
) -> list[str]:
    """Give what trusted users wrote for a context around all servers."""
    texts = []
    for snippet in gateway.snippets:
        try:
            texts += [each.text for each in snippets.within([snippet], context)]
        except InvalidValueError as error:
            unsupported.append((f"policy/{snippet.name}", str(error)))
    return texts
