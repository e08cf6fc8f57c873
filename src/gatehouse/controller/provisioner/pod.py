"""Pod template of a data plane: an agent that runs NGINX or Envoy. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from gatehouse import TIME_FACTOR_VARIABLE
from gatehouse.agent.timeouts import MAX_DRAIN_SECONDS
from gatehouse.apis.data_plane_workload import ContainerOptions, PodOptions
from gatehouse.controller.provisioner.copied_secrets import CopiedSecret
from kube_base.types.objects import Object
from kube_base.types.quantities import canonical_or_same

TOKEN_DIR = "/var/run/secrets/gatehouse"  # noqa: S105 (a directory)
CA_DIR = "/etc/gatehouse/ca"
CLIENT_DIR = "/etc/gatehouse/client"
PLUS_DIR = "/etc/gatehouse/plus"
"""Parent of one directory per use of copied Secrets."""
DATA_DIR = "/var/lib/gatehouse"
RUN_DIR = "/var/run/gatehouse"

HEALTH_PORT = 9113
"""Port of /metrics, /readyz and /livez of the agent, unless a listener uses it."""

TOKEN_SECONDS = 3600
"""Lifetime of the agent's token in seconds. The kubelet replaces it at 80 % of that."""

PRE_STOP_SECONDS, EXIT_SECONDS = 3, 2
"""Time in seconds in which a terminating Pod accepts new connections, until all nodes know that it
terminates; and time in seconds it needs to exit after connections have finished."""

PROXY_UID = 101
"""User and group of NGINX, and of Envoy, in their own images."""

ProxyKind = Literal["nginx", "envoy"]


class AgentChannel(msgspec.Struct, frozen=True):
    """Address of the control plane for agents, and mutual authentication."""

    host: str
    port: int
    server_name: str
    """Server name expected in the control plane's certificate."""
    audience: str
    """Audience of the agent's token."""
    client_secret: str = ""
    """Secret with the agent's client certificate; empty for none."""


class PodShape(msgspec.Struct, frozen=True):
    """Parameters of the Pods of one Gateway."""

    name: str
    """Name of the Deployment, the Service and the ServiceAccount."""
    namespace: str
    ports: tuple[int, ...]
    """Ports of listeners."""
    proxy: ProxyKind
    image: str
    image_pull_policy: str
    channel: AgentChannel
    gateway: str
    """Name of the Gateway, used as a metric label."""
    owner_type: Literal["Deployment", "DaemonSet"] = "Deployment"
    health_port: int = HEALTH_PORT
    """Port of the agent's metrics and health checks. No listener has it."""
    log_level: str = ""
    """Log level of the agent; empty for its default."""
    pod: PodOptions = PodOptions()
    container: ContainerOptions = ContainerOptions()
    copies: tuple[CopiedSecret, ...] = ()
    on_service_address: bool = False
    """No load balancer in front of the Pod has to learn that it terminates."""
    time_factor: float = 1.0
    """See :mod:`kube_base.runtime.time_limits`."""


def free_health_port(first: int, ports: tuple[int, ...]) -> int:
    """Return the first port from ``first`` on that no listener uses, and after the last port from 1
    on. Both bind the Pod's address."""
    while first in ports:
        first = first % 65535 + 1
    return first


def scrape_annotations(port: int) -> dict[str, str]:
    """Return the annotations by which Prometheus discovers the metrics of Pods."""
    return {"prometheus.io/scrape": "true", "prometheus.io/port": str(port)}


