"""Pod Security Standards, checked before a data plane is written. No I/O.

Patches and other parameters can ask for any Pod, and the controller may write Pods in every
namespace. A namespace without the label ``pod-security.kubernetes.io/enforce`` admits all of them.
https://kubernetes.io/docs/concepts/security/pod-security-standards/

The rules are those for Linux, in their newest version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from kube_base.types.objects import ReadOnlyObject

Level = Literal["restricted", "baseline", "privileged"]
"""``privileged`` allows everything."""

Violation = tuple[str, str]
"""Path of a field in the Pod template, and its problem."""

POD_SECURITY_OPTION = "--data-plane-pod-security"

_VOLUMES = frozenset(
    [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ]
)
"""Types of volumes that ``restricted`` allows."""

_CAPABILITIES = frozenset(
    [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ]
)
"""Capabilities that ``baseline`` allows to add."""

SYSCTLS = frozenset(
    [
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
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_wmem",
    ]
)

SELINUX_TYPES = frozenset(
    ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
)
_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_PROFILES = ("RuntimeDefault", "Localhost")
_MUST_BE_EMPTY = "must not be set"


class ForbiddenPodError(Exception):
    """A Pod that the Pod Security Standard forbids; the message names its fields."""


def check_pod_security(workload: ReadOnlyObject, level: Level) -> None:
    """Check the Pod template of a workload. Raises ForbiddenPodError."""
    template = _mapping(_mapping(workload.get("spec")).get("template"))
    problems = violations(template, level)
    if problems:
        metadata = workload["metadata"]
        fields = "; ".join(f"spec.template.{field}: {problem}" for field, problem in problems)
        raise ForbiddenPodError(
            f"{workload['kind']} {metadata['namespace']}/{metadata['name']}: {fields}: forbidden "
            f"by Pod Security level {level} ({POD_SECURITY_OPTION})"
        )


def violations(template: ReadOnlyObject, level: Level) -> list[Violation]:
    """Return the violations of a Pod template."""
    if level == "privileged":
        return []
    result = list(_baseline(template))
    if level == "restricted":
        # The rules of this level include those of the other one.
        result += [violation for violation in _restricted(template) if violation not in result]
    return result


def _baseline(template: ReadOnlyObject) -> Iterator[Violation]:
    spec = _mapping(template.get("spec"))
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield f"spec.{field}", _MUST_BE_EMPTY
    for index, volume in enumerate(_list(spec.get("volumes"))):
        if "hostPath" in volume:
            yield f"spec.volumes[{index}].hostPath", _MUST_BE_EMPTY
    for key, value in _mapping(_mapping(template.get("metadata")).get("annotations")).items():
        allowed = value in ("", "runtime/default") or str(value).startswith("localhost/")
        if key.startswith(_APPARMOR) and not allowed:
            yield f"metadata.annotations[{key}]", "must be runtime/default or localhost/*"
    context = _mapping(spec.get("securityContext"))
    for index, sysctl in enumerate(_list(context.get("sysctls"))):
        if sysctl.get("name") not in SYSCTLS:
            name = sysctl.get("name")
            yield f"spec.securityContext.sysctls[{index}].name", f"{name} is not a safe sysctl"
    yield from _baseline_context(context, "spec.securityContext")
    for container, where in _containers(spec):
        yield from _baseline_container(container, where)


def _baseline_container(container: ReadOnlyObject, where: str) -> Iterator[Violation]:
    context = _mapping(container.get("securityContext"))
    place = f"{where}.securityContext"
    if context.get("privileged"):
        yield f"{place}.privileged", _MUST_BE_EMPTY
    if context.get("procMount") not in (None, "", "Default"):
        yield f"{place}.procMount", "must be Default"
    for added in _strings(_mapping(context.get("capabilities")).get("add")):
        if added not in _CAPABILITIES:
            yield f"{place}.capabilities.add", f"{added} must not be added"
    for index, port in enumerate(_list(container.get("ports"))):
        if port.get("hostPort"):
            yield f"{where}.ports[{index}].hostPort", _MUST_BE_EMPTY
    lifecycle = _mapping(container.get("lifecycle"))
    handlers = {
        **{name: container.get(name) for name in ("livenessProbe", "readinessProbe")},
        "startupProbe": container.get("startupProbe"),
        **{f"lifecycle.{name}": handler for name, handler in lifecycle.items()},
    }
    for name, handler in handlers.items():
        for kind in ("httpGet", "tcpSocket"):
            if _mapping(_mapping(handler).get(kind)).get("host"):
                yield f"{where}.{name}.{kind}.host", _MUST_BE_EMPTY
    yield from _baseline_context(context, place)


def _baseline_context(context: ReadOnlyObject, where: str) -> Iterator[Violation]:
    """Yield the violations of the fields that Pods and containers both have."""
    if _mapping(context.get("windowsOptions")).get("hostProcess"):
        yield f"{where}.windowsOptions.hostProcess", _MUST_BE_EMPTY
    selinux = _mapping(context.get("seLinuxOptions"))
    if (selinux.get("type") or "") not in SELINUX_TYPES:
        yield f"{where}.seLinuxOptions.type", f"{selinux['type']} is not a type of containers"
    for field in ("user", "role"):
        if selinux.get(field):
            yield f"{where}.seLinuxOptions.{field}", _MUST_BE_EMPTY
    for field in ("seccompProfile", "appArmorProfile"):
        if context.get(field) is not None and _profile(context, field) not in _PROFILES:
            yield f"{where}.{field}.type", f"must be {' or '.join(_PROFILES)}"


def _restricted(template: ReadOnlyObject) -> Iterator[Violation]:
    spec = _mapping(template.get("spec"))
    for index, volume in enumerate(_list(spec.get("volumes"))):
        for kind in sorted(volume.keys() - {"name", "hostPath"} - _VOLUMES):
            yield f"spec.volumes[{index}].{kind}", "type of volume must not be used"
    outer = _mapping(spec.get("securityContext"))
    if _is_root(outer):
        yield "spec.securityContext.runAsUser", "must not be 0"
    for container, where in _containers(spec):
        yield from _restricted_container(container, outer, f"{where}.securityContext")


def _restricted_container(
    container: ReadOnlyObject, outer: ReadOnlyObject, where: str
) -> Iterator[Violation]:
    context = _mapping(container.get("securityContext"))
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"{where}.allowPrivilegeEscalation", "must be false"
    if _effective(context, outer, "runAsNonRoot") is not True:
        yield f"{where}.runAsNonRoot", "must be true"
    if _is_root(context):
        yield f"{where}.runAsUser", "must not be 0"
    own = context if context.get("seccompProfile") is not None else outer
    if _profile(own, "seccompProfile") not in _PROFILES:
        yield f"{where}.seccompProfile.type", f"must be {' or '.join(_PROFILES)}"
    capabilities = _mapping(context.get("capabilities"))
    if "ALL" not in _strings(capabilities.get("drop")):
        yield f"{where}.capabilities.drop", "must have ALL"
    for added in _strings(capabilities.get("add")):
        if added != "NET_BIND_SERVICE" and added in _CAPABILITIES:
            yield f"{where}.capabilities.add", f"{added} must not be added"


def _containers(spec: ReadOnlyObject) -> Iterator[tuple[ReadOnlyObject, str]]:
    for kind in _CONTAINERS:
        for index, container in enumerate(_list(spec.get(kind))):
            yield container, f"spec.{kind}[{index}]"


def _effective(context: ReadOnlyObject, outer: ReadOnlyObject, field: str) -> Any:
    own = context.get(field)
    return outer.get(field) if own is None else own


def _profile(context: ReadOnlyObject, field: str) -> Any:
    return _mapping(context.get(field)).get("type")


def _is_root(context: ReadOnlyObject) -> bool:
    return context.get("runAsUser") in (0, "0")


def _mapping(value: Any) -> ReadOnlyObject:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[ReadOnlyObject]:
    return [_mapping(item) for item in value] if isinstance(value, list | tuple) else []


def _strings(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list | tuple) else []
