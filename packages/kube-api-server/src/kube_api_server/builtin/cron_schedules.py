"""Schedules of CronJobs: five fields or a descriptor, as in https://pkg.go.dev/github.com/robfig/cron/v3."""

from __future__ import annotations

import re
import zoneinfo

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()  # noqa: SIM905
_DAYS = "sun mon tue wed thu fri sat".split()  # noqa: SIM905
_FIELDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    (0, 6, {name: number for number, name in enumerate(_DAYS)}),
)
"""Least and greatest value of each field, and names of values."""
_DESCRIPTORS = frozenset(
    {"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}
)
_EVERY = re.compile(r"@every (?=[0-9])([0-9.]+(ns|us|µs|ms|s|m|h))+")
_ZONE = re.compile(r"(CRON_)?TZ=[^ ]* +")
_ZONE_PART = re.compile(r"[A-Za-z0-9._+][A-Za-z0-9._+-]*")
_MAX_DIGITS = 18
_KNOWN_ZONE = "Europe/London"
"""A zone that only a machine without a database of zones lacks."""


def schedule_problem(text: str) -> str:
    """Return why a text is no schedule; empty if it is one."""
    text = _ZONE.sub("", text, count=1) if "TZ=" in text else text
    if text.startswith("@"):
        known = text in _DESCRIPTORS or _EVERY.fullmatch(text)
        return "" if known else f"unrecognized descriptor: {text}"
    fields = text.split()
    if len(fields) != len(_FIELDS):
        return f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"
    for field, limits in zip(fields, _FIELDS, strict=True):
        for part in field.split(","):
            if problem := _part_problem(part, *limits):
                return problem
    return ""


def _part_problem(part: str, least: int, greatest: int, names: dict[str, int]) -> str:
    """Return why a part of a field is no value, range or step; empty if it is one."""
    span, slash, step = part.partition("/")
    if slash and not _integer(step):
        return f"failed to parse int from {step}"
    if span in ("*", "?"):
        return ""
    ends = [_number(text, names) for text in span.split("-")]
    if len(ends) > 2 or None in ends:
        return f"failed to parse int from {span}"
    values = [value for value in ends if value is not None]
    if values[0] < least:
        return f"beginning of range ({values[0]}) below minimum ({least}): {part}"
    if values[-1] > greatest:
        return f"end of range ({values[-1]}) above maximum ({greatest}): {part}"
    if values[0] > values[-1]:
        return f"beginning of range ({values[0]}) beyond end of range ({values[-1]}): {part}"
    return ""


def _number(text: str, names: dict[str, int]) -> int | None:
    value = _integer(text)
    return names.get(text.lower()) if value is None else value


def _integer(text: str) -> int | None:
    """Return a number of 64 bits; None for another text. Python limits the digits of numbers."""
    if not text.isascii() or not text.isdecimal() or len(text) > _MAX_DIGITS:
        return None
    return int(text)


def zone_problem(name: str) -> str:
    """Return why a text is no time zone; empty if it is one."""
    if not name:
        return "timeZone must be nil or non-empty string"
    if not all(_ZONE_PART.fullmatch(part) and part.strip(".") for part in name.split("/")):
        return f"unknown time zone {name}"
    if name.lower() == "local":
        return (
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        )
    if not _has_zone(name) and _has_zone(_KNOWN_ZONE):
        return f"unknown time zone {name}"
    return ""


def _has_zone(name: str) -> bool:
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