def pod_spec(shape: PodShape) -> Object:
    """Return the ``spec`` of the Pod template."""
    optional = {
        "affinity": shape.pod.affinity,
        "nodeSelector": shape.pod.node_selector,
        "tolerations": [*shape.pod.tolerations],
        "topologySpreadConstraints": [*shape.pod.topology_spread_constraints],
        "imagePullSecrets": [
            {"name": copy.named(shape.name)} for copy in shape.copies if copy.use == "pull"
        ],
    }
    grace = shape.pod.termination_grace_period_seconds
    return {
        "serviceAccountName": shape.name,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 30 if grace is None else grace,
        **{key: value for key, value in optional.items() if value},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": PROXY_UID,
            "runAsGroup": PROXY_UID,
            "fsGroup": PROXY_UID,
            "seccompProfile": {"type": "RuntimeDefault"},
            # A capability added to a container does not reach a process of another user than
            # root, so NET_BIND_SERVICE alone does not open ports under 1024. This sysctl does,
            # for this Pod's network only; it is on the list of the safe ones.
            "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}],
        },
        "containers": [_container(shape)],
        "volumes": [*_volumes(shape), *shape.pod.volumes],
    }


def _resources(resources: Mapping[str, Any] | None) -> Object:
    """Return resources with canonical quantities, as API servers return them, to avoid updates."""
    return {
        key: {name: canonical_or_same(quantity) for name, quantity in value.items()}
        if isinstance(value, Mapping)
        else value
        for key, value in (resources or {}).items()
    }


