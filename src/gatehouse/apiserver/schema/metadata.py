"""The metadata that all kinds share."""

from __future__ import annotations

import re
from typing import Any

from gatehouse.apiserver.errors import Cause
from gatehouse.apiserver.schema.shapes import (
    ANY,
    DNS_SUBDOMAIN,
    array,
    boolean,
    integer,
    mapping,
    record,
    string,
)
from gatehouse.apiserver.schema.walker import Walk

Object = dict[str, Any]

SCHEMA = record(
    name=string(max=253),
    generateName=string(),
    namespace=string(),
    selfLink=string(),
    uid=string(),
    resourceVersion=string(),
    generation=integer(),
    creationTimestamp=string(),
    deletionTimestamp=string(),
    deletionGracePeriodSeconds=integer(),
    labels=mapping(string(max=63)),
    annotations=mapping(string()),
    ownerReferences=array(
        record(
            "apiVersion kind name uid",
            apiVersion=string(min=1),
            kind=string(min=1),
            name=string(min=1),
            uid=string(min=1),
            controller=boolean(),
            blockOwnerDeletion=boolean(),
        )
    ),
    finalizers=array(string(min=1)),
    managedFields=array(ANY),
)

_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_KEY = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


def check_metadata(metadata: Object) -> tuple[list[Cause], list[str]]:
    """Prune and check metadata in place; gives what is wrong and what is unknown."""
    walk = Walk()
    walk.value(SCHEMA, metadata, "metadata")
    if not walk.causes:
        walk.causes += _labels(metadata.get("labels") or {})
    return walk.causes, walk.unknown


def _labels(labels: dict[str, str]) -> list[Cause]:
    causes = []
    for key, value in labels.items():
        prefix, _, name = key.rpartition("/")
        sound = _KEY.fullmatch(name) and len(name) <= 63
        if not sound or (prefix and not re.fullmatch(DNS_SUBDOMAIN, prefix)):
            message = f'Invalid value: "{key}": not a valid label key'
            causes.append(Cause("FieldValueInvalid", message, "metadata.labels"))
        if not _VALUE.fullmatch(value):
            message = f'Invalid value: "{value}": not a valid label value'
            causes.append(Cause("FieldValueInvalid", message, "metadata.labels"))
    return causes
