"""Licence and usage reporting of NGINX Plus (ngx_mgmt_module)."""

from __future__ import annotations

from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple_directive
from gatehouse.compiler.backends.nginx.quoting import quote_literal
from gatehouse.compiler.ir.proxy_settings import NginxUsageReports

DIRECTIVE = "mgmt"


def directives(
    reports: NginxUsageReports | None, capabilities: NginxCapabilities
) -> list[Directive]:
    """Return the ``mgmt`` block; none for NGINX Open Source, and before R33, which has no
    licence."""
    if reports is None or not capabilities.licensed:
        return []
    inner = [
        simple_directive("license_token", quote_literal(reports.license)),
        # The default is a directory where a Pod cannot write.
        simple_directive("state_path", quote_literal(reports.state)),
    ]
    if reports.endpoint:
        inner.append(
            simple_directive("usage_report", quote_literal(f"endpoint={reports.endpoint}"))
        )
    if reports.resolver:
        inner.append(simple_directive("resolver", *map(quote_literal, reports.resolver)))
    if reports.proxy and capabilities.usage_proxy:
        inner.append(simple_directive("proxy", quote_literal(reports.proxy)))
    if not reports.verified:
        inner.append(simple_directive("ssl_verify", "off"))
    if reports.trust:
        inner.append(simple_directive("ssl_trusted_certificate", quote_literal(reports.trust)))
    if reports.certificate:
        inner.append(simple_directive("ssl_certificate", quote_literal(reports.certificate)))
        inner.append(simple_directive("ssl_certificate_key", quote_literal(reports.key)))
    if not reports.enforce_initial_report:
        inner.append(simple_directive("enforce_initial_report", "off"))
    return [block(DIRECTIVE, (), inner)]


def unsupported_usage_reporting(
    reports: NginxUsageReports | None, capabilities: NginxCapabilities
) -> list[str]:
    """Return the settings that this NGINX Plus does not support."""
    if reports is None or not capabilities.licensed or capabilities.usage_proxy:
        return []
    return (
        ["usage reports through a proxy require NGINX Plus R34 or newer"] if reports.proxy else []
    )
