"""Responses to patches that cannot be applied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kube_api_server.errors import StatusError
from kube_base.types.patches.errors import (
    InapplicablePatchError,
    MalformedPatchError,
    OversizedPatchError,
    PatchFailedError,
)

_RESPONSES: dict[type[PatchFailedError], tuple[int, str]] = {
    MalformedPatchError: (400, "BadRequest"),
    OversizedPatchError: (413, "RequestEntityTooLarge"),
    InapplicablePatchError: (422, "Invalid"),
}


@contextmanager
def patch_failures_answered() -> Iterator[None]:
    """Raise a StatusError with the response in place of a PatchFailedError."""
    try:
        yield
    except PatchFailedError as error:
        code, reason = _RESPONSES[type(error)]
        raise StatusError(code, reason, str(error)) from error
