"""Errors of an apply."""


class ApplyError(Exception):
    """A configuration cannot be applied."""


class RejectedError(ApplyError):
    """NGINX rejects a configuration."""
