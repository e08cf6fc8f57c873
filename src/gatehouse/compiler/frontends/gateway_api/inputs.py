"""Inputs of the front end: index buckets, settings, and values that the controller sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from gatehouse.apis import gateway
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends.gateway_api.findings import Reason
from gatehouse.compiler.ir.http import Route
from gatehouse.compiler.ir.proxy_settings import NginxUsageReports
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Ask, Index, Key

GATEWAYS_KEY: Key = ("@gateways",)
ROUTES_KEY: Key = ("@routes",)
DEFAULT_GATEWAYS_KEY: Key = ("@default-gateways",)
DEFAULT_PARENT: Key = ("DefaultGateway", "", "")
"""Parent of the routes that ask for default Gateways, in the place of each of these."""

FILTERS: Key = ("@filters",)
"""Bucket of the objects that may need keys to be fetched."""

X_BACKENDS_KEY: Key = ("@x-backends",)
INFERENCE_POOLS_KEY: Key = ("@inference-pools",)

CREDENTIAL_KINDS = frozenset({"Secret", "ConfigMap", "ClusterTrustBundle"})
"""Kinds of objects that hold certificates and other credentials."""

NGINX = gateway.NGINX_CONTROLLER
ENVOY = gateway.ENVOY_CONTROLLER
"""Controller names by which a GatewayClass selects its data plane."""


class ControllerSettings(msgspec.Struct, frozen=True):
    """Settings of the controller."""

    bind: Literal["load-balancer", "any"] = "load-balancer"
    """Listen on the address of the Gateway's Service only, or on all addresses."""
    snippets: bool = False
    """Allow SnippetsFilters and SnippetsPolicies, which are raw configuration."""
    counter: str = ""
    """``host:port`` of the rate limit service for limits shared by data planes; empty for none."""
    usage: NginxUsageReports | None = None
    """Usage reports of data planes with NGINX Plus; None for none."""
    usage_authorities: tuple[Key, ...] = ()
    """Secrets with the CA certificates for the endpoint of usage reports."""
    usage_clients: tuple[Key, ...] = ()
    """Secrets with the client certificate for usage reports."""
    workload_overrides: bool = False
    """Allow the parameters of a Gateway to set every field of ``spec.kubernetes``."""
    external_names: tuple[str, ...] = ()
    """Domains of the names that ExternalName Services and XBackends may have as backends."""
    limits: ResourceLimits = ResourceLimits()
    """Ceilings of what objects may claim."""
    metadata_domains: tuple[str, ...] = ()
    """Domains of the labels and annotations that Gateways may set on their data plane."""


SETTINGS_KEY: Key = ("Settings", "", "")

BUNDLED_VERSION = (1, 7)
"""Supported major and minor version of Gateway API's CRDs."""


class CRDVersions(msgspec.Struct, frozen=True):
    """Versions of Gateway API's CRDs in the cluster; at :data:`CRD_VERSIONS_KEY`."""

    versions: tuple[tuple[str, str], ...] = ()
    """Name of each CRD with its annotation ``gateway.networking.k8s.io/bundle-version``."""
    experimental: bool = True
    """True if the CRD of Gateways is of another channel than ``standard``."""


CRD_VERSIONS_KEY: Key = ("Bundle", "", "")


def unavailable_kind_key(kind: str) -> Key:
    """Return the key of an optional kind that the API server does not serve or allow.

    The value is the reason. None: the kind is served.
    """
    return ("UnavailableKind", "", kind)


class ProgrammedInput(msgspec.Struct, frozen=True):
    """State of a Gateway's data plane; at the key ``("Programming", namespace, name)``."""

    programmed: bool
    reason: Reason = Reason.PENDING
    """A reason of the condition type ``Programmed``, while it is False."""
    message: str = ""
    left_out: str = ""
    """Objects that are missing in what is served, and since when; empty if none is."""


_WAITING = ProgrammedInput(programmed=False, message="waiting for the data plane")


def programmed_input(ask: Ask, gateway: Key) -> ProgrammedInput:
    """Return the state of a Gateway's data plane. Plain function."""
    state: ProgrammedInput | None = ask.read(("Programming", *gateway[1:]))
    return _WAITING if state is None else state


