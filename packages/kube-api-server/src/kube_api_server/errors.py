"""Failures as `Status` objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from kube_base.types.resource import Resource

_DETAILED = (403, 404, 405, 409, 422, 429, 504)
"""Codes with `details` in every Status. kubectl reads those of a 404 without a check."""


class Cause(msgspec.Struct, frozen=True):
    """One violation and the field it concerns."""

    reason: str
    message: str
    field: str


class StatusError(Exception):
    """A request failure, answered with a Status object."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        kind: str = "",
        group: str = "",
        name: str = "",
        causes: Sequence[Cause] = (),
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        self.kind, self.group, self.name, self.causes = kind, group, name, tuple(causes)
        self.uid = ""
        self.retry_after = 0
        """Delay in seconds before a retry; 0 for none."""
        self.metadata: dict[str, Any] = {}
        self.headers: dict[str, str] = {}
        """Additional response headers."""

    def status(self) -> dict[str, Any]:
        """Return the Status object."""
        details: dict[str, Any] = {}
        for key in ("name", "group", "kind", "uid"):
            if getattr(self, key):
                details[key] = getattr(self, key)
        if self.causes:
            causes = (msgspec.to_builtins(cause) for cause in self.causes)
            details["causes"] = [{k: v for k, v in cause.items() if v} for cause in causes]
        if self.retry_after:
            details["retryAfterSeconds"] = self.retry_after
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            **({"reason": self.reason} if self.reason else {}),
            **({"details": details} if details or self.code in _DETAILED else {}),
            "code": self.code,
        }


def not_found_error(plural: str, group: str, name: str) -> StatusError:
    """Build a 404 for a missing object."""
    qualified = f"{plural}.{group}" if group else plural
    message = f'{qualified} "{name}" not found'
    return StatusError(404, "NotFound", message, kind=plural, group=group, name=name)


def already_exists(plural: str, group: str, name: str) -> StatusError:
    """Build a 409 for a create of an existing object."""
    qualified = f"{plural}.{group}" if group else plural
    message = f'{qualified} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, kind=plural, group=group, name=name)


def conflict(plural: str, group: str, name: str, why: str = "") -> StatusError:
    """Build a 409 for an update of an outdated version of an object."""
    qualified = f"{plural}.{group}" if group else plural
    why = why or (
        "the object has been modified; please apply your changes to the latest version "
        "and try again"
    )
    message = f'Operation cannot be fulfilled on {qualified} "{name}": {why}'
    return StatusError(409, "Conflict", message, kind=plural, group=group, name=name)


def invalid_error(kind: str, group: str, name: str, causes: Sequence[Cause]) -> StatusError:
    """Build a 422 with one cause per violation."""
    qualified = f"{kind}.{group}" if group else kind
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    whole = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    message = f'{qualified} "{name}" is invalid: {whole}'
    return StatusError(422, "Invalid", message, kind=kind, group=group, name=name, causes=causes)


def bad_request(message: str) -> StatusError:
    """400."""
    return StatusError(400, "BadRequest", message)


def undecodable(resource: Resource, why: str, kind: str = "") -> StatusError:
    """Build a 400 for a body that is no object of the resource. ``kind``: the kind that it says."""
    return bad_request(
        f'{kind or resource.kind} in version "{resource.version}" cannot be handled as a '
        f"{resource.kind}: {why}"
    )


def strict_decoding(problems: Iterable[str]) -> str:
    """Return why a body is refused that is decoded strictly."""
    return f"strict decoding error: {', '.join(problems)}"


def expired(message: str) -> StatusError:
    """Build a 410 for a revision that is older than the retained history."""
    return StatusError(410, "Expired", message)


def forbidden_error(plural: str, group: str, name: str, why: str) -> StatusError:
    """Build a 403 for an object."""
    qualified = f"{plural}.{group}" if group else plural
    quoted = f' "{name}"' if name else ""
    message = f"{qualified}{quoted} is forbidden: {why}"
    return StatusError(403, "Forbidden", message, kind=plural, group=group, name=name)


def too_large_version(requested: int, current: int) -> StatusError:
    """Build a 504 for a requested revision that has not been reached."""
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    cause = Cause("ResourceVersionTooLarge", "Too large resource version", "")
    error = StatusError(504, "Timeout", message, causes=[cause])
    error.retry_after = 1
    return error


def unavailable_error(message: str) -> StatusError:
    """Build a 503."""
    error = StatusError(503, "ServiceUnavailable", message)
    error.retry_after = 1
    return error


def storage_full(why: str) -> StatusError:
    """Build a 507. Without a `Retry-After`, so that clients report it at once."""
    message = f"the object was not written: {why}. Reads are served, and writes once there is space"
    return StatusError(507, "InsufficientStorage", message)
