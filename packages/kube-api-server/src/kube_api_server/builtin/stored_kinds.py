"""Built-in kinds that no controller of this server acts on.

Clients store and read them. A kind that the server would have to obey is refused instead, so that
no client relies on it: webhooks that are never called, and API servers that get no requests. The
exception are FlowSchemas and PriorityLevelConfigurations: tools expect them, and the levels of this
server are fixed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kube_api_server.builtin import defaults, trust_bundles
from kube_api_server.builtin.declarations import declare_kind
from kube_api_server.builtin.device_classes import check_device_class, complete_device_class
from kube_api_server.builtin.flow_schemas import check_flow_schema, check_priority_level
from kube_api_server.builtin.resource_claims import (
    check_claim,
    check_claim_template,
    complete_claim,
    complete_claim_template,
)
from kube_api_server.builtin.resource_slices import check_slice, complete_slice
from kube_api_server.builtin.signing_requests import check_signing_request
from kube_api_server.builtin.stored_columns import STORED_COLUMNS
from kube_api_server.causes import forbidden_cause
from kube_api_server.errors import Cause
from kube_api_server.objects.served_resource import Scale, ServedResource
from kube_base.types.objects import Object

_API_EXTENSIONS = ("api-extensions",)


def check_webhooks(obj: Object, _: Object | None) -> Iterator[Cause]:
    """Yield a violation for webhooks, which the server does not call."""
    if obj.get("webhooks"):
        yield forbidden_cause("webhooks", "this server does not call admission webhooks")


def check_api_service(obj: Object, _: Object | None) -> Iterator[Cause]:
    """Yield a violation for a Service, to which the server does not forward requests."""
    if (obj.get("spec") or {}).get("service"):
        yield forbidden_cause("spec.service", "this server does not aggregate API servers")


def _stored(group: str, plural: str, kind: str, **rest: Any) -> ServedResource:
    return declare_kind(group, plural, kind, columns=STORED_COLUMNS[plural], **rest)


def _webhooks(plural: str, kind: str) -> ServedResource:
    return _stored(
        "admissionregistration.k8s.io",
        plural,
        kind,
        cluster=True,
        categories=_API_EXTENSIONS,
        check=check_webhooks,
    )


STORED_KINDS: tuple[ServedResource, ...] = (
    _stored("", "podtemplates", "PodTemplate", complete=defaults.pod_template),
    _stored(
        "",
        "replicationcontrollers",
        "ReplicationController",
        short=("rc",),
        categories=("all",),
        status=True,
        scale=Scale(".spec.replicas", ".status.replicas", ".spec.selector"),
        complete=defaults.replication_controller,
        selectable=("status.replicas",),
    ),
    _stored(
        "",
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        short=("pvc",),
        status=True,
        generation=False,
    ),
    _stored(
        "flowcontrol.apiserver.k8s.io",
        "flowschemas",
        "FlowSchema",
        cluster=True,
        status=True,
        check=check_flow_schema,
    ),
    _stored(
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
        "PriorityLevelConfiguration",
        cluster=True,
        status=True,
        check=check_priority_level,
    ),
    _stored("networking.k8s.io", "ingresses", "Ingress", short=("ing",), status=True),
    _stored("networking.k8s.io", "ingressclasses", "IngressClass", cluster=True),
    _stored("node.k8s.io", "runtimeclasses", "RuntimeClass", cluster=True, generation=False),
    _stored(
        "resource.k8s.io",
        "resourceclaims",
        "ResourceClaim",
        status=True,
        generation=False,
        complete=complete_claim,
        check=check_claim,
    ),
    _stored(
        "resource.k8s.io",
        "resourceclaimtemplates",
        "ResourceClaimTemplate",
        generation=False,
        complete=complete_claim_template,
        check=check_claim_template,
    ),
    _stored(
        "resource.k8s.io",
        "deviceclasses",
        "DeviceClass",
        cluster=True,
        complete=complete_device_class,
        check=check_device_class,
    ),
    _stored(
        "resource.k8s.io",
        "resourceslices",
        "ResourceSlice",
        cluster=True,
        complete=complete_slice,
        check=check_slice,
        selectable=("spec.nodeName", "spec.driver"),
    ),
    _stored("scheduling.k8s.io", "priorityclasses", "PriorityClass", cluster=True, short=("pc",)),
    _stored("storage.k8s.io", "csinodes", "CSINode", cluster=True, generation=False),
    _stored(
        "storage.k8s.io",
        "storageclasses",
        "StorageClass",
        cluster=True,
        short=("sc",),
        generation=False,
    ),
    _stored(
        "certificates.k8s.io",
        "certificatesigningrequests",
        "CertificateSigningRequest",
        cluster=True,
        short=("csr",),
        check=check_signing_request,
        status=True,
        generation=False,
        selectable=("spec.signerName",),
    ),
    _stored(
        "certificates.k8s.io",
        "clustertrustbundles",
        "ClusterTrustBundle",
        cluster=True,
        generation=False,
        name_rule="path",
        check=trust_bundles.check_trust_bundle,
        selectable=("spec.signerName",),
    ),
    _webhooks("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
    _webhooks("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
    _stored(
        "apiregistration.k8s.io",
        "apiservices",
        "APIService",
        cluster=True,
        categories=_API_EXTENSIONS,
        status=True,
        check=check_api_service,
        generation=False,
    ),
)
