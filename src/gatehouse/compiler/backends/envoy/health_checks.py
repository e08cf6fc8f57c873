"""Health of endpoints, as policies of Services say."""

from __future__ import annotations

from envoy.config.cluster.v3 import cluster_pb2
from envoy.type.v3 import http_pb2, range_pb2

from gatehouse.compiler.backends.envoy import quoting
from gatehouse.compiler.backends.envoy.protobufs import wrap_number
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import PassiveChecks

_SWEEP_SECONDS = 1.0
"""Time between two looks at ejected endpoints."""


def set_passive_checks(proto: cluster_pb2.Cluster, checks: PassiveChecks | None) -> None:
    """Eject endpoints after failures to connect, timeouts, and responses with 502, 503 or 504.

    Envoy could ignore responses. But then it would start to count again with each connection that
    succeeds, so that timeouts of requests would have no effect.
    """
    if checks is None:
        return
    detection, ejection = proto.outlier_detection, quoting.duration_of(checks.ejection)
    detection.interval.CopyFrom(quoting.duration_of(_SWEEP_SECONDS))
    # Envoy would multiply the time with each ejection.
    detection.base_ejection_time.CopyFrom(ejection)
    detection.max_ejection_time.CopyFrom(ejection)
    detection.max_ejection_percent.CopyFrom(wrap_number(100))
    detection.consecutive_gateway_failure.CopyFrom(wrap_number(checks.failures))
    detection.enforcing_consecutive_gateway_failure.CopyFrom(wrap_number(100))
    for other in (detection.enforcing_consecutive_5xx, detection.enforcing_success_rate):
        other.CopyFrom(wrap_number(0))


def set_active_checks(proto: cluster_pb2.Cluster, source: ir.Cluster) -> None:
    """Have Envoy check the endpoints of a cluster: over HTTP, or by the protocol of gRPC.

    If fewer than half of the endpoints pass, Envoy uses all.
    """
    checks = source.settings.active_checks
    if checks is None or source.is_picker or source.protocol == "udp":
        return
    check = proto.health_checks.add(
        timeout=quoting.duration_of(checks.timeout),
        interval=quoting.duration_of(checks.interval),
        # By default, endpoints without traffic are checked once a minute.
        no_traffic_interval=quoting.duration_of(checks.interval),
        unhealthy_threshold=wrap_number(checks.failures),
        healthy_threshold=wrap_number(checks.successes),
    )
    proto.ignore_health_on_host_removal = True
    if source.protocol == "tcp":
        check.tcp_health_check.SetInParent()
        return
    host = quoting.check_text(_host(source))
    if source.protocol == "grpc":
        check.grpc_health_check.authority = host
        return
    probe = check.http_health_check
    probe.path, probe.host = quoting.check_text(checks.path), host
    probe.expected_statuses.append(range_pb2.Int64Range(start=200, end=400))
    if source.protocol == "h2c":
        probe.codec_client_type = http_pb2.HTTP2


def _host(source: ir.Cluster) -> str:
    """Return the Host of checks: by default it would be the name of the cluster."""
    if source.tls is not None:
        return source.tls.server_name
    if source.resolution is not None:
        return source.endpoints[0].address
    return f"{source.origin.name}.{source.origin.namespace}"
