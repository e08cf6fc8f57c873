"""Bodies in Kubernetes' protobuf, which Go clients send for built-in kinds; answers stay JSON."""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from gatehouse.apiserver.errors import ApiError, bad_request
from gatehouse.wire.kubernetes import bodies_pb2 as bodies

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

MAGIC = b"k8s\0"
"""What every such body begins with."""

_KINDS: dict[str, type[Message]] = {
    "Namespace": bodies.Namespace,
    "ConfigMap": bodies.ConfigMap,
    "Secret": bodies.Secret,
    "ServiceAccount": bodies.ServiceAccount,
    "TokenRequest": bodies.TokenRequest,
    "TokenReview": bodies.TokenReview,
    "SelfSubjectReview": bodies.SelfSubjectReview,
    "DeleteOptions": bodies.DeleteOptions,
}


def decode(data: bytes) -> dict[str, Any]:
    """Give the object; raises ApiError 415 for a kind that is not known, 400 for broken bytes."""
    if not data.startswith(MAGIC):
        raise bad_request("the body does not begin as Kubernetes' protobuf does")
    envelope = bodies.Unknown()
    try:
        envelope.ParseFromString(data[len(MAGIC) :])
        kind = envelope.typeMeta.kind
        if kind not in _KINDS:
            message = f"{kind} is not taken as protobuf by this server: send application/json"
            raise ApiError(415, "UnsupportedMediaType", message)
        found = _KINDS[kind]()
        found.ParseFromString(envelope.raw)
    except DecodeError as error:
        raise bad_request(f"error parsing protobuf: {error}") from error
    obj = json_format.MessageToDict(found, preserving_proto_field_name=True)
    return {"apiVersion": envelope.typeMeta.apiVersion, "kind": kind, **obj}
