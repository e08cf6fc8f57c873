"""Executables that are no proxy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gatehouse.agent.envoy.binary import EnvoyMissingError, probe_envoy
from gatehouse.agent.nginx.binary import NginxMissingError, probe_nginx
from gatehouse.agent.options import ProxyMissingError


@pytest.mark.parametrize(
    ("probe", "missing"),
    [(probe_nginx, NginxMissingError), (probe_envoy, EnvoyMissingError)],
)
def test_executable_that_cannot_be_run_or_is_another_program_is_missing(
    probe: Callable[[Path], object], missing: type[ProxyMissingError], tmp_path: Path
) -> None:
    program = tmp_path / "program"
    with pytest.raises(missing, match=r"program cannot be run: .*No such file"):
        probe(program)
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o700)
    with pytest.raises(missing, match="program is not"):
        probe(program)
