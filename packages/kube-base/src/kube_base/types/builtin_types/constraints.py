"""Ranges, choices and defaults of built-in kinds, which the table of types does not have.

Keys are `type.field`; values are merged into the schema of the field. Only defaults and checks of
Kubernetes itself (https://kubernetes.io/docs/reference/kubernetes-api).
"""

from __future__ import annotations

from typing import Any

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

_OPTIONAL: dict[str, Any] = {"nullable": True}
"""For lists that are marked as required, although Kubernetes accepts their absence."""
_PORT = {"minimum": 1, "maximum": 65535}
_PROTOCOL = {"enum": ["TCP", "UDP", "SCTP"], "default": "TCP"}
_WEIGHT = {"minimum": 1, "maximum": 100}
_SCOPE = {"enum": ["Cluster", "Namespaced", "*"], "default": "*"}
_COUNT = {"minimum": 0}
_SCHEME = {"enum": ["HTTP", "HTTPS"], "default": "HTTP"}


def _choice(*values: str, default: str | None = None) -> dict[str, Any]:
    return {"enum": list(values)} | ({"default": default} if default is not None else {})


LIMITS: dict[str, dict[str, Any]] = {
    "core.v1.ServicePort.port": _PORT,
    "core.v1.ServicePort.protocol": _PROTOCOL,
    "core.v1.ServicePort.nodePort": {"minimum": 0, "maximum": 65535},
    "core.v1.ServicePort.name": {"pattern": DNS_LABEL, "maxLength": 63},
    "core.v1.ServiceSpec.type": _choice(
        "ClusterIP", "NodePort", "LoadBalancer", "ExternalName", default="ClusterIP"
    ),
    "core.v1.ServiceSpec.sessionAffinity": _choice("None", "ClientIP", default="None"),
    "core.v1.ServiceSpec.ipFamilyPolicy": _choice(
        "SingleStack", "PreferDualStack", "RequireDualStack"
    ),
    "core.v1.ServiceSpec.externalTrafficPolicy": _choice("Cluster", "Local"),
    "core.v1.ServiceSpec.internalTrafficPolicy": _choice("Cluster", "Local", default="Cluster"),
    "core.v1.EndpointPort.protocol": _PROTOCOL,
    "core.v1.EndpointPort.port": _PORT,
    "core.v1.Secret.type": {"default": "Opaque"},
    "core.v1.ContainerPort.containerPort": {**_PORT, "default": None},
    "core.v1.ContainerPort.hostPort": {"minimum": 0, "maximum": 65535},
    "core.v1.ContainerPort.protocol": _PROTOCOL,
    "core.v1.Container.terminationMessagePath": {"default": "/dev/termination-log"},
    "core.v1.Container.terminationMessagePolicy": _choice(
        "File", "FallbackToLogsOnError", default="File"
    ),
    "core.v1.Container.imagePullPolicy": _choice("Always", "IfNotPresent", "Never"),
    "core.v1.Container.name": {"pattern": DNS_LABEL, "maxLength": 63},
    "core.v1.PodSpec.containers": {"minItems": 1},
    "core.v1.PodSpec.restartPolicy": _choice("Always", "OnFailure", "Never", default="Always"),
    "core.v1.PodSpec.dnsPolicy": _choice(
        "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None", default="ClusterFirst"
    ),
    "core.v1.PodSpec.activeDeadlineSeconds": {"minimum": 1, "maximum": 2**31 - 1},
    "core.v1.PodSpec.terminationGracePeriodSeconds": {"default": 30},
    "core.v1.PodSpec.schedulerName": {"default": "default-scheduler"},
    "core.v1.PersistentVolumeClaimSpec.volumeMode": _choice(
        "Block", "Filesystem", default="Filesystem"
    ),
    "core.v1.ReplicationControllerSpec.replicas": {"default": 1, "minimum": 0},
    "core.v1.HTTPGetAction.scheme": _SCHEME,
    "core.v1.ConfigMapVolumeSource.defaultMode": {"default": 420},
    "core.v1.SecretVolumeSource.defaultMode": {"default": 420},
    "core.v1.ProjectedVolumeSource.defaultMode": {"default": 420},
    "core.v1.GRPCAction.port": _PORT,
    "core.v1.ISCSIVolumeSource.lun": {"minimum": 0, "maximum": 255},
    "core.v1.PreferredSchedulingTerm.weight": _WEIGHT,
    "core.v1.SleepAction.seconds": _COUNT,
    "core.v1.TopologySpreadConstraint.maxSkew": {"minimum": 1},
    "core.v1.WeightedPodAffinityTerm.weight": _WEIGHT,
    "core.v1.ResourceFieldSelector.divisor": {"default": "0"},
    "core.v1.ObjectFieldSelector.apiVersion": {"default": "v1"},
    "core.v1.Probe.timeoutSeconds": {"default": 1},
    "core.v1.Probe.periodSeconds": {"default": 10},
    "core.v1.Probe.successThreshold": {"default": 1},
    "core.v1.Probe.failureThreshold": {"default": 3},
    "apps.v1.DeploymentSpec.replicas": {"default": 1, "minimum": 0},
    "apps.v1.DeploymentSpec.revisionHistoryLimit": {"default": 10, "minimum": 0},
    "apps.v1.DeploymentSpec.progressDeadlineSeconds": {"default": 600, "minimum": 1},
    "apps.v1.DeploymentSpec.minReadySeconds": _COUNT,
    "apps.v1.DeploymentStrategy.type": _choice("Recreate", "RollingUpdate"),
    "apps.v1.DaemonSetSpec.revisionHistoryLimit": {"default": 10, "minimum": 0},
    "apps.v1.ReplicaSetSpec.replicas": {"default": 1, "minimum": 0},
    "autoscaling.v1.ScaleSpec.replicas": _COUNT,
    "autoscaling.v2.HorizontalPodAutoscalerSpec.minReplicas": {"default": 1, "minimum": 0},
    "autoscaling.v2.HorizontalPodAutoscalerSpec.maxReplicas": {"minimum": 1},
    "autoscaling.v2.HPAScalingPolicy.periodSeconds": {"minimum": 1, "maximum": 1800},
    "autoscaling.v2.HPAScalingPolicy.value": {"minimum": 1},
    "batch.v1.JobSpec.activeDeadlineSeconds": _COUNT,
    "batch.v1.JobSpec.backoffLimit": _COUNT,
    "batch.v1.JobSpec.backoffLimitPerIndex": _COUNT,
    "batch.v1.JobSpec.completionMode": _choice("NonIndexed", "Indexed"),
    "batch.v1.JobSpec.maxFailedIndexes": _COUNT,
    "batch.v1.JobSpec.completions": _COUNT,
    "batch.v1.JobSpec.parallelism": _COUNT,
    "batch.v1.JobSpec.ttlSecondsAfterFinished": _COUNT,
    "batch.v1.PodFailurePolicy.rules": _OPTIONAL,
    "batch.v1.PodFailurePolicyOnExitCodesRequirement.values": _OPTIONAL,
    "batch.v1.PodFailurePolicyOnPodConditionsPattern.status": {"default": "True"},
    "batch.v1.SuccessPolicy.rules": _OPTIONAL,
    "batch.v1.CronJobSpec.startingDeadlineSeconds": _COUNT,
    "batch.v1.CronJobSpec.suspend": {"default": False},
    "batch.v1.CronJobSpec.concurrencyPolicy": _choice(
        "Allow", "Forbid", "Replace", default="Allow"
    ),
    "batch.v1.CronJobSpec.successfulJobsHistoryLimit": {"default": 3, "minimum": 0},
    "batch.v1.CronJobSpec.failedJobsHistoryLimit": {"default": 1, "minimum": 0},
    "flowcontrol.v1.FlowSchemaSpec.matchingPrecedence": {"default": 1000},
    "flowcontrol.v1.ExemptPriorityLevelConfiguration.nominalConcurrencyShares": {"default": 0},
    "flowcontrol.v1.ExemptPriorityLevelConfiguration.lendablePercent": {"default": 0},
    "flowcontrol.v1.LimitedPriorityLevelConfiguration.nominalConcurrencyShares": {"default": 30},
    "flowcontrol.v1.LimitedPriorityLevelConfiguration.lendablePercent": {"default": 0},
    # An absent type is not supported, as any other.
    "flowcontrol.v1.LimitResponse.type": {"default": ""},
    "flowcontrol.v1.PriorityLevelConfigurationSpec.type": {"default": ""},
    "flowcontrol.v1.QueuingConfiguration.handSize": {"default": 8},
    "flowcontrol.v1.QueuingConfiguration.queues": {"default": 64},
    "flowcontrol.v1.QueuingConfiguration.queueLengthLimit": {"default": 50},
    "networking.v1.NetworkPolicyPort.protocol": _PROTOCOL,
    "discovery.v1.EndpointSlice.addressType": _choice("IPv4", "IPv6", "FQDN"),
    "discovery.v1.EndpointSlice.endpoints": {"maxItems": 1000, **_OPTIONAL},
    "discovery.v1.EndpointSlice.ports": {"maxItems": 100},
    "discovery.v1.Endpoint.addresses": {"minItems": 1, "maxItems": 100},
    "discovery.v1.EndpointPort.name": {"default": ""},
    "discovery.v1.EndpointPort.protocol": _PROTOCOL,
    "discovery.v1.EndpointPort.port": {"minimum": 0, "maximum": 65535},
    "coordination.v1.LeaseSpec.leaseDurationSeconds": {"minimum": 1},
    "coordination.v1.LeaseSpec.leaseTransitions": _COUNT,
    "policy.v1.PodDisruptionBudgetSpec.unhealthyPodEvictionPolicy": _choice(
        "IfHealthyBudget", "AlwaysAllow"
    ),
    "networking.v1.NetworkPolicySpec.policyTypes": {
        "items": {"type": "string", **_choice("Ingress", "Egress")}
    },
    "networking.v1.HTTPIngressPath.pathType": _choice("Exact", "Prefix", "ImplementationSpecific"),
    "networking.v1.IngressClassParametersReference.scope": _choice(
        "Cluster", "Namespace", default="Cluster"
    ),
    "resource.v1.DeviceCapacity.value": {"default": "0"},
    "scheduling.v1.PriorityClass.preemptionPolicy": _choice(
        "PreemptLowerPriority", "Never", default="PreemptLowerPriority"
    ),
    "storage.v1.CSINodeSpec.drivers": _OPTIONAL,
    "storage.v1.StorageClass.reclaimPolicy": _choice("Delete", "Retain", default="Delete"),
    "storage.v1.StorageClass.volumeBindingMode": _choice(
        "Immediate", "WaitForFirstConsumer", default="Immediate"
    ),
    "rbac.v1.Subject.kind": _choice("User", "Group", "ServiceAccount"),
    "apiregistration.v1.APIServiceCondition.status": _choice("True", "False", "Unknown"),
    "apiregistration.v1.APIServiceSpec.groupPriorityMinimum": {"minimum": 1, "maximum": 20_000},
    "apiregistration.v1.APIServiceSpec.versionPriority": {"minimum": 1, "maximum": 1000},
    "apiextensions.v1.CustomResourceDefinitionSpec.scope": _choice("Cluster", "Namespaced"),
    "apiextensions.v1.CustomResourceDefinitionSpec.versions": {"minItems": 1},
    "apiextensions.v1.CustomResourceConversion.strategy": _choice("None", "Webhook"),
    "apiextensions.v1.CustomResourceColumnDefinition.type": _choice(
        "integer", "number", "string", "boolean", "date"
    ),
    "admissionregistration.v1.ValidatingAdmissionPolicySpec.failurePolicy": _choice(
        "Ignore", "Fail", default="Fail"
    ),
    "admissionregistration.v1.MatchResources.namespaceSelector": {"default": {}},
    "admissionregistration.v1.MatchResources.objectSelector": {"default": {}},
    "admissionregistration.v1.NamedRuleWithOperations.scope": _SCOPE,
    "admissionregistration.v1.RuleWithOperations.scope": _SCOPE,
    "admissionregistration.v1.MatchResources.matchPolicy": _choice(
        "Exact", "Equivalent", default="Equivalent"
    ),
}
