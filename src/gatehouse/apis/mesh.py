"""XMesh of ``gateway.networking.x-k8s.io/v1alpha1`` (GEP-3949)."""

from __future__ import annotations

from gatehouse.apis.meta import KubernetesObject, View


class MeshSpec(View, frozen=True):
    """``spec`` of an XMesh."""

    controller_name: str = ""


class XMesh(KubernetesObject, frozen=True):
    """An XMesh."""

    spec: MeshSpec = MeshSpec()
