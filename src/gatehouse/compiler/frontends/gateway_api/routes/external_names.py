"""ExternalName Services as backends: which names are allowed, and which name servers resolve them.

A user who can create a Service could otherwise reach through the data plane what only the data
plane reaches: its loopback address, Services of other namespaces, metadata services of clouds
(CVE-2021-25740). A name that a user controls can have any address. So the operator lists the
domains, and names that are special in DNS or in clusters are refused in any case.
"""

from __future__ import annotations

from gatehouse.apis import core
from gatehouse.compiler.frontends.gateway_api.classes import settings
from gatehouse.compiler.frontends.gateway_api.extensions.parameters import parameters
from gatehouse.compiler.frontends.gateway_api.external_name_rules import name_problem
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.ir.settings import NameResolution
from gatehouse.incremental.query import Ask, Key


def external_name(ask: Ask, service: tuple[str, str]) -> str:
    """Return the name of an ExternalName Service in lower case, without a dot at the end; empty
    for other Services."""
    named = ask.read(("Service", *service))
    if not isinstance(named, core.Service) or named.spec.type != "ExternalName":
        return ""
    return named.spec.external_name.lower().removesuffix(".")


def name_finding(ask: Ask, gateway: Key, service: tuple[str, str], where: str) -> Finding | None:
    """Return why a Gateway does not forward to an ExternalName Service; None if it does, and for
    other Services."""
    named = ask.read(("Service", *service))
    if not isinstance(named, core.Service) or named.spec.type != "ExternalName":
        return None
    subject = f"{where}: Service {'/'.join(service)}: spec.externalName"
    if problem := name_problem(ask(external_name, service), ask(settings).external_names):
        return Finding(
            Reason.EXTERNAL_NAME_REFUSED, f"{subject}: {named.spec.external_name!r}: {problem}"
        )
    if ask(name_resolution, gateway) is None:
        message = f"{subject}: needs spec.dnsResolver in the parameters of the GatewayClass"
        return Finding(Reason.EXTERNAL_NAME_UNSUPPORTED, message)
    return None


def name_resolution(ask: Ask, gateway: Key) -> NameResolution | None:
    """Return the name servers of a Gateway; None if there are none."""
    return ask(parameters, gateway).resolution
