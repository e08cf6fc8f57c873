"""Shared fixtures of the agent tests."""

from fakes.agent_fixtures import control_plane, no_envoy_is_left, plane, tmp_path

__all__ = ["control_plane", "no_envoy_is_left", "plane", "tmp_path"]
