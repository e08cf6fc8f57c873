"""Hosts outside the cluster as backends: which names are allowed, which name servers resolve them.

ExternalName Services and XBackends name them. A user who can create one could otherwise reach
through the data plane what only the data plane reaches: its loopback address, Services of other
namespaces, metadata services of clouds (CVE-2021-25740). A name that a user controls can have any
address. So the operator lists the domains, and names that are special in DNS or in clusters are
refused in any case.
"""

from __future__ import annotations

from gatehouse.apis import backends, core
from gatehouse.compiler.frontends.gateway_api.classes import settings
from gatehouse.compiler.frontends.gateway_api.extensions.parameters import parameters
from gatehouse.compiler.frontends.gateway_api.external_name_rules import name_problem
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.ir.settings import NameResolution
from gatehouse.dataplane.origin import object_of
from gatehouse.incremental.query import Ask, Key


def external_name(ask: Ask, backend: Key) -> str:
    """Return the name of a host outside the cluster in lower case, without a dot at the end; empty
    for other Services and XBackends."""
    return _written(ask.read(backend))[1].lower().removesuffix(".")


def _written(backend: object) -> tuple[str, str]:
    """Return the field with the name of a host, and the name as written; empty if it has none."""
    match backend:
        case core.Service() if backend.spec.type == "ExternalName":
            return "spec.externalName", backend.spec.external_name
        case backends.XBackend() if backend.spec.type == backends.EXTERNAL_HOSTNAME:
            return "spec.externalHostname.hostname", backend.spec.external_hostname.hostname
    return "", ""


def name_finding(ask: Ask, gateway: Key, backend: Key) -> Finding | None:
    """Return why a Gateway does not forward to a host outside the cluster; None if it does, and for
    other Services and XBackends."""
    field, written = _written(ask.read(backend))
    if not field:
        return None
    subject = f"{object_of(backend)}: {field}"
    if problem := name_problem(ask(external_name, backend), ask(settings).external_names):
        return Finding(Reason.EXTERNAL_NAME_REFUSED, f"{subject}: {written!r}: {problem}")
    if ask(name_resolution, gateway) is None:
        message = f"{subject}: needs spec.dnsResolver in the parameters of the GatewayClass"
        return Finding(Reason.UNSUPPORTED_BACKEND, message)
    return None


def name_resolution(ask: Ask, gateway: Key) -> NameResolution | None:
    """Return the name servers of a Gateway; None if there are none."""
    return ask(parameters, gateway).resolution
