"""Pods of workloads, environments of their processes, and statuses. No I/O."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from kube_base.types.objects import Object

_MANAGED_BY = ("app.kubernetes.io/managed-by", "gatehouse")
"""Label of data planes and of all other objects managed by Gatehouse."""

_SERVICE_ANNOTATION = "gatehouse.dev/service-name"
"""Annotation of a data plane's Pod: Service whose address the Pod uses itself."""

_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_VARIABLE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


class ProcessState(msgspec.Struct, frozen=True):
    """State of a Pod's process."""

    running: bool = False
    ready: bool = False
    restarts: int = 0
    reason: str = "ContainerCreating"
    message: str = ""
    since: str = ""
    """Start time of the process (RFC 3339); empty if it does not run."""


def service_of(deployment: Mapping[str, Any]) -> str:
    """Return the name of the Service whose address the Pod uses; empty if none."""
    annotations = deployment["spec"]["template"].get("metadata", {}).get("annotations") or {}
    return str(annotations.get(_SERVICE_ANNOTATION, ""))


def is_managed_object(obj: Mapping[str, Any]) -> bool:
    """Return whether an object has the label of objects managed by Gatehouse."""
    return (obj["metadata"].get("labels") or {}).get(_MANAGED_BY[0]) == _MANAGED_BY[1]


def has_service_address(pod: Mapping[str, Any]) -> bool:
    """Return whether a Pod is a data plane that uses the address of its Service."""
    annotations = pod["metadata"].get("annotations") or {}
    return is_managed_object(pod) and bool(annotations.get(_SERVICE_ANNOTATION))


def pod_for(deployment: Mapping[str, Any], node: str) -> Object:
    """Return the Pod of a Deployment or DaemonSet. Its name derives from owner and template."""
    metadata, template = deployment["metadata"], deployment["spec"]["template"]
    template_hash = hashlib.sha256(msgspec.json.encode(template, order="sorted")).hexdigest()[:10]
    identity = hashlib.sha256(f"{metadata['uid']}/{template_hash}".encode()).hexdigest()[:5]
    # Names have at most 253 characters; the hashes include the rest.
    name = f"{metadata['name'][:230]}-{template_hash}-{identity}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": {
                **template["metadata"].get("labels", {}),
                "pod-template-hash": template_hash,
            },
            "annotations": dict(template["metadata"].get("annotations") or {}),
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": deployment.get("kind", "Deployment"),
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {**template["spec"], "nodeName": node},
    }


def with_identity(pod: Object, stored: Mapping[str, Any]) -> Object:
    """Return ``pod``, made from a workload, with identity and status of the stored Pod of its name.

    Others than the node may have written the stored Pod. Whatever decides what runs, such as
    command, probes, volumes and the metadata that the environment refers to, is taken from ``pod``.
    """
    metadata = {**stored["metadata"], **pod["metadata"]}
    result = {**pod, "metadata": metadata}
    return {**result, "status": stored["status"]} if "status" in stored else result


def directory(node: Path, namespace: str, name: str) -> Path:
    """Return the directory of a Pod. Its path is short: socket paths have at most 107 bytes."""
    return node / "pods" / hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()[:12]


def log_file(node: Path, namespace: str, name: str) -> Path:
    """Return the log file of a Pod's process."""
    return directory(node, namespace, name) / "log"


def container_environment(pod: Mapping[str, Any], address: str) -> dict[str, str]:
    """Return the container's environment: values, field references, ``$(NAME)`` expanded.

    As in the Kubernetes API of ``env``: a name refers to earlier entries, ``$$`` is ``$``, and
    references to unknown names stay unchanged.
    """
    variables: dict[str, str] = {}
    for entry in pod["spec"]["containers"][0].get("env") or ():
        path = _field_path(entry)
        value = _field(pod, address, path) if path else expand(entry.get("value"), variables)
        variables[entry["name"]] = value
    return variables


