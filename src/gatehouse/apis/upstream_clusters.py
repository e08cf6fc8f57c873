"""UpstreamCluster and RateLimitCondition of ``proxy.kubegateway.io/v1alpha1``, KubeGateway's API.

It contains all of its fields, including both spellings in its documentation, and references to
Secrets. A ``str`` field that ends in ``data`` or is a token is base64, as in the object.
"""

from __future__ import annotations

import msgspec

from gatehouse.apis.meta import AnnotatedMeta, KubernetesObject, View

_GROUP = "proxy.kubegateway.io"

FEATURE_GATES = "proxy.kubegateway.io/feature-gates"
"""Annotation of an UpstreamCluster: KubeGateway's feature gates, ``Name=true|false``, separated by
commas.
"""

GATEWAYS_ANNOTATION = "gatehouse.dev/gateways"
"""Annotation of an UpstreamCluster: Gateways that serve it, ``namespace/name``, separated by
commas. Without it every Gateway with a listener for kube-apiservers serves the object.
"""

STREAMS_ANNOTATION = "gatehouse.dev/streams-per-connection"
"""Annotation of an UpstreamCluster: maximum number of concurrent requests on one HTTP/2 connection
to a server. Default: 100.
"""


class SecretRef(View, frozen=True):
    """A Secret in any namespace: authors of UpstreamClusters administer the installation."""

    namespace: str = ""
    name: str = ""


class ServerSpec(View, frozen=True):
    """A kube-apiserver."""

    endpoint: str = ""
    """``http://`` or ``https://`` with host and port."""
    disabled: bool = False


class ClientConfig(View, frozen=True):
    """Client settings and credentials of the gateway for the servers."""

    insecure: bool = False
    bearer_token: str = ""
    key_data: str = ""
    cert_data: str = ""
    ca_data: str = ""
    qps: int = 0
    burst: int = 0
    qps_divisor: int = 0
    """These three limit the gateway's own requests, which Gatehouse does not limit but reports."""
    server_name: str = ""
    secret_ref: SecretRef | None = None
    """Secret with any of ``tls.crt`` and ``tls.key``, ``token``, ``ca.crt``."""

    def __repr__(self) -> str:
        return "ClientConfig([redacted])"

    __str__ = __repr__


class SecureServing(View, frozen=True):
    """TLS settings for clients."""

    key_data: str = ""
    cert_data: str = ""
    client_ca_data: str = msgspec.field(default="", name="clientCAData")
    server_names: tuple[str, ...] = ()
    secret_ref: SecretRef | None = None
    """Secret with any of ``tls.crt`` and ``tls.key``, ``ca.crt`` for clients' certificates."""

    def __repr__(self) -> str:
        return f"SecureServing({self.server_names}, [redacted])"

    __str__ = __repr__


class Exempt(View, frozen=True):
    """No limit."""


class MaxRequestsInflight(View, frozen=True):
    """Maximum number of concurrent requests."""

    max: int = 0


class TokenBucketSpec(View, frozen=True):
    """Maximum number of requests per second."""

    qps: int = 0
    burst: int = 0


class FlowControlSchema(View, frozen=True):
    """A limit, of exactly one kind."""

    name: str = ""
    strategy: str = ""
    """Empty or ``local``: per data plane. ``globalAllocate`` or ``globalCount``: for all data
    planes together."""
    exempt: Exempt | None = None
    max_requests_inflight: MaxRequestsInflight | None = None
    token_bucket: TokenBucketSpec | None = None
    global_max_requests_inflight: MaxRequestsInflight | None = None
    global_token_bucket: TokenBucketSpec | None = None


class FlowControl(View, frozen=True):
    """``spec.flowControl``."""

    schemas: tuple[FlowControlSchema, ...] = msgspec.field(default=(), name="flowControlSchemas")


class ServiceAccountRef(View, frozen=True):
    """A ServiceAccount of the upstream cluster."""

    name: str = ""
    namespace: str = ""


class DispatchRuleSpec(View, frozen=True):
    """A rule of a policy. ``-`` before a value inverts it, ``*`` alone matches everything."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    service_accounts: tuple[ServiceAccountRef, ...] = ()
    user_groups: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")


class DispatchPolicySpec(View, frozen=True):
    """A dispatch policy: servers for the requests that match one of its rules."""

    strategy: str = "RoundRobin"
    upstream_subset: tuple[str, ...] = ()
    upsteam_subset: tuple[str, ...] = ()
    """Spelling in KubeGateway's documentation."""
    rules: tuple[DispatchRuleSpec, ...] = ()
    flow_control_schema_name: str = ""
    log_mode: str = ""

    @property
    def subset(self) -> tuple[str, ...]:
        """Endpoints of the policy in either spelling; empty for all."""
        return self.upstream_subset or self.upsteam_subset


class UpstreamClusterLogging(View, frozen=True):
    """``spec.logging``: which requests of the cluster are in the access log."""

    mode: str = ""


class UpstreamClusterSpec(View, frozen=True):
    """``spec`` of an UpstreamCluster."""

    servers: tuple[ServerSpec, ...] = ()
    client_config: ClientConfig = ClientConfig()
    secure_serving: SecureServing = SecureServing()
    flow_control: FlowControl = FlowControl()
    dispatch_policies: tuple[DispatchPolicySpec, ...] = ()
    logging: UpstreamClusterLogging = UpstreamClusterLogging()


class UpstreamCluster(KubernetesObject, frozen=True):
    """The kube-apiservers of one cluster. Its name is the hostname under which they are served."""

    metadata: AnnotatedMeta
    spec: UpstreamClusterSpec = UpstreamClusterSpec()
