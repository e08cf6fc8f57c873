"""Maps that the logs of requests and of connections share."""

from __future__ import annotations

from collections.abc import Iterable

from gatehouse.compiler.backends.nginx.directives import Directive, map_block


def time_map(source: str, rest: str) -> Directive:
    """Return the map of the time with milliseconds.

    ``rest``: the pattern of what follows both times in the source, whose variables it sets.
    """
    pattern = (
        r"~^(?<gh_log_date>[^ ]+?)(?<gh_log_zone>[+-]\d\d:\d\d) \d+(?<gh_log_ms>\.\d+) " + rest
    )
    rows = {f'"{pattern}"': '"${gh_log_date}${gh_log_ms}${gh_log_zone}"'}
    return map_block(source, "$gh_log_time", rows, "$time_iso8601")


def reason_map(source: str, reasons: Iterable[tuple[str, str]]) -> Directive:
    """Return the map of the reason, by patterns of which the first that matches counts."""
    rows = {f'"~{pattern}"': str(value) for pattern, value in reasons}
    return map_block(source, "$gh_log_reason", rows)
