"""Built-in kinds that are served."""

from __future__ import annotations

from kube_api_server.admission_policies import policy
from kube_api_server.builtin import (
    autoscaling_v1,
    defaults,
    disruption_budgets,
    endpoint_addresses,
    events,
    job_columns,
    jobs,
    network_policies,
    resource_quotas,
)
from kube_api_server.builtin import validation as rules
from kube_api_server.builtin.declarations import declare_kind
from kube_api_server.builtin.stored_kinds import STORED_KINDS
from kube_api_server.objects.crd_validation import check_crd
from kube_api_server.objects.served_resource import Alias, Check, Scale, ServedResource
from kube_api_server.rbac import validation

DEPLOYMENT_SCALE = Scale(".spec.replicas", ".status.replicas", ".spec.selector")

_RBAC = "rbac.authorization.k8s.io"
_AUTHENTICATION = "authentication.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"


def _rbac(kind: str) -> Check:
    return lambda obj, old: iter(validation.validate_rbac(kind, obj, old))


def _review(group: str, plural: str, kind: str, *, namespaced: bool = False) -> ServedResource:
    return declare_kind(
        group, plural, kind, cluster=not namespaced, persisted=False, generation=False
    )


BUILTIN_KINDS: tuple[ServedResource, ...] = (
    declare_kind(
        "",
        "namespaces",
        "Namespace",
        cluster=True,
        short=("ns",),
        status=True,
        complete=defaults.namespace,
        name_rule="label",
        generation=False,
        selectable=("status.phase",),
    ),
    declare_kind(
        "",
        "services",
        "Service",
        short=("svc",),
        categories=("all",),
        status=True,
        complete=defaults.default_service,
        check=rules.check_service,
        name_rule="label1035",
        generation=False,
        selectable=("spec.clusterIP", "spec.type"),
    ),
    declare_kind(
        "",
        "endpoints",
        "Endpoints",
        short=("ep",),
        singular="endpoints",
        check=endpoint_addresses.check_endpoints,
        generation=False,
        warning="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ),
    declare_kind(
        "",
        "secrets",
        "Secret",
        complete=defaults.merge_string_data,
        check=rules.check_secret,
        generation=False,
        selectable=("type",),
    ),
    declare_kind(
        "", "configmaps", "ConfigMap", short=("cm",), check=rules.config_map, generation=False
    ),
    declare_kind(
        "",
        "resourcequotas",
        "ResourceQuota",
        short=("quota",),
        status=True,
        check=resource_quotas.check_resource_quota,
        generation=False,
    ),
    declare_kind("", "serviceaccounts", "ServiceAccount", short=("sa",), generation=False),
    declare_kind(
        "",
        "pods",
        "Pod",
        short=("po",),
        categories=("all",),
        status=True,
        complete=defaults.default_pod,
        check=rules.check_pod,
        selectable=(
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ),
    ),
    declare_kind(
        "",
        "nodes",
        "Node",
        cluster=True,
        short=("no",),
        status=True,
        create_with_status=True,
        complete=defaults.default_node,
        generation=False,
        selectable=("spec.unschedulable",),
    ),
    declare_kind(
        "",
        "events",
        "Event",
        short=("ev",),
        generation=False,
        selectable=(
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ),
    ),
    declare_kind(
        "apps",
        "deployments",
        "Deployment",
        short=("deploy",),
        categories=("all",),
        status=True,
        scale=DEPLOYMENT_SCALE,
        complete=defaults.deployment,
        check=rules.check_workload,
    ),
    declare_kind(
        "apps",
        "daemonsets",
        "DaemonSet",
        short=("ds",),
        categories=("all",),
        status=True,
        complete=defaults.daemon_set,
        check=rules.check_workload,
    ),
    declare_kind(
        "apps",
        "replicasets",
        "ReplicaSet",
        short=("rs",),
        categories=("all",),
        status=True,
        scale=DEPLOYMENT_SCALE,
        complete=defaults.default_workload,
        check=rules.check_workload,
        selectable=("status.replicas",),
    ),
    declare_kind(
        "policy",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        short=("pdb",),
        check=disruption_budgets.check_disruption_budget,
        status=True,
    ),
    declare_kind(
        "networking.k8s.io",
        "networkpolicies",
        "NetworkPolicy",
        short=("netpol",),
        complete=network_policies.complete,
        check=network_policies.check_network_policy,
    ),
    declare_kind(
        "batch",
        "jobs",
        "Job",
        categories=("all",),
        status=True,
        columns=job_columns.JOB_COLUMNS,
        complete=jobs.complete_job,
        check=jobs.check_job,
    ),
    declare_kind(
        "batch",
        "cronjobs",
        "CronJob",
        short=("cj",),
        categories=("all",),
        status=True,
        columns=job_columns.CRON_JOB_COLUMNS,
        complete=defaults.cron_job,
        check=jobs.check_cron_job,
    ),
    declare_kind(
        "autoscaling",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        version="v2",
        short=("hpa",),
        categories=("all",),
        status=True,
        check=rules.check_autoscaler,
        generation=False,
    ),
    declare_kind(
        "autoscaling",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        stored="v2",
        short=("hpa",),
        categories=("all",),
        status=True,
        alias=Alias(
            "autoscaling",
            "horizontalpodautoscalers",
            autoscaling_v1.to_v2,
            autoscaling_v1.from_v2,
        ),
        generation=False,
    ),
    declare_kind(
        "discovery.k8s.io",
        "endpointslices",
        "EndpointSlice",
        check=endpoint_addresses.endpoint_slice,
    ),
    declare_kind(
        "events.k8s.io",
        "events",
        "Event",
        short=("ev",),
        alias=Alias("", "events", events.to_core, events.from_core),
        generation=False,
        selectable=(
            "reason",
            "type",
            "regarding.kind",
            "regarding.name",
            "regarding.namespace",
            "regarding.uid",
            "reportingController",
        ),
    ),
    declare_kind("coordination.k8s.io", "leases", "Lease", generation=False),
    declare_kind(_RBAC, "roles", "Role", name_rule="path", check=_rbac("Role"), generation=False),
    declare_kind(
        _RBAC,
        "clusterroles",
        "ClusterRole",
        cluster=True,
        name_rule="path",
        check=_rbac("ClusterRole"),
        generation=False,
    ),
    declare_kind(
        _RBAC,
        "rolebindings",
        "RoleBinding",
        name_rule="path",
        complete=defaults.role_binding,
        check=_rbac("RoleBinding"),
        generation=False,
    ),
    declare_kind(
        _RBAC,
        "clusterrolebindings",
        "ClusterRoleBinding",
        cluster=True,
        name_rule="path",
        complete=defaults.role_binding,
        check=_rbac("ClusterRoleBinding"),
        generation=False,
    ),
    declare_kind(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        cluster=True,
        short=("crd", "crds"),
        categories=("api-extensions",),
        status=True,
        complete=defaults.default_crd,
        check=check_crd,
    ),
    declare_kind(
        _ADMISSION,
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        cluster=True,
        categories=("api-extensions",),
        status=True,
        check=policy.check_policy,
    ),
    declare_kind(
        _ADMISSION,
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        cluster=True,
        categories=("api-extensions",),
    ),
    _review(_AUTHENTICATION, "tokenreviews", "TokenReview"),
    _review(_AUTHENTICATION, "selfsubjectreviews", "SelfSubjectReview"),
    _review(_AUTHORIZATION, "subjectaccessreviews", "SubjectAccessReview"),
    _review(_AUTHORIZATION, "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    _review(_AUTHORIZATION, "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    _review(
        _AUTHORIZATION, "localsubjectaccessreviews", "LocalSubjectAccessReview", namespaced=True
    ),
    *STORED_KINDS,
)
