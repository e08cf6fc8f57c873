"""Reasons for which a patch cannot be applied."""

from __future__ import annotations


class PatchFailedError(Exception):
    """A patch that cannot be applied. The message says why."""


class MalformedPatchError(PatchFailedError):
    """The patch is invalid for every object."""


class OversizedPatchError(PatchFailedError):
    """The patch is too long, or copies too much."""


class InapplicablePatchError(PatchFailedError):
    """The patch does not fit this object."""
