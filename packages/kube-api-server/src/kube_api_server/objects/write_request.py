"""Input and result of a write."""

from __future__ import annotations

import dataclasses

import msgspec

from kube_api_server.identity.users import SYSTEM, User
from kube_api_server.objects.served_resource import Check, ServedResource, no_violations
from kube_base.types.objects import Object


class WriteOptions(msgspec.Struct, frozen=True):
    """Options of a write, from the query."""

    validation: str = "Warn"
    """Unknown and duplicate fields are errors (Strict) or warnings (Warn), or ignored (Ignore)."""
    dry_run: bool = False
    manager: str = "kube-apiserver"
    """Field manager that owns the written fields."""
    force: bool = False
    """True if server-side apply takes over fields of other managers."""


_DEFAULTS = WriteOptions()


@dataclasses.dataclass(frozen=True)
class WriteRequest:
    """One request for one object."""

    served: ServedResource
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    options: WriteOptions = _DEFAULTS
    user: User = SYSTEM
    size: int = 0
    """Size of the request body in bytes. Large objects are processed in a thread."""
    duplicates: tuple[str, ...] = ()
    """Errors or warnings of the duplicate fields of the body, by the validation of the options."""
    is_yaml: bool = False
    """True if the body is YAML, of which duplicates are found before it is decoded."""
    patched: bool = False
    """True for a patch other than an apply. Its result is decoded, and not the body."""
    applied: bool = False
    """True for an apply. The fields of its result have owners already."""
    checked: bool = False
    """True for an object that is known to pass the check of its kind."""
    unowned: bool = False
    """True if no manager becomes the owner of the changed fields."""
    requested: ServedResource | None = None
    """The resource that a request names, if it is an alias of `served`."""

    @property
    def check(self) -> Check:
        """The check of the requested version of the kind, or else of the stored one."""
        alias = self.requested
        return self.served.check if alias is None or alias.check is no_violations else alias.check

    @property
    def key(self) -> str:
        """Store key of the object."""
        return self.served.key(self.namespace, self.name)


class WriteResult(msgspec.Struct, frozen=True):
    """Result of a write, with warnings."""

    value: Object
    data: bytes
    warnings: tuple[str, ...] = ()
    created: bool = False