BACK_END_FINDINGS_KEY: Key = ("BackEndFindings",)
"""Input: a function that returns what a Gateway's back end does not support of an object. It gets
``ask``, the Gateway and the object. None: there are no back ends."""


def rejections_key(gateway: Key, subject: Key) -> Key:
    """Return the key of what a Gateway's proxies reject of an object.

    The value is a tuple of :class:`gatehouse.compiler.ir.unsupported.Unsupported`.
    """
    return ("Rejections", gateway[1], gateway[2], *subject)


def unready_servers_key(gateway: Key, cluster: str) -> Key:
    """Return the key of the servers of an UpstreamCluster that are not ready at a Gateway.

    The value is a tuple of messages. Each starts with the server.
    """
    return ("UnreadyServers", gateway[1], gateway[2], cluster)


def unsupported_key(ask: Ask, gateway: Key, subject: Key) -> tuple[Unsupported, ...]:
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
    part = origin.part, str(origin.port)
    return ("Replacement", gateway[1], gateway[2], *key_of(origin), *part)


class RejectedObject(msgspec.Struct, frozen=True):
    """A policy, filter or parameters object that the proxy of a Gateway rejected.

    At the key :func:`rejected_object_key`. This Gateway treats it as invalid until its spec
    changes. Other Gateways serve it.
    """

    key: Key
    """The object."""
    spec: Any
    reason: str


class RejectedCredential(msgspec.Struct, frozen=True):
    """A certificate, trust bundle or secret that the proxy of a Gateway rejected.

    At the key :func:`rejected_credential_key`. Its name is derived from the content, so that a
    renewed one is tried at once.
    """

    name: str
    reason: str


_REJECTED_OBJECT, _REJECTED_CREDENTIAL = "RejectedObject", "RejectedCredential"
_TRIED_OBJECT, _TRIED_CREDENTIAL = "TriedObject", "TriedCredential"
"""Kinds of inputs about what a proxy rejected and tests again: it is used, and only its status
reports the rejection."""


def rejected_object_key(gateway: Key, key: Key, *, tried: bool = False) -> Key:
    """Return the key of the :class:`RejectedObject` of an object at a Gateway.

    ``tried``: of one that the proxy tests again.
    """
    return (_TRIED_OBJECT if tried else _REJECTED_OBJECT, gateway[1], gateway[2], *key)


def rejected_credential_key(gateway: Key, name: str, *, tried: bool = False) -> Key:
    """Return the key of the :class:`RejectedCredential` with a name at a Gateway.

    ``tried``: of one that the proxy tests again.
    """
    return (_TRIED_CREDENTIAL if tried else _REJECTED_CREDENTIAL, gateway[1], gateway[2], name)


INPUT_INDEXES: Mapping[str, tuple[Index, ...]] = {
    **dict.fromkeys(
        (_REJECTED_OBJECT, _TRIED_OBJECT), (lambda value: (("@rejected", *value.key),),)
    ),
    **dict.fromkeys(
        (_REJECTED_CREDENTIAL, _TRIED_CREDENTIAL), (lambda value: (("@rejected", value.name),),)
    ),
}
"""Index buckets of inputs that are not objects: what is rejected, whichever Gateway rejects it."""


GatewayObject = tuple[Key, Key]
"""A Gateway, and an object that it serves, which may be itself."""


def rejected_by_proxy(ask: Ask, gateway: Key, key: Key, *, tried: bool = False) -> str:
    """Return why a Gateway leaves an object out that its proxy rejected with its present spec.

    Empty if it does not. ``tried``: also while the proxy tests it again, for a status.
    """
    rejected = ask.read(rejected_object_key(gateway, key))
    if rejected is None and tried:
        rejected = ask.read(rejected_object_key(gateway, key, tried=True))
    if not isinstance(rejected, RejectedObject) or rejected.spec != ask.read(key).spec:
        return ""
    return rejected.reason


