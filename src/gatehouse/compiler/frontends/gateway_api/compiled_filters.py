"""Result of translating the filters of a rule or backend."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from gatehouse.compiler.frontends.gateway_api.cluster_key import ClusterKey
from gatehouse.compiler.frontends.gateway_api.findings import Finding
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.gateway import SecretFile


class Filters(msgspec.Struct, frozen=True):
    """Translated filters of one rule or backend."""

    route: ir.Route = ir.Route()
    """The fields of the route, and of its action, that the filters set."""
    secrets: tuple[SecretFile, ...] = ()
    """Secrets that the route refers to."""
    clusters: tuple[ClusterKey, ...] = ()
    """Clusters that the route refers to."""
    notes: tuple[Finding, ...] = ()
    """Findings about invalid mirrors, without which requests are served, and about filters that
    a proxy rejected and tests again."""
    findings: tuple[Finding, ...] = ()
    """Findings about invalid filters. The rule or backend then answers 500."""

    @property
    def answer(self) -> ir.Action | None:
        """Response of the gateway itself, so that the rule needs no backend."""
        return None if isinstance(self.route.action, ir.Forward) else self.route.action

    def merge(self, added: Filters, *, last_applies: bool = False) -> Filters | None:
        """Return both together; None if both set a field that takes one value.

        ``last_applies``: use the added value instead of None.
        """
        return _merge(self, added, last_applies=last_applies)


_Part = TypeVar("_Part", bound=msgspec.Struct)


def _merge(before: _Part, added: _Part, *, last_applies: bool) -> _Part | None:
    changes: dict[str, object] = {}
    for name, default in zip(before.__struct_fields__, before.__struct_defaults__, strict=True):
        old, new = getattr(before, name), getattr(added, name)
        if new == default:
            continue
        value = new if old == default else _both(old, new, last_applies=last_applies)
        if value is None:
            return None
        changes[name] = value
    return msgspec.structs.replace(before, **changes)


def _both(old: object, new: object, *, last_applies: bool) -> object | None:
    """Return two values of a field as one; None if it takes one value."""
    match old, new:
        case tuple(), tuple():
            return (*old, *new)
        case ir.Route(), ir.Route():
            return _merge(old, new, last_applies=last_applies)
        case ir.Forward(), ir.Forward():
            return _merge(old, new, last_applies=last_applies)
        # The gateway answers itself, whatever changes of forwarded requests the rule has.
        case ir.Forward(), _:
            return new
        case _, ir.Forward():
            return old
    return new if last_applies else None
