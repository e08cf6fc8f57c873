"""Licence and usage reporting of NGINX Plus (ngx_mgmt_module)."""

from __future__ import annotations

from gatehouse.compiler.backends.nginx.capabilities import Capabilities
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple
from gatehouse.compiler.backends.nginx.quoting import literal
from gatehouse.compiler.ir.settings import UsageReports

DIRECTIVE = "mgmt"


def directives(reports: UsageReports | None, capabilities: Capabilities) -> list[Directive]:
    """Return the ``mgmt`` block; none for NGINX Open Source, and before R33, which has no
    licence."""
    if reports is None or not capabilities.licensed:
        return []
    inner = [
        simple("license_token", literal(reports.license)),
        # The default is a directory where a Pod cannot write.
        simple("state_path", literal(reports.state)),
    ]
    if reports.endpoint:
        inner.append(simple("usage_report", literal(f"endpoint={reports.endpoint}")))
    if reports.resolver:
        inner.append(simple("resolver", *map(literal, reports.resolver)))
    if reports.proxy and capabilities.usage_proxy:
        inner.append(simple("proxy", literal(reports.proxy)))
    if not reports.verified:
        inner.append(simple("ssl_verify", "off"))
    if reports.trust:
        inner.append(simple("ssl_trusted_certificate", literal(reports.trust)))
    if reports.certificate:
        inner.append(simple("ssl_certificate", literal(reports.certificate)))
        inner.append(simple("ssl_certificate_key", literal(reports.key)))
    if not reports.enforce_initial_report:
        inner.append(simple("enforce_initial_report", "off"))
    return [block(DIRECTIVE, (), inner)]


def unsupported(reports: UsageReports | None, capabilities: Capabilities) -> list[str]:
    """Return the settings that this NGINX Plus does not support."""
    if reports is None or not capabilities.licensed or capabilities.usage_proxy:
        return []
    return (
        ["usage reports through a proxy require NGINX Plus R34 or newer"] if reports.proxy else []
    )
