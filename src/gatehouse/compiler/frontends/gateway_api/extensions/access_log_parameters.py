"""Translation of ``logging.accessLog`` of parameters to IR. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gatehouse.apis import data_plane_parameters as api
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import FieldParser
from gatehouse.compiler.ir.access_log import AccessLog, Escape, NginxLogFormat, Style

_CLASSES = {f"{number}xx": number for number in range(1, 6)}
_STYLES: Mapping[str, Style] = {"json": "json", "text": "text"}
_ESCAPES: Mapping[Any, Escape] = {"default": "default", "json": "json", "none": "none"}


def parse_access_log(parse: FieldParser, requested: api.LoggingSpec | None) -> AccessLog | None:
    """Return the settings of the log; None if it is disabled."""
    settings = requested.access_log if requested is not None else None
    if settings is None:
        return AccessLog()
    problems: list[str] = []
    classes = settings.get("statusClasses") or []
    if not isinstance(classes, list) or not set(map(str, classes)) <= set(_CLASSES):
        problems.append(f"statusClasses: must be of {', '.join(_CLASSES)}")
        classes = []
    percent = settings.get("samplePercent", 100)
    if not isinstance(percent, int) or not 1 <= percent <= 100:
        problems.append("samplePercent: must be from 1 to 100")
        percent = 100
    text = settings.get("format") or ""
    if not isinstance(text, str):
        problems.append("format: must be a text")
        text = ""
    # Also of an NginxProxy: the same text for each request would be of no use.
    style = _STYLES.get(text)
    escape = _ESCAPES.get(str(settings.get("escape", "default")))
    if escape is None:
        problems.append(f"escape: must be one of {', '.join(_ESCAPES)}")
    parse.problems += [f"spec.logging.accessLog.{problem}" for problem in problems]
    if settings.get("disable") is True:
        return None
    return AccessLog(
        tuple(sorted({_CLASSES[str(name)] for name in classes})),
        percent,
        style or "json",
        NginxLogFormat("" if style else text, escape or "default"),
    )
