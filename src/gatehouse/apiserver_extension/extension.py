"""The extension of the API server by Gatehouse."""

from __future__ import annotations

from importlib import resources

import gatehouse
from gatehouse.apiserver_extension.data_plane_writes import register_data_plane_check
from gatehouse.apiserver_extension.gate_annotations import register_gate_check
from gatehouse.apiserver_extension.name_conflicts import register_name_checks
from gatehouse.apiserver_extension.recorded_status import register_status_check
from gatehouse.apiserver_extension.roles import CONTROLLER_USER, NODE_USER, gatehouse_roles
from kube_api_server.controllers.definition_files import read_definitions
from kube_api_server.extension import Extension, OwnNames
from kube_api_server.fairness.schemas import SystemUsers
from kube_api_server.storage.names import StorageNames
from kube_base.types.objects import Object

_DEFINITIONS = resources.files(__package__) / "bundled"

BUNDLED = "gatehouse.dev/bundled-digest"
"""Annotation of a bundled CRD: digest of its spec as bundled.

A newer embedded API server updates bundled CRDs that users have not changed.
"""

SECRET_TYPE = "gatehouse.dev/service-account-signing-keys"  # noqa: S105 - a type, not a secret
"""Type of a Secret: keys of the embedded API server that sign ServiceAccount tokens."""

STORAGE_NAMES = StorageNames(
    database="gatehouse.db",
    etcd_prefix="/gatehouse",
    etcd_password_variable="GATEHOUSE_ETCD_PASSWORD",  # noqa: S106 - a name only
    backup_format="gatehouse-backup/v1",
    encryption_mark="gatehouse:aesgcm:",
    restore_command="gatehouse apiserver restore",
)

OWN_NAMES = OwnNames(
    signing_keys="gatehouse-token-keys",
    signing_keys_type=SECRET_TYPE,
    controllers="gatehouse-controllers",
    definition_digest=BUNDLED,
    storage=STORAGE_NAMES,
    metrics="gatehouse_apiserver",
)

GATEHOUSE = Extension(
    build=f"gatehouse.{gatehouse.__version__}",
    names=OWN_NAMES,
    definitions=_DEFINITIONS,
    definitions_are_checked=True,
    namespaces=("gatehouse-system",),
    roles=gatehouse_roles,
    register_checks=(
        register_data_plane_check,
        register_name_checks,
        register_gate_check,
        register_status_check,
    ),
    system_users=SystemUsers(
        control_plane=frozenset({CONTROLLER_USER}), nodes=frozenset({NODE_USER})
    ),
)


def bundled() -> list[Object]:
    """Return the CRDs that the API server of Gatehouse installs."""
    return read_definitions(_DEFINITIONS, BUNDLED)
