"""Result of translating the filters of a rule or backend."""

from __future__ import annotations

import msgspec

from gatehouse.compiler.frontends.gateway_api.cluster_key import ClusterKey
from gatehouse.compiler.frontends.gateway_api.findings import Finding
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Authentication, ExternalAuth
from gatehouse.compiler.ir.gateway import SecretFile
from gatehouse.compiler.ir.proxy_settings import NginxSnippet


class Filters(msgspec.Struct, frozen=True):
    """Translated filters of one rule or backend."""

    request_headers: ir.HeaderEdit = ir.HeaderEdit()
    response_headers: ir.HeaderEdit = ir.HeaderEdit()
    answer: ir.Action | None = None
    """Response of the gateway itself, so that the rule needs no backend."""
    rewrite: ir.Rewrite = ir.Rewrite()
    mirrors: tuple[ir.Mirror, ...] = ()
    cors: ir.Cors | None = None
    snippets: tuple[NginxSnippet, ...] = ()
    authentication: Authentication | None = None
    secrets: tuple[SecretFile, ...] = ()
    """Secrets that ``authentication`` refers to."""
    external_auth: ExternalAuth | None = None
    clusters: tuple[ClusterKey, ...] = ()
    """Clusters that ``mirrors`` and ``external_auth`` refer to."""
    notes: tuple[Finding, ...] = ()
    """Findings about invalid mirrors, without which requests are served, and about filters that
    a proxy rejected and tests again."""
    findings: tuple[Finding, ...] = ()
    """Findings about invalid filters. The rule or backend then answers 500."""

    def merge(self, added: Filters) -> Filters | None:
        """Return both together; None if both set a field that takes one value."""
        changes: dict[str, object] = {}
        for field in msgspec.structs.fields(Filters):
            before, new = getattr(self, field.name), getattr(added, field.name)
            if new == field.default:
                continue
            if isinstance(new, tuple):
                changes[field.name] = (*before, *new)
            elif before == field.default:
                changes[field.name] = new
            else:
                return None
        return msgspec.structs.replace(self, **changes)