def _container(shape: PodShape) -> Object:
    health = shape.health_port
    options = shape.container
    optional = {
        "lifecycle": options.lifecycle,
        "ports": [
            {"containerPort": host_port.container_port, "hostPort": host_port.port}
            for host_port in options.host_ports
        ],
    }
    return {
        "name": shape.proxy,
        "image": image(shape.image, options),
        "imagePullPolicy": options.image.pull_policy or shape.image_pull_policy,
        "command": ["gatehouse", "agent", "--proxy", shape.proxy],
        "env": _environment(shape, health),
        # No other containerPorts: they only inform, and a new listener would replace the Pod.
        **{key: value for key, value in optional.items() if value},
        **_probes(health, options),
        "resources": _resources(options.resources)
        or {"requests": {"cpu": "50m", "memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": PROXY_UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": "token", "mountPath": TOKEN_DIR, "readOnly": True},
            {"name": "ca", "mountPath": CA_DIR, "readOnly": True},
            *_if_client_certificate(
                [{"name": "client", "mountPath": CLIENT_DIR, "readOnly": True}], shape
            ),
            {"name": "data", "mountPath": DATA_DIR},
            {"name": "run", "mountPath": RUN_DIR},
            *(
                {
                    "name": plus_secret.use,
                    "mountPath": f"{PLUS_DIR}/{plus_secret.use}",
                    "readOnly": True,
                }
                for plus_secret in _plus_secrets(shape)
            ),
            *options.volume_mounts,
        ],
    }


def image(default: str, options: ContainerOptions) -> str:
    """Return ``default`` with the repository and tag of ``options`` where they are set."""
    base, at, digest = default.partition("@")
    repository, colon, tag = base.rpartition(":")
    if not colon or "/" in tag:
        repository, tag = base, ""
    override = options.image
    if override.repository is None and override.tag is None:
        return default
    result_repository = override.repository or repository
    if override.tag or tag:
        return f"{result_repository}:{override.tag or tag}"
    return f"{result_repository}{at}{digest}"


def _plus_secrets(shape: PodShape) -> list[CopiedSecret]:
    return [copy for copy in shape.copies if copy.use != "pull"]


def _if_client_certificate(items: list[Object], shape: PodShape) -> list[Object]:
    """Return ``items`` if agents use a client certificate, else nothing."""
    return items if shape.channel.client_secret else []


def _probes(health: int, options: ContainerOptions) -> Object:
    readiness: Object = {
        "httpGet": {"path": "/readyz", "port": health},
        "periodSeconds": options.readiness_probe.period_seconds or 2,
        "failureThreshold": 2,
    }
    if options.readiness_probe.initial_delay_seconds:
        readiness["initialDelaySeconds"] = options.readiness_probe.initial_delay_seconds
    return {
        "readinessProbe": readiness,
        "livenessProbe": {
            "httpGet": {"path": "/livez", "port": health},
            "periodSeconds": 10,
            # 30 s: a restart interrupts traffic, a busy agent does not.
            "failureThreshold": 3,
        },
    }


def _environment(shape: PodShape, health: int) -> list[Object]:
    fields = {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "POD_UID": "metadata.uid",
        "POD_IP": "status.podIP",
    }
    values = {
        "NGINX_AGENT_COMMAND_SERVER_HOST": shape.channel.host,
        "NGINX_AGENT_COMMAND_SERVER_PORT": str(shape.channel.port),
        "NGINX_AGENT_COMMAND_AUTH_TOKENPATH": f"{TOKEN_DIR}/token",
        "NGINX_AGENT_COMMAND_TLS_CA": f"{CA_DIR}/ca.crt",
        "NGINX_AGENT_COMMAND_TLS_SERVER_NAME": shape.channel.server_name,
        "NGINX_AGENT_LABELS": (
            f"owner-name={shape.namespace}_{shape.name},owner-type={shape.owner_type}"
        ),
        "GATEHOUSE_AGENT_GATEWAY": shape.gateway,
        "GATEHOUSE_AGENT_STATE_DIR": DATA_DIR,
        "GATEHOUSE_AGENT_RUN_DIR": RUN_DIR,
        # The kubelet expands $(POD_IP), so POD_IP must precede it.
        "GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS": f"$(POD_IP):{health}",
    }
    if not shape.on_service_address:
        values["GATEHOUSE_AGENT_SHUTDOWN_DELAY_SECONDS"] = str(PRE_STOP_SECONDS)
    if (grace := shape.pod.termination_grace_period_seconds) is not None:
        values["GATEHOUSE_AGENT_DRAIN_SECONDS"] = str(_drain_seconds(shape, grace))
    if shape.time_factor != 1:
        values[TIME_FACTOR_VARIABLE] = f"{shape.time_factor:g}"
    if shape.log_level:
        values["NGINX_AGENT_LOG_LEVEL"] = shape.log_level
    if shape.channel.client_secret:
        values["NGINX_AGENT_COMMAND_TLS_CERT"] = f"{CLIENT_DIR}/tls.crt"
        values["NGINX_AGENT_COMMAND_TLS_KEY"] = f"{CLIENT_DIR}/tls.key"
    return [
        *(
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in fields.items()
        ),
        *({"name": name, "value": value} for name, value in values.items()),
    ]


def _drain_seconds(shape: PodShape, grace: int) -> int:
    """Return the part of a Pod's grace period in seconds in which connections may finish.

    The rest is for a ``preStop`` sleep, for new connections, and for the exit itself.
    """
    sleep: Any = shape.container.lifecycle
    for key in ("preStop", "sleep", "seconds"):
        sleep = sleep.get(key) if isinstance(sleep, dict) else None
    seconds = grace - PRE_STOP_SECONDS - EXIT_SECONDS
    seconds -= sleep if isinstance(sleep, int) else 0
    return min(max(seconds, 1), MAX_DRAIN_SECONDS)


def _volumes(shape: PodShape) -> list[Object]:
    token = {
        "audience": shape.channel.audience,
        "expirationSeconds": TOKEN_SECONDS,
        "path": "token",
    }
    return [
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}},
        {"name": "ca", "configMap": {"name": f"{shape.name}-agent"}},
        *_if_client_certificate(
            [{"name": "client", "secret": {"secretName": shape.channel.client_secret}}], shape
        ),
        {"name": "data", "emptyDir": {}},
        # In memory, since it holds private keys of TLS listeners.
        {"name": "run", "emptyDir": {"medium": "Memory"}},
        *(
            {"name": plus_secret.use, "secret": {"secretName": plus_secret.named(shape.name)}}
            for plus_secret in _plus_secrets(shape)
        ),
    ]
