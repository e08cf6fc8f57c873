"""Server-side apply and field ownership, as documented by Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from kube_api_server import fields
from kube_api_server.builtin.kinds import BUILTIN_KINDS

SCHEMA = next(served.schema for served in BUILTIN_KINDS if served.resource.kind == "Deployment")
Object = dict[str, Any]


def deployment(*containers: Object, **spec: Any) -> Object:
    result: Object = {"metadata": {"name": "d", "namespace": "default"}, "spec": dict(spec)}
    if containers:
        result["spec"]["template"] = {"spec": {"containers": list(containers)}}
    return result


def apply(live: Object | None, applied: Object, manager: str, *, force: bool = False) -> Object:
    return fields.apply_fields(
        live, applied, SCHEMA, manager=manager, force=force, api_version="apps/v1", now="now"
    )


def update(before: Object, after: Object, manager: str, subresource: str = "") -> Object:
    result = fields.update(
        before, after, SCHEMA, manager=manager, api_version="apps/v1", now="now",
        subresource=subresource,
    )  # fmt: skip
    return {**after, "metadata": {**after["metadata"], "managedFields": result}}


def owned(obj: Object, manager: str) -> Any:
    entries = obj["metadata"]["managedFields"]
    return next((e["fieldsV1"] for e in entries if e["manager"] == manager), None)


def test_applier_owns_applied_fields() -> None:
    applied = apply(None, deployment({"name": "a", "image": "1"}, replicas=2), "one")
    container: Object = {".": {}, "f:image": {}, "f:name": {}}
    template = {"f:spec": {"f:containers": {'k:{"name":"a"}': container}}}
    assert owned(applied, "one") == {"f:spec": {"f:replicas": {}, "f:template": template}}


def test_field_is_removed_when_absent_from_next_apply() -> None:
    applied = apply(None, deployment({"name": "a"}, {"name": "b"}, replicas=2, paused=True), "one")
    after = apply(applied, deployment({"name": "b"}, replicas=2), "one")
    assert after["spec"] == {"replicas": 2, "template": {"spec": {"containers": [{"name": "b"}]}}}


def test_field_stays_when_another_manager_owns_it() -> None:
    applied = apply(None, deployment(replicas=2), "one")
    both = apply(applied, deployment(replicas=2), "two")
    after = apply(both, deployment(), "one")
    assert after["spec"] == {"replicas": 2}
    assert owned(after, "one") is None or "f:replicas" not in owned(after, "one").get("f:spec", {})
    assert owned(after, "two") == {"f:spec": {"f:replicas": {}}}


def test_conflict_names_manager_and_field() -> None:
    applied = apply(None, deployment({"name": "a", "image": "1"}, replicas=2), "one")
    with pytest.raises(fields.ConflictsError) as caught:
        apply(applied, deployment({"name": "a", "image": "2"}, replicas=3), "two")
    message, causes = fields.render_conflicts(caught.value.conflicts)
    assert message == (
        'Apply failed with 2 conflicts: conflicts with "one":\n- .spec.replicas\n'
        '- .spec.template.spec.containers[name="a"].image'
    )
    assert causes[0] == ("FieldManagerConflict", 'conflict with "one"', ".spec.replicas")


def test_owner_reference_is_owned_as_a_whole() -> None:
    def owned_by(kind: str) -> Object:
        owner = {"apiVersion": "v1", "kind": kind, "name": "o", "uid": "1"}
        obj = deployment()
        return obj | {"metadata": {**obj["metadata"], "ownerReferences": [owner]}}

    applied = apply(None, owned_by("ConfigMap"), "one")
    assert owned(applied, "one")["f:metadata"] == {"f:ownerReferences": {'k:{"uid":"1"}': {}}}
    with pytest.raises(fields.ConflictsError) as caught:
        apply(applied, owned_by("Secret"), "two")
    (conflict,) = caught.value.conflicts
    assert conflict.field == '.metadata.ownerReferences[uid="1"]'


def test_forced_apply_takes_ownership_of_conflicting_field() -> None:
    applied = apply(None, deployment(replicas=2, paused=True), "one")
    after = apply(applied, deployment(replicas=3), "two", force=True)
    assert after["spec"] == {"replicas": 3, "paused": True}
    assert owned(after, "one") == {"f:spec": {"f:paused": {}}}
    assert owned(after, "two") == {"f:spec": {"f:replicas": {}}}


def test_update_takes_ownership_of_fields_from_appliers() -> None:
    applied = apply(None, deployment(replicas=2, paused=True), "one")
    scaled = update(applied, {**applied, "spec": {"replicas": 5, "paused": True}}, "kubectl")
    assert owned(scaled, "one") == {"f:spec": {"f:paused": {}}}
    assert owned(scaled, "kubectl") == {"f:spec": {"f:replicas": {}}}
    with pytest.raises(fields.ConflictsError) as caught:
        apply(scaled, deployment(replicas=2, paused=True), "one")
    assert fields.render_conflicts(caught.value.conflicts)[0] == (
        'Apply failed with 1 conflict: conflict with "kubectl" using apps/v1: .spec.replicas'
    )


def test_equal_value_has_shared_ownership() -> None:
    applied = apply(None, deployment(replicas=2), "one")
    shared = apply(applied, deployment(replicas=2), "two")
    assert owned(shared, "one") == owned(shared, "two") == {"f:spec": {"f:replicas": {}}}


def test_subresources_have_separate_managed_fields() -> None:
    applied = apply(None, deployment(replicas=2), "one")
    after = update(applied, {**applied, "status": {"replicas": 2}}, "controller", "status")
    (entry,) = (e for e in after["metadata"]["managedFields"] if e.get("subresource"))
    assert (entry["manager"], entry["subresource"]) == ("controller", "status")
    assert entry["fieldsV1"] == {"f:status": {"f:replicas": {}}}


def test_atomic_list_is_owned_as_a_whole() -> None:
    applied = apply(None, deployment({"name": "a", "args": ["x"]}), "one")
    containers = owned(applied, "one")["f:spec"]["f:template"]["f:spec"]["f:containers"]
    assert containers['k:{"name":"a"}']["f:args"] == {}
    with pytest.raises(fields.ConflictsError):
        apply(applied, deployment({"name": "a", "args": ["x", "y"]}), "two")


def test_appliers_share_a_list_by_key() -> None:
    applied = apply(None, deployment({"name": "a", "image": "1"}), "one")
    both = apply(applied, deployment({"name": "b", "image": "2"}), "two")
    names = [c["name"] for c in both["spec"]["template"]["spec"]["containers"]]
    assert names == ["a", "b"]
    left = apply(both, deployment(), "two")
    assert [c["name"] for c in left["spec"]["template"]["spec"]["containers"]] == ["a"]


def test_objects_without_managed_fields_belong_to_earlier_managers() -> None:
    live = deployment(replicas=2)
    with pytest.raises(fields.ConflictsError, match="1 conflicts"):
        apply(live, deployment(replicas=3), "one")
    taken = apply(live, deployment(replicas=3), "one", force=True)
    assert taken["spec"]["replicas"] == 3


def test_apply_of_managed_fields_is_rejected() -> None:
    bad = deployment(replicas=1)
    bad["metadata"]["managedFields"] = [{"manager": "x"}]
    with pytest.raises(ValueError, match=r"metadata\.managedFields must be nil"):
        apply(None, bad, "one")


def test_repeated_apply_changes_nothing() -> None:
    applied = apply(None, deployment({"name": "a", "image": "1"}, replicas=2), "one")
    again = fields.apply_fields(
        applied, deployment({"name": "a", "image": "1"}, replicas=2), SCHEMA,
        manager="one", force=False, api_version="apps/v1", now="later",
    )  # fmt: skip
    assert again == applied
