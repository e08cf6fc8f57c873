"""Who owns which field: managedFields, and server-side apply.

https://kubernetes.io/docs/reference/using-api/server-side-apply

:mod:`sets` holds sets of fields, :mod:`typed` finds them in values, :mod:`managers` keeps books.
"""

from __future__ import annotations

from gatehouse.apiserver.fields.managed_fields import (
    Conflict,
    ConflictsError,
    apply,
    render,
    update,
)

__all__ = ["Conflict", "ConflictsError", "apply", "render", "update"]
