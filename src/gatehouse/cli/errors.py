"""Error that ends a command with a one-line message."""

from __future__ import annotations


class CLIError(Exception):
    """Error that the user can correct. The message is shown without a traceback."""
