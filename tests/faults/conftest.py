"""Fixtures of fault tests: agents, and a running installation."""

from __future__ import annotations

from fakes.agent_fixtures import control_plane, plane, tmp_path
from fakes.installation_fixtures import installation, options

__all__ = ["control_plane", "installation", "options", "plane", "tmp_path"]
