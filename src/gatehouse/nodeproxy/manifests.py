"""Kubernetes objects that install the node proxy in a hosted cluster."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from gatehouse.nodeproxy import coredns
from gatehouse.nodeproxy.options import NodeProxyOptions

_Manifest = dict[str, Any]

PRIORITY = "system-node-critical"
LOCK = "/run/xtables.lock"


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the installation of the DaemonSet."""

    image: str
    name: str = "gatehouse-node-proxy"
    namespace: str = "kube-system"
    pull_secrets: tuple[str, ...] = ()
    kubernetes_service: Literal["", "service", "names"] = ""
    """Additional objects for the name `kubernetes`.

    `service`: the Service `kubernetes` with its EndpointSlices, for kube-apiservers whose own
    reconciler is off. `names`: zone and Corefile for CoreDNS, for an ExternalName Service.
    """
    domain: str = "cluster.local"


def manifests(options: NodeProxyOptions, installation: Installation) -> list[_Manifest]:
    """Return the objects in the order to apply them."""
    objects = [_service_account(installation), _daemon_set(options, installation)]
    if installation.kubernetes_service == "service":
        objects += master_service(options)
    if installation.kubernetes_service == "names":
        objects.append(_zone(options, installation))
    return objects


def master_service(options: NodeProxyOptions) -> list[_Manifest]:
    """Return the Service `kubernetes` and EndpointSlices with the advertised addresses."""
    ports = [{"name": "https", "port": options.port, "protocol": "TCP"}]
    families = [f"IPv{address.version}" for address in options.addresses]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default"},
        "spec": {
            "ipFamilies": families,
            "ipFamilyPolicy": "PreferDualStack" if len(families) > 1 else "SingleStack",
            "ports": [{**ports[0], "port": 443, "targetPort": options.port}],
        },
    }
    slices = [
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"kubernetes-{family.lower()}",
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": "kubernetes"},
            },
            "addressType": family,
            "endpoints": [{"addresses": [str(address)], "conditions": {"ready": True}}],
            "ports": ports,
        }
        for family, address in zip(families, options.addresses, strict=True)
    ]
    return [service, *slices]


def _zone(options: NodeProxyOptions, installation: Installation) -> _Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "coredns-kubernetes-name", "namespace": installation.namespace},
        "data": {
            "Corefile": coredns.corefile(installation.domain),
            coredns.ZONE_FILE.rpartition("/")[2]: coredns.service_zone(
                options.addresses, installation.domain
            ),
        },
    }


def _service_account(installation: Installation) -> _Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(installation),
        "automountServiceAccountToken": False,
    }


def _metadata(installation: Installation) -> _Manifest:
    return {
        "name": installation.name,
        "namespace": installation.namespace,
        "labels": _labels(installation),
    }


def _labels(installation: Installation) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "gatehouse-node-proxy",
        "app.kubernetes.io/instance": installation.name,
    }


def _daemon_set(options: NodeProxyOptions, installation: Installation) -> _Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": _metadata(installation),
        "spec": {
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": _labels(installation)},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": _labels(installation)},
                "spec": _pod(options, installation),
            },
        },
    }


def _pod(options: NodeProxyOptions, installation: Installation) -> _Manifest:
    pod: _Manifest = {
        "serviceAccountName": installation.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostNetwork": True,
        # Cluster DNS may depend on the kube-apiserver that this proxy leads to.
        "dnsPolicy": "Default",
        "priorityClassName": PRIORITY,
        "terminationGracePeriodSeconds": 40,
        "tolerations": [
            {"operator": "Exists", "effect": "NoSchedule"},
            {"operator": "Exists", "effect": "NoExecute"},
        ],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        **_containers(options, installation),
        "volumes": [{"name": "run", "emptyDir": {"medium": "Memory"}}],
    }
    if _needs_lock(options):
        # Shared with all processes on the node that change iptables rules.
        shared = {"name": "lock", "hostPath": {"path": LOCK, "type": "FileOrCreate"}}
        pod["volumes"].append(shared)
    if installation.pull_secrets:
        pod["imagePullSecrets"] = [
            {"name": pull_secret} for pull_secret in installation.pull_secrets
        ]
    return pod


def _needs_lock(options: NodeProxyOptions) -> bool:
    return options.tracking in ("auto", "iptables")


def _containers(options: NodeProxyOptions, installation: Installation) -> _Manifest:
    flags = _flags(options)
    mounts = [{"name": "run", "mountPath": str(options.directory)}]
    if _needs_lock(options):
        mounts.append({"name": "lock", "mountPath": LOCK})
    common = {"image": installation.image, "volumeMounts": mounts}
    return {
        "initContainers": [
            {
                "name": "setup",
                **common,
                "args": ["node-proxy", "setup", *flags],
                "resources": {"requests": {"cpu": "20m", "memory": "40Mi"}},
                "securityContext": _security("NET_ADMIN"),
            }
        ],
        "containers": [
            {
                "name": "node-proxy",
                **common,
                "args": ["node-proxy", "run", *flags],
                "resources": {"requests": {"cpu": "10m", "memory": "60Mi"}},
                "securityContext": _security("NET_ADMIN", "NET_BIND_SERVICE"),
                "livenessProbe": _probe(options, "/livez", 10, 3),
                "readinessProbe": _probe(options, "/readyz", 2, 3),
            }
        ],
    }


def _security(*capabilities: str) -> _Manifest:
    return {
        # Only root has the capabilities of a container.
        "runAsUser": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": list(capabilities)},
    }


def _probe(options: NodeProxyOptions, path: str, period: int, failures: int) -> _Manifest:
    host, _, port = options.probes.rpartition(":")
    return {
        "httpGet": {"host": host.strip("[]") or "127.0.0.1", "path": path, "port": int(port)},
        "periodSeconds": period,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }


def _flags(options: NodeProxyOptions) -> list[str]:
    """Return the options that differ from their defaults as flags."""
    defaults = {
        field.encode_name: field.default
        for field in msgspec.structs.fields(NodeProxyOptions)
        if not field.required
    }
    arguments = [f"--address={address}" for address in options.addresses]
    arguments.append(f"--gateway={options.gateway}")
    named = {
        "port": options.port,
        "interface": options.interface,
        "link": options.link,
        "tracking": options.tracking,
        "transport": options.transport,
        "destination": options.destination,
        "proxy": options.proxy,
        "connections": options.connections,
        "interval": options.interval,
        "probes": options.probes,
    }
    flags = {
        "link": "interface-type",
        "tracking": "conntrack",
        "connections": "max-connections",
        "interval": "check-interval",
        "probes": "health-bind-address",
    }
    arguments += [
        f"--{flags.get(name, name)}={value}"
        for name, value in named.items()
        if value != defaults[name]
    ]
    return [*arguments, "--cleanup"] if options.cleanup else arguments
