"""The extension of the API server by Gatehouse."""

from __future__ import annotations

from importlib import resources

import gatehouse
from gatehouse.apis.objects import Object
from gatehouse.apiserver.controllers.definitions import read_definitions
from gatehouse.apiserver.extension import Extension
from gatehouse.apiserver.fairness.schemas import SystemUsers
from gatehouse.apiserver_extension.data_plane_writes import register_data_plane_check
from gatehouse.apiserver_extension.gate_annotations import register_gate_check
from gatehouse.apiserver_extension.name_conflicts import register_name_checks
from gatehouse.apiserver_extension.recorded_status import register_status_check
from gatehouse.apiserver_extension.roles import CONTROLLER_USER, NODE_USER, gatehouse_roles

_DEFINITIONS = resources.files(__package__) / "bundled"

GATEHOUSE = Extension(
    build=f"gatehouse.{gatehouse.__version__}",
    definitions=_DEFINITIONS,
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
    return read_definitions(_DEFINITIONS)
