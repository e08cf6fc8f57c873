"""What a write is about: whose, of what, and how."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from gatehouse.apiserver.identity.users import SYSTEM, User
from gatehouse.apiserver.objects.served_resource import ServedResource

Object = dict[str, Any]


class Options(msgspec.Struct, frozen=True):
    """Of one write, from the query."""

    validation: str = "Warn"
    """Unknown fields are an error (Strict), a warning (Warn), or nothing (Ignore)."""
    dry_run: bool = False
    manager: str = "gatehouse"
    """Who owns the fields that are written."""
    force: bool = False
    """Server-side apply takes fields from other managers."""


DEFAULTS = Options()


@dataclasses.dataclass(frozen=True)
class WriteRequest:
    """One request for one object."""

    served: ServedResource
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    options: Options = DEFAULTS
    user: User = SYSTEM

    @property
    def key(self) -> str:
        """The object's key in the store."""
        return self.served.key(self.namespace, self.name)


class WriteResult(msgspec.Struct, frozen=True):
    """What came of a write, and what to warn of."""

    value: Object
    data: bytes
    warnings: tuple[str, ...] = ()
    created: bool = False
