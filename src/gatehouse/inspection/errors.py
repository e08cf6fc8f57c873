"""Error of a request for a report."""

from __future__ import annotations


class InspectionError(Exception):
    """Error that the user can correct. The message is shown without a traceback."""
