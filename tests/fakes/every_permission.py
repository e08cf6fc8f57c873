"""Objects and changes for which a controller uses each of its permissions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

KINDS = Path(__file__).parents[1] / "cluster" / "kinds.yaml"
"""Manifests: an object of each kind that the controller reads, in the namespace ``kinds``."""

_DAEMON_SET: dict[str, Any] = {"deployment": None, "daemonSet": {}}

STEPS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("gateway/gw", {"infrastructure": {"labels": {"step": "1"}}}, "update deployments"),
    ("gatewayparameters/all", {"kubernetes": _DAEMON_SET}, "create daemonsets"),
    ("gateway/gw", {"infrastructure": {"labels": {"step": "2"}}}, "update daemonsets"),
    ("gateway/gw", {"gatewayClassName": "gatehouse-envoy"}, "delete serviceaccounts"),
)
"""Changes of these objects: object, new part of its spec, and a request that follows."""
