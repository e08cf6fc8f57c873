"""Formatting of values in Kubernetes' messages."""

from __future__ import annotations

from typing import Any

import msgspec

_ESCAPES = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


def format_value(value: Any) -> str:
    """Format a value for use after `Invalid value:`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str):
        return quote_go(value)
    return msgspec.json.encode(value, order="sorted").decode().translate(_ESCAPES)


def quote_go(text: str) -> str:
    """Quote a text as Go's %q does."""
    parts = []
    for character in text:
        if character in '"\\':
            parts.append("\\" + character)
        elif character.isprintable():
            parts.append(character)
        elif character in "\n\t\r\a\b\f\v":
            parts.append(repr(character)[1:-1].replace("\\x07", "\\a").replace("\\x08", "\\b"))
        elif ord(character) < 0x80:
            parts.append(f"\\x{ord(character):02x}")
        elif ord(character) < 0x10000:
            parts.append(f"\\u{ord(character):04x}")
        else:
            parts.append(f"\\U{ord(character):08x}")
    return f'"{"".join(parts)}"'
