"""The Pod of a data plane: an agent that owns an NGINX or an Envoy. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from gatehouse.agent.timeouts import MAX_DRAIN_SECONDS
from gatehouse.apis.data_plane_workload import ContainerOptions, PodOptions
from gatehouse.apiserver.quantities import canonical_or_same
from gatehouse.controller.provisioner.copied_secrets import CopiedSecret

TOKEN_DIR = "/var/run/secrets/gatehouse"  # noqa: S105 (a directory)
CA_DIR = "/etc/gatehouse/ca"
CLIENT_DIR = "/etc/gatehouse/client"
PLUS_DIR = "/etc/gatehouse/plus"
"""Below it a directory for each use of a copied Secret."""
DATA_DIR = "/var/lib/gatehouse"
RUN_DIR = "/var/run/gatehouse"

HEALTH_PORT = 9113
"""Where the agent answers /metrics, /readyz and /livez, unless a listener has that port."""

TOKEN_SECONDS = 3600
"""Life of the agent's token; a kubelet replaces it at 80 % of that."""

WELCOME_SECONDS, ENDING_SECONDS = 3, 2
"""For which a Pod that is to end takes new connections, until every node has heard of it; and which
it needs for its end once connections have finished."""

PROXY_UID = 101
"""User and group of NGINX, and of Envoy, in their own images."""

Proxy = Literal["nginx", "envoy"]

Object = dict[str, Any]


class AgentChannel(msgspec.Struct, frozen=True):
    """Where a data plane's agent finds its control plane, and what proves each to the other."""

    host: str
    port: int
    server_name: str
    """The name that must be in the control plane's certificate."""
    audience: str
    """For whom the agent's token is made."""
    client_secret: str = ""
    """The Secret with the certificate that the agent shows; empty: it shows none."""


class PodShape(msgspec.Struct, frozen=True):
    """What differs from one Gateway's Pods to another's."""

    name: str
    """Of the Deployment, the Service and the ServiceAccount."""
    namespace: str
    ports: tuple[int, ...]
    """The listeners' ports."""
    proxy: Proxy
    image: str
    image_pull_policy: str
    channel: AgentChannel
    gateway: str
    """Name of the Gateway, for the labels of measurements."""
    owner_type: Literal["Deployment", "DaemonSet"] = "Deployment"
    log_level: str = ""
    """Of the agent; empty: its default."""
    pod: PodOptions = PodOptions()
    container: ContainerOptions = ContainerOptions()
    copies: tuple[CopiedSecret, ...] = ()
    on_service_address: bool = False
    """Nothing stands before the Pod that would have to hear of its end."""


def health_port(ports: tuple[int, ...]) -> int:
    """Give the first port from 9113 on that no listener has: both bind the Pod's address."""
    port = HEALTH_PORT
    while port in ports:
        port += 1
    return port


def scrape_annotations(ports: tuple[int, ...]) -> dict[str, str]:
    """Give the annotations by which a Prometheus finds the measurements of Pods."""
    return {"prometheus.io/scrape": "true", "prometheus.io/port": str(health_port(ports))}


