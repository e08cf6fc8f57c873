"""Options of RE2 for the expressions of users."""

from __future__ import annotations

import re2


def quiet_options() -> re2.Options:
    """Return options with which RE2 raises errors and does not write them to standard error."""
    options = re2.Options()
    options.log_errors = False
    return options
