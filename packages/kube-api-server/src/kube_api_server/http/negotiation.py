"""Representations of objects: complete, as rows of a Table, or metadata only."""

from __future__ import annotations

import msgspec
from aiohttp import web

from kube_api_server.errors import StatusError
from kube_api_server.http import tables
from kube_api_server.objects.served_resource import ServedResource
from kube_api_server.storage.entries import StoredEntry
from kube_base.types.objects import Object

JSON, YAML = "application/json", "application/yaml"
_WILD = (JSON, "application/*", "*/*", YAML)
_ROWS_WITH = ("Metadata", "Object", "None")
"""Objects that the rows of a Table may contain."""

_TYPE = ("apiVersion", "kind")
_TRANSFORMED = ("Table", "PartialObjectMetadata")
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


def media_type(request: web.BaseRequest) -> str:
    """Return JSON or YAML as the type of a response without other representations.

    Raises ApiError 406.
    """
    accepted = request.headers.get("Accept", "")
    for media, parameters in offers(accepted):
        if media in ("", *_WILD) and "as" not in parameters:
            return YAML if media == YAML else JSON
    raise _not_acceptable(JSON, YAML)


def prefers_yaml(request: web.BaseRequest) -> bool:
    """Return whether the first type of the Accept header that is served is YAML."""
    accepted = request.headers.get("Accept", "")
    if YAML not in accepted:
        return False
    return next((media == YAML for media, _ in offers(accepted) if media in _WILD), False)


def _not_acceptable(*types: str) -> StatusError:
    message = f"only the following media types are accepted: {', '.join(types)}"
    return StatusError(406, "NotAcceptable", message)


class Representation(msgspec.Struct, frozen=True):
    """A representation that a client requested."""

    served: ServedResource
    kind: str = ""
    """`Table`, `PartialObjectMetadata`, or empty for the object itself."""
    rows_with: str = "Metadata"
    """Object in the rows of a Table: `Metadata`, `Object` or `None`."""

    @property
    def api_version(self) -> str:
        """The requested API version."""
        return self.served.resource.api_version

    def encode(self, entry: StoredEntry, *, headed: bool = True) -> bytes:
        """Encode one object. A Table includes its column definitions if `headed` is set."""
        if self.kind == "Table":
            metadata = {"resourceVersion": str(entry.revision)}
            table = tables.build_table(self.served, metadata, headed=headed)
            row = tables.row(self.served, entry.value, self.rows_with)
            return msgspec.json.encode({**table, "rows": [row]})
        if self.kind == "PartialObjectMetadata":
            return msgspec.json.encode(tables.partial(entry.value))
        if self.served.alias is not None:
            return msgspec.json.encode(self.served.alias.from_stored(entry.value))
        if entry.value["apiVersion"] != self.api_version:
            return msgspec.json.encode({**entry.value, "apiVersion": self.api_version})
        return entry.data

    def encode_item(self, entry: StoredEntry) -> bytes:
        """Encode one object of a list: for a Table, its row.

        Objects of built-in kinds have no kind and no apiVersion in lists, as in kube-apiserver.
        """
        if self.kind == "Table":
            return msgspec.json.encode(tables.row(self.served, entry.value, self.rows_with))
        encoded = self.encode(entry)
        if self.kind or not self.served.builtin:
            return encoded
        head = self._head
        if encoded.startswith(head):
            return b"{" + encoded[len(head) :]
        value: Object = msgspec.json.decode(encoded)
        return msgspec.json.encode({key: value[key] for key in value if key not in _TYPE})

    @property
    def _head(self) -> bytes:
        """The first bytes of most objects."""
        return b'{"apiVersion":"%s","kind":"%s",' % (
            self.api_version.encode(),
            self.served.resource.kind.encode(),
        )

    def join(self, items: list[bytes], metadata: Object) -> bytes:
        """Join encoded objects to a list."""
        if self.kind == "Table":
            head, field = tables.build_table(self.served, metadata), b"rows"
        else:
            kind = f"{self.kind}List" if self.kind else self.list_kind
            version = "meta.k8s.io/v1" if self.kind else self.api_version
            head = {"kind": kind, "apiVersion": version, "metadata": metadata}
            field = b"items"
        encoded = msgspec.json.encode(head)
        return encoded[:-1] + b',"' + field + b'":[' + b",".join(items) + b"]}"

    @property
    def list_kind(self) -> str:
        """Kind of a list of these objects."""
        return self.served.list_kind or f"{self.served.resource.kind}List"


def form_of(
    request: web.BaseRequest, served: ServedResource, *, of_list: bool = False
) -> Representation:
    """Select a representation of objects, or of a list, by the Accept header.

    The first known type of the header counts, as in kube-apiserver. Raises StatusError 406 if it
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
        if kind in _TRANSFORMED and media == JSON:
            if parameters.get("v") in ("v1", "v1beta1") and parameters.get("g") in _GROUPS:
                if kind != "Table" and (offered != kind) != of_list:
                    subject = "a list" if of_list else "an object"
                    message = f"you requested {offered}, but the response is {subject}"
                    raise StatusError(406, "NotAcceptable", message)
                return Representation(served, kind, include if kind == "Table" else "Metadata")
        elif media in _WILD and not kind:
            return Representation(served)
    transformed = (f"{JSON};as={kind};g=meta.k8s.io;v=v1" for kind in _TRANSFORMED)
    raise _not_acceptable(JSON, YAML, *transformed)