def pod_spec(shape: PodShape) -> Object:
    """Give the ``spec`` of the Pod template."""
    asked = {
        "affinity": shape.pod.affinity,
        "nodeSelector": shape.pod.node_selector,
        "tolerations": [*shape.pod.tolerations],
        "topologySpreadConstraints": [*shape.pod.topology_spread_constraints],
        "imagePullSecrets": [
            {"name": each.named(shape.name)} for each in shape.copies if each.use == "pull"
        ],
    }
    grace = shape.pod.termination_grace_period_seconds
    return {
        "serviceAccountName": shape.name,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 30 if grace is None else grace,
        **{key: value for key, value in asked.items() if value},
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


def _resources(asked: Mapping[str, Any] | None) -> Object:
    """Give resources as API servers answer them: what is there is not to be taken for another."""
    return {
        key: {name: canonical_or_same(each) for name, each in value.items()}
        if isinstance(value, Mapping)
        else value
        for key, value in (asked or {}).items()
    }


def _container(shape: PodShape) -> Object:
    health = health_port(shape.ports)
    options = shape.container
    asked = {
        "lifecycle": options.lifecycle,
        "ports": [
            {"containerPort": each.container_port, "hostPort": each.port}
            for each in options.host_ports
        ],
    }
    return {
        "name": shape.proxy,
        "image": image(shape.image, options),
        "imagePullPolicy": options.image.pull_policy or shape.image_pull_policy,
        "command": ["gatehouse", "agent", "--proxy", shape.proxy],
        "env": _environment(shape, health),
        # No other containerPorts: they only inform, and a new listener would replace the Pod.
        **{key: value for key, value in asked.items() if value},
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
            *_client([{"name": "client", "mountPath": CLIENT_DIR, "readOnly": True}], shape),
            {"name": "data", "mountPath": DATA_DIR},
            {"name": "run", "mountPath": RUN_DIR},
            *(
                {"name": each.use, "mountPath": f"{PLUS_DIR}/{each.use}", "readOnly": True}
                for each in _of_plus(shape)
            ),
            *options.volume_mounts,
        ],
    }


def image(usual: str, options: ContainerOptions) -> str:
    """Give the image: the usual one, with another repository or tag where those are asked for."""
    base, at, digest = usual.partition("@")
    repository, colon, tag = base.rpartition(":")
    if not colon or "/" in tag:
        repository, tag = base, ""
    asked = options.image
    if asked.repository is None and asked.tag is None:
        return usual
    found = asked.repository or repository
    if asked.tag or tag:
        return f"{found}:{asked.tag or tag}"
    return f"{found}{at}{digest}"


def _of_plus(shape: PodShape) -> list[CopiedSecret]:
    return [each for each in shape.copies if each.use != "pull"]


def _client(made: list[Object], shape: PodShape) -> list[Object]:
    """Give what is made only for agents that show a certificate."""
    return made if shape.channel.client_secret else []


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
            # Half a minute: a restart interrupts traffic, which a busy agent does not.
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
        # $(POD_IP) is replaced where the Pod is started, so POD_IP must stand before it.
        "GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS": f"$(POD_IP):{health}",
    }
    if not shape.on_service_address:
        values["GATEHOUSE_AGENT_SHUTDOWN_DELAY_SECONDS"] = str(WELCOME_SECONDS)
    if (grace := shape.pod.termination_grace_period_seconds) is not None:
        values["GATEHOUSE_AGENT_DRAIN_SECONDS"] = str(_drain(shape, grace))
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


def _drain(shape: PodShape, grace: int) -> int:
    """Give the seconds of a Pod's grace in which connections may finish.

    The others are for a ``preStop`` that sleeps, for new connections, and for the end itself.
    """
    slept: Any = shape.container.lifecycle
    for key in ("preStop", "sleep", "seconds"):
        slept = slept.get(key) if isinstance(slept, dict) else None
    left = grace - WELCOME_SECONDS - ENDING_SECONDS
    left -= slept if isinstance(slept, int) else 0
    return min(max(left, 1), MAX_DRAIN_SECONDS)


def _volumes(shape: PodShape) -> list[Object]:
    token = {
        "audience": shape.channel.audience,
        "expirationSeconds": TOKEN_SECONDS,
        "path": "token",
    }
    return [
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}},
        {"name": "ca", "configMap": {"name": f"{shape.name}-agent"}},
        *_client(
            [{"name": "client", "secret": {"secretName": shape.channel.client_secret}}], shape
        ),
        {"name": "data", "emptyDir": {}},
        # In memory, since key material of TLS listeners passes through it.
        {"name": "run", "emptyDir": {"medium": "Memory"}},
        *(
            {"name": each.use, "secret": {"secretName": each.named(shape.name)}}
            for each in _of_plus(shape)
        ),
    ]
