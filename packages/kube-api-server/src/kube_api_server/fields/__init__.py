"""Field ownership: managedFields and server-side apply.

https://kubernetes.io/docs/reference/using-api/server-side-apply

:mod:`sets` implements field sets, :mod:`typed` finds fields in values, and :mod:`managed_fields`
records managers and applies objects. Never here: storage, HTTP.
"""

from __future__ import annotations

from kube_api_server.fields.managed_fields import (
    ConflictsError,
    FieldConflict,
    apply_fields,
    render_conflicts,
    update,
)

__all__ = ["FieldConflict", "ConflictsError", "apply_fields", "render_conflicts", "update"]
