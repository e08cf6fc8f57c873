"""Messages about what a data plane does not support or rejects."""

from __future__ import annotations

from collections.abc import Iterable

from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.origin import NO_ORIGIN, Origin


def messages(parts: Iterable[Unsupported]) -> tuple[str, ...]:
    """Return the reasons without duplicates, each after the settings that it is about."""
    fields: dict[tuple[Origin, str], dict[str, None]] = {}
    for part in parts:
        key = part.setting.whole, part.reason
        fields.setdefault(key, {})[f"spec.{part.setting.part}"] = None
    return tuple(
        why if setting == NO_ORIGIN else f"{setting}: {', '.join(names)}: {why}"
        for (setting, why), names in fields.items()
    )
