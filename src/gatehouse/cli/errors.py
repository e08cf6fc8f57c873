"""What ends a command with one clear line."""

from __future__ import annotations


class CLIError(Exception):
    """Something the user can understand and mend; the message is all they need."""
