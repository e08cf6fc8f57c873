"""Defaults of built-in kinds that depend on other fields. Others are in :mod:`constraints`."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from kube_base.types.objects import Object


def namespace(obj: Object) -> None:
    """Set the name as a label, for use by selectors."""
    labels = obj["metadata"].get("labels") or {}
    obj["metadata"]["labels"] = labels
    labels["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")


def default_service(obj: Object) -> None:
    """Set target ports to the ports, and defaults that depend on the type."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return
    for port in spec.get("ports") or ():
        if isinstance(port, dict) and port.get("targetPort") in (None, "", 0) and "port" in port:
            port["targetPort"] = port["port"]
    if spec.get("type") == "ExternalName":
        spec.pop("internalTrafficPolicy", None)
        return
    if spec.get("type") in ("NodePort", "LoadBalancer"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec.get("type") == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    if spec.get("sessionAffinity") == "ClientIP":
        spec.setdefault("sessionAffinityConfig", {"clientIP": {"timeoutSeconds": 10800}})


def merge_string_data(obj: Object) -> None:
    """Merge `stringData` into `data`."""
    texts = obj.pop("stringData", None)
    if isinstance(texts, dict) and texts:
        encoded = {
            key: base64.b64encode(text.encode()).decode()
            for key, text in texts.items()
            if isinstance(text, str)
        }
        obj["data"] = {**(obj.get("data") or {}), **encoded}
    for key, value in (obj.get("data") or {}).items():
        if value is None:
            obj["data"][key] = ""


def decode_base64(value: Any) -> bytes | None:
    """Decode a base64 text; None if it is invalid."""
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        return None


def _pod_spec(spec: Any) -> None:
    """Set defaults of a Pod spec. Images with a mutable tag are always pulled."""
    if not isinstance(spec, dict):
        return
    spec.setdefault("securityContext", {})
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for volume in spec.get("volumes") or ():
        if isinstance(volume, dict) and set(volume) == {"name"}:
            volume["emptyDir"] = {}
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind) or ():
            if not isinstance(container, dict):
                continue
            image = str(container.get("image", ""))
            tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
            moving = tag in ("", "latest") and "@" not in image
            container.setdefault("imagePullPolicy", "Always" if moving else "IfNotPresent")
            for name in ("livenessProbe", "readinessProbe", "startupProbe"):
                probe = container.get(name)
                if isinstance(probe, dict) and isinstance(probe.get("httpGet"), dict):
                    probe["httpGet"].setdefault("path", "/")


def default_pod(obj: Object) -> None:
    """Set defaults of a Pod, such as its ServiceAccount."""
    _pod_spec(obj.get("spec"))
    spec = obj.get("spec")
    if isinstance(spec, dict):
        spec.setdefault("enableServiceLinks", True)
        spec.setdefault("serviceAccountName", "default")
        spec.setdefault("serviceAccount", spec["serviceAccountName"])


def deployment(obj: Object) -> None:
    """Set defaults of a Deployment. A rolling update replaces a quarter of the Pods at a time."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return
    strategy = spec.setdefault("strategy", {})
    if isinstance(strategy, dict):
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            if isinstance(rolling, dict):
                rolling.setdefault("maxUnavailable", "25%")
                rolling.setdefault("maxSurge", "25%")
    _pod_spec((spec.get("template") or {}).get("spec"))


def default_workload(obj: Object) -> None:
    """Set defaults of a Pod template."""
    spec = obj.get("spec")
    if isinstance(spec, dict):
        _pod_spec((spec.get("template") or {}).get("spec"))


def pod_template(obj: Object) -> None:
    """Set defaults of the Pod of a PodTemplate."""
    _pod_spec((obj.get("template") or {}).get("spec"))


def replication_controller(obj: Object) -> None:
    """Set defaults of a ReplicationController: selector and labels are those of its template."""
    default_workload(obj)
    spec = obj.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    labels = ((template or {}).get("metadata") or {}).get("labels")
    if labels and isinstance(spec, dict) and all(isinstance(one, str) for one in labels.values()):
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        if not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(labels)


def daemon_set(obj: Object) -> None:
    """Set defaults of a DaemonSet. A rolling update replaces one Pod at a time."""
    spec = obj.get("spec")
    if isinstance(spec, dict):
        update = spec.setdefault("updateStrategy", {})
        if isinstance(update, dict):
            update.setdefault("type", "RollingUpdate")
            if update["type"] == "RollingUpdate":
                update.setdefault("rollingUpdate", {"maxUnavailable": 1, "maxSurge": 0})
    default_workload(obj)


def cron_job(obj: Object) -> None:
    """Set defaults of the Pod template of the Jobs of a CronJob."""
    spec = obj.get("spec")
    template = spec.get("jobTemplate") if isinstance(spec, dict) else None
    if isinstance(template, dict):
        default_workload(template)


def role_binding(obj: Object) -> None:
    """Set the default API groups of role and subjects."""
    reference = obj.get("roleRef")
    if isinstance(reference, dict) and not reference.get("apiGroup"):
        reference["apiGroup"] = "rbac.authorization.k8s.io"
    for subject in obj.get("subjects") or ():
        if isinstance(subject, dict) and subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", "rbac.authorization.k8s.io")


def default_crd(obj: Object) -> None:
    """Set the names of a CRD that follow from its kind."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return
    names = spec.get("names")
    if isinstance(names, dict) and isinstance(names.get("kind"), str):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})


def default_node(obj: Object) -> None:
    """Set the list of Pod networks to the single one, and what Pods may use to the capacity."""
    spec, status = obj.get("spec"), obj.get("status")
    if isinstance(spec, dict) and spec.get("podCIDR"):
        spec.setdefault("podCIDRs", [spec["podCIDR"]])
    if isinstance(status, dict) and isinstance(status.get("capacity"), dict):
        status.setdefault("allocatable", dict(status["capacity"]))
