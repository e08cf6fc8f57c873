"""InferencePool of ``inference.networking.k8s.io/v1`` (Gateway API Inference Extension)."""

from __future__ import annotations

from gatehouse.apis.backends import EndpointSelectorSpec, IdentifiedMeta
from gatehouse.apis.meta import KubernetesObject, View

INFERENCE_GROUP = "inference.networking.k8s.io"

FAIL_OPEN = "FailOpen"


class PoolPort(View, frozen=True):
    """A port of each Pod, or of the Service of an endpoint picker."""

    number: int


class EndpointPickerRef(View, frozen=True):
    """The Service of an endpoint picker in the namespace of the pool."""

    name: str
    group: str = ""
    kind: str = "Service"
    port: PoolPort | None = None
    failure_mode: str = "FailClose"


class InferencePoolSpec(View, frozen=True):
    """``spec`` of an InferencePool."""

    selector: EndpointSelectorSpec = EndpointSelectorSpec()
    target_ports: tuple[PoolPort, ...] = ()
    app_protocol: str = "http"
    endpoint_picker_ref: EndpointPickerRef | None = None


class InferencePool(KubernetesObject, frozen=True):
    """An InferencePool: Pods that serve models."""

    metadata: IdentifiedMeta
    spec: InferencePoolSpec = InferencePoolSpec()
