"""Schema of the Kubernetes objects of a data plane, which both kinds of parameters have."""

from __future__ import annotations

import copy

from openapi_schemas import BOOLEAN, COUNT, LOOSE, STRING, Schema, fields, one_of, several

_PORT = COUNT | {"minimum": 1, "maximum": 65535}
_PERCENT = COUNT | {"minimum": 1, "maximum": 100}
_SHARE: Schema = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, STRING]}
_PATCHES = several(
    # No rule checks `value`: a field without a type does not exist in CEL. The front end does.
    fields(
        "value",
        type=one_of("StrategicMerge", "Merge", "JSONPatch") | {"default": "StrategicMerge"},
        value={"x-kubernetes-preserve-unknown-fields": True},
    ),
    most=16,
)
_POD = fields(
    terminationGracePeriodSeconds=COUNT,
    affinity=LOOSE,
    nodeSelector={"type": "object", "additionalProperties": STRING},
    tolerations=several(LOOSE, most=64),
    volumes=several(LOOSE, most=64),
    topologySpreadConstraints=several(LOOSE, most=16),
)
_CONTAINER = fields(
    image=fields(
        repository=STRING,
        tag=STRING,
        pullPolicy=one_of("Always", "Never", "IfNotPresent"),
    ),
    resources=LOOSE,
    lifecycle=LOOSE,
    readinessProbe=fields(initialDelaySeconds=COUNT, periodSeconds=COUNT | {"minimum": 1}),
    hostPorts=several(fields("port containerPort", port=_PORT, containerPort=_PORT), most=64),
    volumeMounts=several(LOOSE, most=64),
)
WORKLOAD = fields(
    "",
    (
        "!has(self.deployment) || !has(self.daemonSet)",
        "deployment and daemonSet exclude each other",
    ),
    deployment=fields(
        replicas=COUNT,
        autoscaling=fields(
            "enable maxReplicas",
            (
                "!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",
                "minReplicas must not be more than maxReplicas",
            ),
            enable=BOOLEAN,
            minReplicas=COUNT | {"minimum": 1},
            maxReplicas=COUNT | {"minimum": 1},
            targetCPUUtilizationPercentage=_PERCENT,
            targetMemoryUtilizationPercentage=_PERCENT,
            metrics=several(LOOSE, most=16),
            behavior=LOOSE,
        ),
        podDisruptionBudget=fields(
            "",
            (
                "has(self.minAvailable) != has(self.maxUnavailable)",
                "needs one of minAvailable and maxUnavailable",
            ),
            minAvailable=_SHARE,
            maxUnavailable=_SHARE,
            unhealthyPodEvictionPolicy=one_of("IfHealthyBudget", "AlwaysAllow"),
        ),
        pod=_POD,
        container=_CONTAINER,
        patches=_PATCHES,
    ),
    daemonSet=fields(pod=_POD, container=_CONTAINER, patches=_PATCHES),
    service=fields(
        type=one_of("LoadBalancer", "ClusterIP", "NodePort"),
        externalTrafficPolicy=one_of("Cluster", "Local"),
        loadBalancerIP=STRING,
        loadBalancerClass=STRING,
        loadBalancerSourceRanges=several(STRING, most=64),
        nodePorts=several(
            fields("port listenerPort", port=_PORT, listenerPort=_PORT),
            ("self.all(a, self.exists_one(b, a.port == b.port))", "a port may be named once"),
            most=64,
        ),
        patches=_PATCHES,
    ),
    networkPolicy=fields(
        enable=BOOLEAN,
        metricsFrom=several(LOOSE, most=64),
        egressTo=several(LOOSE, most=64),
        patches=_PATCHES,
    ),
)
"""Schema of the Kubernetes objects of a data plane."""


def with_unserved(workload: Schema) -> Schema:
    """Add fields of NginxProxy that no data plane serves, so that its condition names them."""
    result = copy.deepcopy(workload)
    for kind in ("deployment", "daemonSet"):
        properties = result["properties"][kind]["properties"]
        properties["wafContainers"] = LOOSE
        container = properties["container"] = copy.deepcopy(properties["container"])
        container["properties"]["debug"] = BOOLEAN
        container["properties"]["readinessProbe"]["properties"] |= {
            "port": _PORT,
            "path": {"type": "string", "pattern": r"^/[a-zA-Z0-9/_\-\.~]*$"},
            "expose": BOOLEAN,
        }
    return result
