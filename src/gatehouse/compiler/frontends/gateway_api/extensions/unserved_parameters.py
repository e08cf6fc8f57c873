"""Fields of NginxProxy that users of NGINX Gateway Fabric set, and that no data plane serves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gatehouse.apis.data_plane_parameters import ParametersSpec
from gatehouse.compiler.frontends.gateway_api.extensions.metrics_parameters import (
    metrics_problems,
)
from gatehouse.compiler.frontends.gateway_api.extensions.parameters import (
    gateway_parameters_of,
    of_class_at,
)
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import service_ports
from gatehouse.incremental.query import Ask, Key


def _enabled(settings: Mapping[str, object] | None) -> Mapping[str, object] | None:
    """Return the settings of a feature; None if it is disabled, which is what is served."""
    if settings is None or settings.get("disable") is True or settings.get("enable") is False:
        return None
    return settings


_UNSERVED_PROBE = {
    "port": "the agent answers on the port of its metrics",
    "path": "the agent answers /readyz",
    "expose": "the Service has the ports of listeners only",
}
"""Fields of a readiness probe, each with the reason."""


def unserved_parameters(ask: Ask, key: Key) -> tuple[str, ...]:
    """Return a message for each field of a Gateway's parameters that is not served."""
    ports = frozenset(port for port, _ in ask(service_ports, key))
    return tuple(
        f"{resolved.origin}: spec.{path}: {reason}"
        for resolved in (ask(of_class_at, key), ask(gateway_parameters_of, key))
        if resolved.spec is not None
        for path, reason in _unserved(resolved.spec, ports)
    )


def _unserved(spec: ParametersSpec, ports: frozenset[int]) -> Iterator[tuple[str, str]]:
    """Yield the fields of a spec that are not served, each with the reason."""
    yield from metrics_problems(spec, ports).items()
    if _enabled(spec.waf) is not None:
        yield "waf", "needs F5 WAF for NGINX: requests are not inspected"
    if spec.nginx_plus is not None:
        yield "nginxPlus", "the agent sets the access to the API of NGINX Plus"
    for kind in ("deployment", "daemonSet"):
        workload = (spec.kubernetes or {}).get(kind) or {}
        where = f"kubernetes.{kind}"
        if workload.get("wafContainers") is not None:
            yield f"{where}.wafContainers", "needs F5 WAF for NGINX"
        container = workload.get("container") or {}
        if container.get("debug"):
            yield f"{where}.container.debug", "the image has no debug build of NGINX"
        probe = container.get("readinessProbe") or {}
        for field, reason in _UNSERVED_PROBE.items():
            if probe.get(field):
                yield f"{where}.container.readinessProbe.{field}", reason
