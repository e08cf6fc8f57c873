"""What tests of faults share."""

from agent_fixtures import control_plane, tmp_path

__all__ = ["control_plane", "tmp_path"]
