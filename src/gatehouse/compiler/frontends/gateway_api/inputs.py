"""Inputs of the front end: index buckets, settings, and values that the controller sets."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from gatehouse.apis import gateway
from gatehouse.compiler.ir.http import Route
from gatehouse.compiler.ir.settings import UsageReports
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Ask, Key

GATEWAYS: Key = ("@gateways",)
ROUTES: Key = ("@routes",)
FILTERS: Key = ("@filters",)

NGINX = gateway.NGINX_CONTROLLER
ENVOY = gateway.ENVOY_CONTROLLER
CONTROLLERS = gateway.CONTROLLERS
"""Controller names that this controller manages. A GatewayClass selects its data plane by them."""


class Settings(msgspec.Struct, frozen=True):
    """Settings of the controller."""

    bind: Literal["load-balancer", "any"] = "load-balancer"
    """Listen on the address of the Gateway's Service only, or on all addresses."""
    snippets: bool = False
    """Allow SnippetsFilters and SnippetsPolicies, which are raw configuration."""
    counter: str = ""
    """``host:port`` of the rate limit service for limits shared by data planes; empty for none."""
    usage: UsageReports | None = None
    """Usage reports of data planes with NGINX Plus; None for none."""
    workload_overrides: bool = False
    """Allow the parameters of a Gateway to set every field of ``spec.kubernetes``."""


SETTINGS_KEY: Key = ("Settings", "", "")

BUNDLE_VERSION = (1, 6)
"""Supported major and minor version of Gateway API's CRDs."""


class CRDVersions(msgspec.Struct, frozen=True):
    """Versions of Gateway API's CRDs in the cluster; at :data:`CRD_VERSIONS_KEY`."""

    versions: tuple[tuple[str, str], ...] = ()
    """Name of each CRD with its annotation ``gateway.networking.k8s.io/bundle-version``."""


CRD_VERSIONS_KEY: Key = ("Bundle", "", "")


class ProgrammedInput(msgspec.Struct, frozen=True):
    """State of a Gateway's data plane; at the key ``("Programming", namespace, name)``."""

    programmed: bool
    reason: Literal["Pending", "Invalid", "NoResources"] = "Pending"
    message: str = ""
    left_out: str = ""
    """Names the objects that are left out because the proxy rejected them."""


BACK_END_FINDINGS_KEY: Key = ("BackEndFindings",)
"""Input: a function that returns what a Gateway's back end does not support of an object. It gets
``ask``, the Gateway and the object. None: there are no back ends."""


def rejections_key(gateway: Key, subject: Key) -> Key:
    """Return the key of what a Gateway's proxies reject of an object.

    The value is a tuple of :class:`gatehouse.compiler.ir.unsupported.Unsupported`.
    """
    return ("Rejections", gateway[1], gateway[2], *subject)


def unsupported(ask: Ask, gateway: Key, subject: Key) -> tuple[Unsupported, ...]:
    """Return what a Gateway's data plane does not support or rejects of an object."""
    of_back_end = ask.read(BACK_END_FINDINGS_KEY)
    rejections: tuple[Unsupported, ...] | None = ask.read(rejections_key(gateway, subject))
    generated: tuple[Unsupported, ...] = of_back_end(ask, gateway, subject) if of_back_end else ()
    return (*generated, *(rejections or ()))


class Replacement(msgspec.Struct, frozen=True):
    """Routes that a Gateway's proxy rejected; at the key :func:`replacement_key`."""

    routes: tuple[tuple[Route, Route | None], ...]
    """Each with the route that is served in its place; None: none is."""


def replacement_key(gateway: Key, origin: Origin) -> Key:
    """Return the key of the :class:`Replacement` of a route's match at a Gateway."""
    return ("Replacement", gateway[1], gateway[2], *key_of(origin), origin.part)


class RejectedObject(msgspec.Struct, frozen=True):
    """A policy, filter or parameters object that a proxy rejected.

    At the key :func:`rejected_object_key`. It is treated as invalid until its spec changes.
    """

    spec: Any
    reason: str


def rejected_object_key(key: Key) -> Key:
    """Return the key of the :class:`RejectedObject` of an object."""
    return ("RejectedObject", *key)


def rejected_by_proxy(ask: Ask, key: Key) -> str:
    """Return why a proxy rejected an object with its present spec; empty if none did."""
    rejected = ask.read(rejected_object_key(key))
    if not isinstance(rejected, RejectedObject) or rejected.spec != ask.read(key).spec:
        return ""
    return rejected.reason


def rejected_ports_key(gateway: Key) -> Key:
    """Return the key of the ports (frozenset) that no instance of a Gateway can listen on."""
    return ("RejectedPorts", gateway[1], gateway[2])


def rejected_certificate_key(gateway: Key, certificate: str) -> Key:
    """Return the key of why a Gateway's proxy rejected the certificate with a name.

    The name is derived from the content, so that a renewed certificate is tried at once.
    """
    return ("RejectedCertificate", gateway[1], gateway[2], certificate)


def key_of(origin: Origin) -> Key:
    """Return the key of the object of an origin."""
    return (origin.kind, origin.namespace, origin.name)


class Fetched(msgspec.Struct, frozen=True):
    """Result of a fetch; at the key of its :class:`Fetch`."""

    content: bytes = b""
    problem: str = ""


class Fetch(msgspec.Struct, frozen=True, order=True):
    """Periodic HTTPS fetch that the controller performs."""

    url: str
    trust: str = ""
    """PEM of trusted CA certificates; empty for the system's."""
    every: float = 300.0
    """Interval in seconds."""

    @property
    def key(self) -> Key:
        """Key of the :class:`Fetched`."""
        return ("Fetched", self.url, self.trust)


def routes_by_service(namespace: str, service: str) -> Key:
    """Return the bucket of the routes that refer to a Service."""
    return ("@referring", namespace, service)


def policies_by_target(kind: str, target: Key) -> Key:
    """Return the bucket of the policies of a kind that target an object."""
    return ("@extensions", kind, *target)
