"""Shared fixtures of the agent tests."""

from fakes.agent_fixtures import control_plane, plane, tmp_path

__all__ = ["control_plane", "plane", "tmp_path"]
