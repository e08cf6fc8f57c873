"""Errors of an apply."""


class ApplyError(Exception):
    """A configuration cannot be applied."""


class RejectedError(ApplyError):
    """NGINX rejects a configuration."""


class UnfinishedTestError(ApplyError):
    """A test of a configuration ended without a result."""
