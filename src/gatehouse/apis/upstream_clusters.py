"""UpstreamCluster and RateLimitCondition of ``proxy.kubegateway.io/v1alpha1``: KubeGateway's API.

Every field of its own, those of both spellings of its documents, and references to Secrets. What is
``str`` here and ends in ``data`` or is a token is base64, as in the object.
"""

from __future__ import annotations

import msgspec

from gatehouse.apis.meta import Meta, Resource, View

GROUP = "proxy.kubegateway.io"

FEATURE_GATES = "proxy.kubegateway.io/feature-gates"
"""Annotation: ``Name=true|false``, separated by commas."""

GATEWAYS = "gatehouse.dev/gateways"
"""Annotation: the Gateways that serve a cluster, ``namespace/name``, separated by commas."""


STREAMS = "gatehouse.dev/streams-per-connection"
"""Annotation: how many requests the servers take on one HTTP/2 connection at a time."""


class AnnotatedMeta(Meta, frozen=True):
    """``metadata`` with annotations."""

    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class SecretRef(View, frozen=True):
    """A Secret of any namespace: who writes UpstreamClusters administers the installation."""

    namespace: str = ""
    name: str = ""


class Server(View, frozen=True):
    """A kube-apiserver."""

    endpoint: str = ""
    """``http://`` or ``https://``, host and port."""
    disabled: bool = False


class ClientConfig(View, frozen=True):
    """How the gateway speaks to the servers, and as whom."""

    insecure: bool = False
    bearer_token: str = ""
    key_data: str = ""
    cert_data: str = ""
    ca_data: str = ""
    qps: int = 0
    burst: int = 0
    qps_divisor: int = 0
    """These three are about the gateway's own requests only, which it does not limit."""
    server_name: str = ""
    secret_ref: SecretRef | None = None
    """``tls.crt`` and ``tls.key``, ``token``, ``ca.crt``: what of them it has."""

    def __repr__(self) -> str:
        return "ClientConfig([redacted])"

    __str__ = __repr__


class SecureServing(View, frozen=True):
    """TLS towards clients."""

    key_data: str = ""
    cert_data: str = ""
    client_ca_data: str = msgspec.field(default="", name="clientCAData")
    server_names: tuple[str, ...] = ()
    secret_ref: SecretRef | None = None
    """``tls.crt`` and ``tls.key``, ``ca.crt`` for clients' certificates: what of them it has."""

    def __repr__(self) -> str:
        return f"SecureServing({self.server_names}, [redacted])"

    __str__ = __repr__


class Exempt(View, frozen=True):
    """No limit."""


class MaxRequestsInflight(View, frozen=True):
    """So many requests at a time."""

    max: int = 0


class TokenBucket(View, frozen=True):
    """So many requests a second."""

    qps: int = 0
    burst: int = 0


class FlowControlSchema(View, frozen=True):
    """A limit, of exactly one kind."""

    name: str = ""
    strategy: str = ""
    """Empty or ``local``; ``globalAllocate`` or ``globalCount``: all data planes together."""
    exempt: Exempt | None = None
    max_requests_inflight: MaxRequestsInflight | None = None
    token_bucket: TokenBucket | None = None
    global_max_requests_inflight: MaxRequestsInflight | None = None
    global_token_bucket: TokenBucket | None = None


class FlowControl(View, frozen=True):
    """``spec.flowControl``."""

    schemas: tuple[FlowControlSchema, ...] = msgspec.field(default=(), name="flowControlSchemas")


class ServiceAccountRef(View, frozen=True):
    """A ServiceAccount of the upstream cluster."""

    name: str = ""
    namespace: str = ""


class Rule(View, frozen=True):
    """A rule of a policy; ``-`` before a value inverts it, ``*`` alone is everything."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    service_accounts: tuple[ServiceAccountRef, ...] = ()
    user_groups: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")


class DispatchPolicy(View, frozen=True):
    """Where the requests go that one of its rules matches."""

    strategy: str = "RoundRobin"
    upstream_subset: tuple[str, ...] = ()
    upsteam_subset: tuple[str, ...] = ()
    """The spelling of KubeGateway's documents."""
    rules: tuple[Rule, ...] = ()
    flow_control_schema_name: str = ""
    log_mode: str = ""

    @property
    def subset(self) -> tuple[str, ...]:
        """The endpoints that may answer, in either spelling; empty for all."""
        return self.upstream_subset or self.upsteam_subset


class Logging(View, frozen=True):
    """``spec.logging``."""

    mode: str = ""


class UpstreamClusterSpec(View, frozen=True):
    """``spec`` of an UpstreamCluster."""

    servers: tuple[Server, ...] = ()
    client_config: ClientConfig = ClientConfig()
    secure_serving: SecureServing = SecureServing()
    flow_control: FlowControl = FlowControl()
    dispatch_policies: tuple[DispatchPolicy, ...] = ()
    logging: Logging = Logging()


class UpstreamCluster(Resource, frozen=True):
    """The kube-apiservers of one cluster; its name is the host under which they are reached."""

    metadata: AnnotatedMeta
    spec: UpstreamClusterSpec = UpstreamClusterSpec()