def _field_path(entry: Mapping[str, Any]) -> str:
    path = ((entry.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
    return str(path or "")


def _field(pod: Mapping[str, Any], address: str, path: str) -> str:
    """Return the value of a field of a Pod; empty if the field is not supported."""
    metadata = pod["metadata"]
    if match := _FIELD.fullmatch(path):
        return str((metadata.get(match[1]) or {}).get(match[2], ""))
    fields = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata.get("uid", ""),
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", "default"),
        "status.podIP": address,
        "status.podIPs": address,
    }
    return str(fields.get(path, ""))


def expand(value: str | None, known: Mapping[str, str]) -> str:
    """Expand ``$(NAME)`` for known names; ``$$`` is ``$``."""

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return known.get(match[1], match[0])

    return _VARIABLE.sub(replace, value or "")


def relocate(value: str, mounts: Mapping[str, str]) -> str:
    """Replace a mount path at the start of ``value`` by the directory of the volume."""
    for path in sorted(mounts, key=len, reverse=True):
        if value == path or value.startswith(f"{path}/"):
            return mounts[path] + value[len(path) :]
    return value


def grace(pod: Mapping[str, Any], default: float) -> float:
    """Return the termination grace period of a Pod in seconds."""
    return float(pod["spec"].get("terminationGracePeriodSeconds", default))


def pre_stop_seconds(pod: Mapping[str, Any]) -> float:
    """Return the seconds of ``lifecycle.preStop.sleep``; other hooks are not supported."""
    hook: Any = pod["spec"]["containers"][0].get("lifecycle")
    for key in ("preStop", "sleep", "seconds"):
        hook = (hook or {}).get(key)
    return float(hook or 0)


def pod_status(pod: Mapping[str, Any], address: str, state: ProcessState, now: datetime) -> Object:
    """Return the status of the Pod as a kubelet would. Times stay until conditions change."""
    container = pod["spec"]["containers"][0]
    timestamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    before = {c["type"]: c for c in pod.get("status", {}).get("conditions", ())}
    waiting = {"reason": state.reason, "message": state.message}
    conditions = {
        "PodScheduled": True,
        "Initialized": True,
        "ContainersReady": state.ready,
        "Ready": state.ready,
    }
    return {
        "phase": "Running" if state.running else "Pending",
        **({"hostIP": address, "podIP": address, "podIPs": [{"ip": address}]} if address else {}),
        "startTime": pod.get("status", {}).get("startTime") or timestamp,
        "conditions": [
            _condition(kind, holds, before.get(kind), timestamp)
            for kind, holds in conditions.items()
        ],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": state.ready,
                "started": state.running,
                "restartCount": state.restarts,
                "state": {"running": {"startedAt": state.since}}
                if state.running
                else {"waiting": waiting},
            }
        ],
    }


def known_condition(pod: Mapping[str, Any], now: datetime) -> ProcessState:
    """Return the state in a Pod's status, for a node that adopts the running process."""
    status = _container_status(pod)
    running = (status.get("state") or {}).get("running") or {}
    return ProcessState(
        running=True,
        ready=bool(running and status.get("ready")),
        restarts=restarts(pod),
        since=str(running.get("startedAt") or now.strftime("%Y-%m-%dT%H:%M:%SZ")),
    )


def restarts(pod: Mapping[str, Any]) -> int:
    """Return the restart count in a Pod's status."""
    return int(_container_status(pod).get("restartCount", 0))


def _container_status(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    status: Mapping[str, Any] = next(
        iter((pod.get("status") or {}).get("containerStatuses") or ()), {}
    )
    return status


def deployment_status(
    deployment: Mapping[str, Any], ready: bool, now: datetime, ignored: Sequence[str] = ()
) -> Object:
    """Return the status of a Deployment of which this node runs one replica.

    ``ignored``: fields of its container that this node does not support.
    """
    replicas = deployment["spec"].get("replicas", 1)
    running = min(replicas, 1)
    is_available = ready or replicas == 0
    timestamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    before = {c["type"]: c for c in deployment.get("status", {}).get("conditions", ())}
    available = _condition("Available", is_available, before.get("Available"), timestamp)
    available["reason"] = (
        "MinimumReplicasAvailable" if is_available else "MinimumReplicasUnavailable"
    )
    messages = [f"one machine runs only one of {replicas} replicas"] if replicas > 1 else []
    messages += [f"{field}: not supported on one machine" for field in ignored]
    if messages:
        available["message"] = "; ".join(messages)
    return {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": running,
        "updatedReplicas": running,
        "readyReplicas": int(ready),
        "availableReplicas": int(ready),
        "unavailableReplicas": replicas - int(ready),
        "conditions": [available],
    }


def daemon_set_status(daemon_set: Mapping[str, Any], ready: bool) -> Object:
    """Return the status of a DaemonSet, whose Pod runs on this only node."""
    return {
        "observedGeneration": daemon_set["metadata"].get("generation", 0),
        "currentNumberScheduled": 1,
        "desiredNumberScheduled": 1,
        "updatedNumberScheduled": 1,
        "numberMisscheduled": 0,
        "numberReady": int(ready),
        "numberAvailable": int(ready),
        "numberUnavailable": int(not ready),
    }


def _condition(kind: str, holds: bool, before: Mapping[str, Any] | None, timestamp: str) -> Object:
    status = "True" if holds else "False"
    same = before is not None and before.get("status") == status
    changed = before["lastTransitionTime"] if same and before else timestamp
    return {"type": kind, "status": status, "lastTransitionTime": changed}
