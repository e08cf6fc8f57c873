"""Descriptions of the fields that all kinds share, for `kubectl explain`."""

from __future__ import annotations

from kube_base.types.objects import Object

API_VERSION_TEXT = "APIVersion defines the group and the version in which this object is written."
KIND_TEXT = "Kind is the name of the type of this object, in CamelCase."
METADATA_TEXT = (
    "Standard object's metadata: its name, labels, and what the API server knows about it."
)

_FIELDS = {
    "name": "Name of the object, unique among the objects of its kind in its namespace. It cannot "
    "be changed.",
    "generateName": "GenerateName is the start of a name that the API server completes, if the "
    "object is created without a name.",
    "namespace": "Namespace of the object. Empty for kinds that have none.",
    "selfLink": "SelfLink is no longer used.",
    "uid": "UID is the unique ID of the object. Another object of the same name has another one. "
    "Read-only.",
    "resourceVersion": "ResourceVersion identifies the state of the object in the storage. A write "
    "with another one is a conflict.",
    "generation": "Generation is a number that increases with each change of the desired state. "
    "Read-only.",
    "creationTimestamp": "CreationTimestamp is a timestamp of the API server: when the object was "
    "created. Read-only.",
    "deletionTimestamp": "DeletionTimestamp is when the object will be deleted, once it has no "
    "finalizers. Read-only.",
    "deletionGracePeriodSeconds": "Number of seconds in which the object may end before it is "
    "deleted. Read-only.",
    "labels": "Labels by which selectors find the object.",
    "annotations": "Annotations hold any text of tools and users. Nothing selects by them.",
    "ownerReferences": "Objects that own this one. It is deleted after all of them are.",
    "finalizers": "Finalizers name who must act before the object is deleted. Each is removed by "
    "who has acted.",
    "managedFields": "ManagedFields tells which manager set which fields, for server-side apply.",
}


def described_metadata(schema: Object) -> Object:
    """Return the schema of metadata with descriptions of its fields."""
    properties = {
        name: {**field, "description": _FIELDS[name]} if name in _FIELDS else field
        for name, field in schema["properties"].items()
    }
    return {**schema, "description": METADATA_TEXT, "properties": properties}
