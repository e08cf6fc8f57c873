"""Selection of the media type and the representation of a response by the Accept header."""

from __future__ import annotations

from aiohttp import web

from kube_api_server.builtin.protobuf_messages import PROTOBUF_TYPE
from kube_api_server.errors import StatusError
from kube_api_server.http.representations import (
    JSON_TYPE,
    ProtobufRepresentation,
    Representation,
)
from kube_api_server.objects.served_resource import ServedResource

JSON, YAML = JSON_TYPE, "application/yaml"
_TYPES = (JSON, YAML, PROTOBUF_TYPE)
_WILD = (JSON, "application/*", "*/*", YAML)
_ROWS_WITH = ("Metadata", "Object", "None")
"""Objects that the rows of a Table may contain."""

_TRANSFORMED = {"Table": (JSON,), "PartialObjectMetadata": (JSON, PROTOBUF_TYPE)}
"""Media types of the kinds in which a response may be requested."""

_GROUPS = (None, "meta.k8s.io")
"""Groups of the kinds in which a response may be requested. Kubernetes' is the default."""


def offers(accepted: str) -> list[tuple[str, dict[str, str]]]:
    """Return the media types of an Accept header with their parameters, preferred ones first."""
    result = []
    for offer in accepted.split(","):
        media, *rest = (part.strip() for part in offer.split(";"))
        result.append((media, dict(part.partition("=")[::2] for part in rest)))
    return sorted(result, key=lambda offer: -_quality(offer[1]))


def _quality(parameters: dict[str, str]) -> float:
    try:
        return float(parameters.get("q", 1))
    except ValueError:
        return 0.0


def check_accepts_text(request: web.BaseRequest) -> None:
    """Check that a client accepts JSON or YAML. Raises ApiError 406."""
    if not _first(request, (JSON, YAML)):
        raise _not_acceptable(JSON, YAML)


def media_type(request: web.BaseRequest) -> str:
    """Return the type of a response without other representations: JSON, YAML or protobuf.

    Raises ApiError 406.
    """
    first = _first(request, _TYPES)
    if not first:
        raise _not_acceptable(*_TYPES)
    return first


def prefers_protobuf(request: web.BaseRequest) -> bool:
    """Return whether a response without other representations, such as an error, is protobuf."""
    return _first(request, _TYPES) == PROTOBUF_TYPE


def _first(request: web.BaseRequest, types: tuple[str, ...]) -> str:
    """Return the first of some types in the Accept header; empty if it has none of them."""
    accepted = request.headers.get("Accept", "")
    for media, parameters in offers(accepted):
        if "as" not in parameters:
            if media in types:
                return media
            if media in ("", *_WILD):
                return JSON
    return ""


def prefers_yaml(request: web.BaseRequest) -> bool:
    """Return whether the first type of the Accept header that is served is YAML."""
    accepted = request.headers.get("Accept", "")
    if YAML not in accepted:
        return False
    return next((media == YAML for media, _ in offers(accepted) if media in _WILD), False)


def _not_acceptable(*types: str) -> StatusError:
    message = f"only the following media types are accepted: {', '.join(types)}"
    return StatusError(406, "NotAcceptable", message)


def form_of(
    request: web.BaseRequest, served: ServedResource, *, of_list: bool = False
) -> Representation:
    """Select a representation of objects, or of a list, by the Accept header.

    The first known type of the header counts, as in kube-apiserver: Tables are never protobuf, and
    custom resources only as metadata. Raises StatusError 406 if there is none, or if the first
    is one of lists, but the response is not a list, or the other way round. Raises StatusError 400
    for an invalid `includeObject`.
    """
    accepted = request.headers.get("Accept", "")
    if not accepted or accepted == "application/json" or accepted == "*/*":
        return Representation(served)
    include = request.query.get("includeObject") or "Metadata"
    if include not in _ROWS_WITH:
        # Watchers with the same representation share encoded events: it must not be any text.
        message = f"includeObject: must be one of {', '.join(_ROWS_WITH)}"
        raise StatusError(400, "BadRequest", message)
    for media, parameters in offers(accepted):
        offered = parameters.get("as", "")
        kind = offered.removesuffix("List")
        representation = ProtobufRepresentation if media == PROTOBUF_TYPE else Representation
        if media in _TRANSFORMED.get(kind, ()):
            if parameters.get("v") in ("v1", "v1beta1") and parameters.get("g") in _GROUPS:
                if kind != "Table" and (offered != kind) != of_list:
                    subject = "a list" if of_list else "an object"
                    message = f"you requested {offered}, but the response is {subject}"
                    raise StatusError(406, "NotAcceptable", message)
                return representation(served, kind, include if kind == "Table" else "Metadata")
        elif not kind and (media in _WILD or (media == PROTOBUF_TYPE and served.builtin)):
            return representation(served)
    raise _not_acceptable(*_TYPES)
