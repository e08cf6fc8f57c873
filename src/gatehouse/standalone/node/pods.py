"""From a Deployment to its Pod, and from a Pod to the environment of its process. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

Object = dict[str, Any]

MANAGED_BY = ("app.kubernetes.io/managed-by", "gatehouse")
"""Label of data planes, and of everything else that is Gatehouse's own."""

SERVICE_ANNOTATION = "gatehouse.dev/service-name"
"""Names the Service whose address is the Pod's own."""

IDENTITY = "uid"
"""File in the directory of a user's Pod: whose it is, so that a node that finds it knows."""

_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_VARIABLE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


class Condition(msgspec.Struct, frozen=True):
    """What a runner knows of its Pod's process."""

    running: bool = False
    started: bool = False
    """Whether it runs, and its startup probe said so, if it has one."""
    ready: bool = False
    restarts: int = 0
    reason: str = "ContainerCreating"
    message: str = ""
    since: str = ""
    """When the process started, RFC 3339; empty if it does not run."""


def service_of(deployment: Mapping[str, Any]) -> str:
    """Give the name of the Service whose address the Pod gets; empty if it asks for none."""
    annotations = deployment["spec"]["template"].get("metadata", {}).get("annotations") or {}
    return str(annotations.get(SERVICE_ANNOTATION, ""))


def has_service_address(pod: Mapping[str, Any]) -> bool:
    """Whether a Pod is a data plane that has its Service's address as its own."""
    metadata = pod["metadata"]
    ours = (metadata.get("labels") or {}).get(MANAGED_BY[0]) == MANAGED_BY[1]
    return ours and bool((metadata.get("annotations") or {}).get(SERVICE_ANNOTATION))


def pod_for(deployment: Mapping[str, Any], node: str) -> Object:
    """Give the Pod of a Deployment or DaemonSet. Its name follows from that and the template."""
    metadata, template = deployment["metadata"], deployment["spec"]["template"]
    shape = hashlib.sha256(msgspec.json.encode(template, order="sorted")).hexdigest()[:10]
    identity = hashlib.sha256(f"{metadata['uid']}/{shape}".encode()).hexdigest()[:5]
    # 253 is the longest name; what is cut off is in the hashes already.
    name = f"{metadata['name'][:230]}-{shape}-{identity}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": {**template["metadata"].get("labels", {}), "pod-template-hash": shape},
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
    found = {**pod, "metadata": metadata}
    return {**found, "status": stored["status"]} if "status" in stored else found


def directory(node: Path, namespace: str, name: str) -> Path:
    """Give the directory of a Pod's files. Short: NGINX's sockets in it may have 107 bytes."""
    return node / "pods" / hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()[:12]


def log_file(node: Path, namespace: str, name: str) -> Path:
    """Give the file that a Pod's process writes to."""
    return directory(node, namespace, name) / "log"


def environment(pod: Mapping[str, Any], address: str) -> dict[str, str]:
    """Give the container's environment: values, field references, ``$(NAME)`` expanded.

    As the Kubernetes API says of ``env``: a name refers to what stands before it, ``$$`` is ``$``,
    and an unknown name stays as it is written.
    """
    found: dict[str, str] = {}
    for entry in pod["spec"]["containers"][0].get("env") or ():
        path = _field_path(entry)
        value = _field(pod, address, path) or "" if path else expand(entry.get("value"), found)
        found[entry["name"]] = value
    return found


def unserved(pod: Mapping[str, Any]) -> str:
    """Name the first part of a container's environment that this node cannot give; or nothing."""
    container = pod["spec"]["containers"][0]
    if container.get("envFrom"):
        return "envFrom is not served by this node"
    for entry in container.get("env") or ():
        path = _field_path(entry)
        if entry.get("valueFrom") and (not path or _field(pod, "", path) is None):
            source = f"field {path}" if path else next(iter(entry["valueFrom"]))
            return f"env {entry['name']}: {source} is not served by this node"
    return ""


