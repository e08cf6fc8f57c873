"""The Pod Security Standard "restricted", as far as specs of Pods can break it.

https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}


def violations(spec: Mapping[str, Any]) -> list[str]:
    """Say what of a Pod's spec the standard forbids."""
    return [*_of_pod(spec), *(each for c in _containers(spec) for each in _of_container(spec, c))]


def _containers(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(kind) or ()


def _of_pod(spec: Mapping[str, Any]) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield field
    for volume in spec.get("volumes") or ():
        for kind in volume.keys() - {"name"} - VOLUMES:
            yield f"volume {volume['name']}: {kind}"
    for sysctl in (spec.get("securityContext") or {}).get("sysctls") or ():
        if sysctl["name"] not in SYSCTLS:
            yield f"sysctl {sysctl['name']}"


def _of_container(spec: Mapping[str, Any], container: Mapping[str, Any]) -> Iterator[str]:
    name = container["name"]
    outer = spec.get("securityContext") or {}
    own = container.get("securityContext") or {}
    if own.get("privileged"):
        yield f"{name}: privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{name}: allowPrivilegeEscalation"
    capabilities = own.get("capabilities") or {}
    if "ALL" not in (capabilities.get("drop") or ()):
        yield f"{name}: capabilities are not dropped"
    for added in set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}:
        yield f"{name}: capability {added}"
    if own.get("runAsNonRoot", outer.get("runAsNonRoot")) is not True:
        yield f"{name}: runAsNonRoot"
    if own.get("runAsUser", outer.get("runAsUser")) == 0:
        yield f"{name}: runs as root"
    profile = (own.get("seccompProfile") or outer.get("seccompProfile") or {}).get("type")
    if profile not in ("RuntimeDefault", "Localhost"):
        yield f"{name}: seccompProfile"
    for port in container.get("ports") or ():
        if port.get("hostPort"):
            yield f"{name}: hostPort {port['hostPort']}"
