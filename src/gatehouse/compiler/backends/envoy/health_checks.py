"""Health of endpoints, as policies of Services say."""

from __future__ import annotations

from envoy.config.cluster.v3 import cluster_pb2

from gatehouse.compiler.backends.envoy import quoting
from gatehouse.compiler.backends.envoy.protobufs import wrap_number
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