def rejected_credential(ask: Ask, gateway: Key, name: str, *, tried: bool = False) -> str:
    """Return why a Gateway leaves a credential out that its proxy rejected; empty if it does not.

    ``tried``: see :func:`rejected_by_proxy`.
    """
    rejected = ask.read(rejected_credential_key(gateway, name))
    if rejected is None and tried:
        rejected = ask.read(rejected_credential_key(gateway, name, tried=True))
    return rejected.reason if isinstance(rejected, RejectedCredential) else ""


def rejecting_gateways(ask: Ask, key: Key, credentials: Iterable[str] = ()) -> tuple[Key, ...]:
    """Return the Gateways whose proxies rejected an object or one of its credentials; sorted."""
    buckets = [key, *((name,) for name in credentials)]
    inputs = (entry for bucket in buckets for entry in ask.read(("@rejected", *bucket)))
    return tuple(sorted({("Gateway", *entry[1:3]) for entry in inputs}))


def at_gateway(gateway: Key, reason: str) -> str:
    """Return a reason that is about one Gateway only, for a status that several have in common."""
    return f"not served by Gateway {gateway[1]}/{gateway[2]}: {reason}"


def rejected_ports_key(gateway: Key) -> Key:
    """Return the key of the ports (frozenset) that no instance of a Gateway can listen on."""
    return ("RejectedPorts", gateway[1], gateway[2])


def key_of(origin: Origin) -> Key:
    """Return the key of the object of an origin."""
    return (origin.kind, origin.namespace, origin.name)


class Fetched(msgspec.Struct, frozen=True):
    """Result of a fetch; at the key of its :class:`Fetch`."""

    content: bytes = b""
    problem: str = ""


class UrlFetch(msgspec.Struct, frozen=True, order=True):
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


def routes_by_parent(parent: Key) -> Key:
    """Return the bucket of the routes whose parentRefs name a Gateway or ListenerSet, or of those
    of :data:`DEFAULT_PARENT`."""
    return ("@routes", *parent)


def routes_with_expressions(parent: Key) -> Key:
    """Return the bucket of those of them that have regular expressions in their matches."""
    return ("@expressions", *parent)


def routes_by_namespace(namespace: str) -> Key:
    """Return the bucket of the routes of a namespace."""
    return ("@routes-of", namespace)


def routes_by_service(namespace: str, service: str) -> Key:
    """Return the bucket of the routes that refer to a backend of a name."""
    return ("@referring", namespace, service)


def listeners_by_service(namespace: str, service: str) -> Key:
    """Return the bucket of the Gateways and ListenerSets whose listeners refer to a backend."""
    return ("@checked-by", namespace, service)


def slices_by_service(namespace: str, service: str) -> Key:
    """Return the bucket of the EndpointSlices of a Service."""
    return ("@slices", namespace, service)


def slices_with_names(namespace: str, service: str) -> Key:
    """Return the bucket of those of them whose addresses are DNS names."""
    return ("@fqdn-slices", namespace, service)


def pools_by_picker(namespace: str, service: str) -> Key:
    """Return the bucket of the InferencePools that name a Service as their endpoint picker."""
    return ("@pickers", namespace, service)


def authenticated_routes_by_service(namespace: str, service: str) -> Key:
    """Return the bucket of the routes of a Service's namespace that authenticate its users."""
    return ("@authenticated", namespace, service)


def policies_by_target(target: Key) -> Key:
    """Return the bucket of the policies of all kinds that target an object."""
    return ("@extensions", *target)


def policies_by_collector(namespace: str, service: str) -> Key:
    """Return the bucket of the XTelemetryPolicies that name a Service as their collector."""
    return ("@collectors", namespace, service)


def policies_by_server(namespace: str, service: str) -> Key:
    """Return the bucket of the SecurityPolicies that name a backend as authorization server."""
    return ("@servers", namespace, service)


def policies_with_headers(namespace: str) -> Key:
    """Return the bucket of the SecurityPolicies of a namespace whose checks set headers: keys of
    clients, or an authorization server that may set only some."""
    return ("@server-headers", namespace)


CLAIMS_KEY: Key = ("@claims",)
"""Bucket of the policies that claim memory."""


def policies_with_claims(namespace: str) -> Key:
    """Return the bucket of the policies that claim memory in a namespace."""
    return ("@claims", namespace)
