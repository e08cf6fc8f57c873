"""Rejection of invalid feature gates: an emergency brake with a typo must fail at once."""

from __future__ import annotations

from gatehouse.apis import upstream_clusters
from gatehouse.apis.feature_gates import parse
from kube_api_server import errors
from kube_api_server.causes import invalid_cause
from kube_api_server.errors import Cause
from kube_api_server.extension import ExtendedServer
from kube_api_server.objects.write_request import WriteRequest
from kube_base.types.objects import Object


def register_gate_check(server: ExtendedServer) -> None:
    """Check every write of an UpstreamCluster."""
    server.check_writes("upstreamclusters", _check)


def _check(call: WriteRequest, obj: Object, old: Object | None) -> None:
    resource = call.served.resource
    if call.subresource or resource.group != upstream_clusters._GROUP:
        return
    # An invalid annotation of an older server version must not prevent other changes.
    if old is not None and _text(old) == _text(obj):
        return
    causes = list(causes_of(_text(obj)))
    if causes:
        raise errors.invalid_error(resource.kind, resource.group, call.name, causes)


def causes_of(text: str) -> list[Cause]:
    """Return the violations of an annotation with feature gates."""
    field = f"metadata.annotations[{upstream_clusters.FEATURE_GATES}]"
    return [invalid_cause(field, text, problem) for problem in parse(text).problems]


def _text(obj: Object) -> str:
    metadata = obj.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return str((annotations or {}).get(upstream_clusters.FEATURE_GATES, ""))