def _field_path(entry: Mapping[str, Any]) -> str:
    found = ((entry.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
    return str(found or "")


def _field(pod: Mapping[str, Any], address: str, path: str) -> str | None:
    """Give the value of a field of a Pod; None for one that is not served."""
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
    return fields.get(path)


def expand(value: str | None, known: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` by what is known; ``$$`` is ``$``."""

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return known.get(match[1], match[0])

    return _VARIABLE.sub(replace, value or "")


def relocate(value: str, mounts: Mapping[str, str]) -> str:
    """Replace the mount path that ``value`` begins with by the directory that stands for it."""
    for path in sorted(mounts, key=len, reverse=True):
        if value == path or value.startswith(f"{path}/"):
            return mounts[path] + value[len(path) :]
    return value


def url(container: Mapping[str, Any], asked: Mapping[str, Any], address: str) -> str:
    """Give the URL of an ``httpGet``; its port may be the name of one of the container's."""
    number = port(container, asked["port"])
    scheme = str(asked.get("scheme", "http")).lower()
    return f"{scheme}://{asked.get('host') or address}:{number}{asked.get('path', '/')}"


def port(container: Mapping[str, Any], asked: int | str) -> int | str:
    """Give the number of a port, which may be the name of one of the container's."""
    numbers = {each.get("name"): each["containerPort"] for each in container.get("ports") or ()}
    found: int | str = numbers.get(asked, asked)
    return found


def grace(pod: Mapping[str, Any], default: float) -> float:
    """Give the seconds that a Pod has to end."""
    return float(pod["spec"].get("terminationGracePeriodSeconds", default))


def pod_status(pod: Mapping[str, Any], address: str, state: Condition, now: datetime) -> Object:
    """Give the status of the Pod as a kubelet would; times are kept while nothing turned."""
    container = pod["spec"]["containers"][0]
    moment = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    before = {c["type"]: c for c in pod.get("status", {}).get("conditions", ())}
    waiting = {"reason": state.reason, "message": state.message}
    wanted = {
        "PodScheduled": True,
        "Initialized": True,
        "ContainersReady": state.ready,
        "Ready": state.ready,
    }
    return {
        "phase": "Running" if state.running else "Pending",
        **({"hostIP": address, "podIP": address, "podIPs": [{"ip": address}]} if address else {}),
        "startTime": pod.get("status", {}).get("startTime") or moment,
        "conditions": [
            _condition(kind, holds, before.get(kind), moment) for kind, holds in wanted.items()
        ],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": state.ready,
                "started": state.started,
                "restartCount": state.restarts,
                "state": {"running": {"startedAt": state.since}}
                if state.running
                else {"waiting": waiting},
            }
        ],
    }


def known_condition(pod: Mapping[str, Any], now: datetime) -> Condition:
    """Give what a Pod's status says of its process, for a node that finds that running."""
    status = _container_status(pod)
    running = (status.get("state") or {}).get("running") or {}
    return Condition(
        running=True,
        started=bool(running and status.get("started")),
        ready=bool(running and status.get("ready")),
        restarts=restarts(pod),
        since=str(running.get("startedAt") or now.strftime("%Y-%m-%dT%H:%M:%SZ")),
    )


def restarts(pod: Mapping[str, Any]) -> int:
    """Give how often a Pod's process was started again, as its status says."""
    return int(_container_status(pod).get("restartCount", 0))


def _container_status(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(
        iter((pod.get("status") or {}).get("containerStatuses") or ()), {}
    )
    return found


def unscheduled_status(pod: Mapping[str, Any], message: str, now: datetime) -> Object:
    """Give the status of a Pod that this node would take if the machine allowed it."""
    status = pod.get("status") or {}
    before = {c["type"]: c for c in status.get("conditions") or ()}
    moment = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = _condition("PodScheduled", False, before.get("PodScheduled"), moment)
    said = {"reason": "Unschedulable", "message": message}
    return {**status, "phase": "Pending", "conditions": [condition | said]}


def deployment_status(deployment: Mapping[str, Any], ready: bool, now: datetime) -> Object:
    """Give the status of a Deployment of which this node runs one replica."""
    asked = deployment["spec"].get("replicas", 1)
    running = min(asked, 1)
    enough = ready or asked == 0
    moment = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    before = {c["type"]: c for c in deployment.get("status", {}).get("conditions", ())}
    available = _condition("Available", enough, before.get("Available"), moment)
    available["reason"] = "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"
    if asked > 1:
        available["message"] = f"one machine runs one replica of the {asked} asked for"
    return {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": running,
        "updatedReplicas": running,
        "readyReplicas": int(ready),
        "availableReplicas": int(ready),
        "unavailableReplicas": asked - int(ready),
        "conditions": [available],
    }


def daemon_set_status(daemon_set: Mapping[str, Any], ready: bool) -> Object:
    """Give the status of a DaemonSet, of which this node, the only one, runs its Pod."""
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


def _condition(kind: str, holds: bool, before: Mapping[str, Any] | None, moment: str) -> Object:
    status = "True" if holds else "False"
    same = before is not None and before.get("status") == status
    changed = before["lastTransitionTime"] if same and before else moment
    return {"type": kind, "status": status, "lastTransitionTime": changed}
