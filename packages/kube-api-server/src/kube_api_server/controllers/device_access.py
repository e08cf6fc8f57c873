"""Check of claims that give an administrator access to devices in use."""

from __future__ import annotations

from kube_api_server.builtin.resource_claims import check_admin_access
from kube_api_server.errors import invalid_error
from kube_api_server.objects.admission import NAMESPACES_PREFIX, Admission
from kube_api_server.objects.write_request import WriteRequest
from kube_api_server.storage.store import ObjectStore
from kube_base.types.objects import Object

_TEMPLATES = "resourceclaimtemplates"


def register_access_checks(store: ObjectStore, admission: Admission) -> None:
    """Check new claims and templates against the label of their namespace."""

    def check(call: WriteRequest, obj: Object, old: Object | None) -> None:
        namespace = store.latest(NAMESPACES_PREFIX + call.namespace)
        if old is not None or namespace is None:
            return
        spec = obj.get("spec") or {}
        resource = call.served.resource
        claim = spec.get("spec") or {} if resource.plural == _TEMPLATES else spec
        causes = list(check_admin_access(claim, namespace.value))
        if causes:
            name = obj["metadata"]["name"]
            raise invalid_error(resource.kind, resource.group, name, causes)

    for plural in ("resourceclaims", _TEMPLATES):
        admission.finishing.setdefault(plural, []).append(check)
