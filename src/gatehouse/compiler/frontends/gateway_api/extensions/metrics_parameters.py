"""The field ``metrics`` of NginxProxy. Its CRD admits any content."""

from __future__ import annotations

from gatehouse.apis.data_plane_parameters import ParametersSpec


def metrics_port(spec: ParametersSpec) -> int:
    """Return the requested port of the metrics, or 0 if there is no valid one."""
    port = (spec.metrics or {}).get("port")
    # True is an int.
    return port if type(port) is int and 0 < port < 65536 else 0


def metrics_problems(spec: ParametersSpec, listener_ports: frozenset[int]) -> dict[str, str]:
    """Return why fields of ``metrics`` are not served, by path."""
    metrics, port = spec.metrics or {}, metrics_port(spec)
    problems = {}
    if metrics.get("port") is not None and not port:
        problems["metrics.port"] = "must be a number from 1 to 65535"
    elif port in listener_ports:
        problems["metrics.port"] = "a listener has this port; the next free one has the metrics"
    if metrics.get("disable"):
        problems["metrics.disable"] = "the agent has its metrics on the port of its health checks"
    return problems
