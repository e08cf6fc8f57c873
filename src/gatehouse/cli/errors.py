"""Error that ends a command with a one-line message."""

from __future__ import annotations

from gatehouse.inspection.errors import InspectionError


class CLIError(InspectionError):
    """Error of a command line that the user can correct."""
