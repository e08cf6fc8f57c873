"""NGINX's module of traces: the agent loads it only if NGINX accepts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.agent.nginx import main_conf, paths
from gatehouse.agent.nginx.binary import NginxBinary, find_nginx_binary, probe_nginx

FILES = ["gatehouse/http.conf", "gatehouse/traces.conf"]


def nginx(directory: Path, *, accepts: bool = True) -> NginxBinary:
    """Return an NGINX that accepts every configuration that loads a module, or none."""
    script = directory / "nginx"
    script.write_text(
        f'#!/bin/sh\ngrep -q "^load_module \\"/" "$4" && exit {0 if accepts else 1}\n'
    )
    script.chmod(0o755)
    return NginxBinary(script, "1.31.3", f"--modules-path={directory}/modules")


def add_module(directory: Path) -> Path:
    """Write the file of the module."""
    module = directory / "modules" / "ngx_otel_module.so"
    module.parent.mkdir(exist_ok=True)
    module.write_bytes(b"\x7fELF")
    return module


def first_line(binary: NginxBinary, files: list[str]) -> str:
    at = paths.nginx_paths(Path("/r"), Path("/run/g"))
    return main_conf.render_main_conf(binary, at, "v=", files, shutdown=60).splitlines()[0]


def test_module_is_loaded_for_file_sets_with_traces(tmp_path: Path) -> None:
    module = add_module(tmp_path)
    binary = nginx(tmp_path)
    assert binary.trace_module == module
    assert first_line(binary, FILES) == f'load_module "{module}";'
    assert "load_module" not in first_line(binary, FILES[:1])


def test_missing_module_is_not_loaded(tmp_path: Path) -> None:
    binary = nginx(tmp_path)
    assert binary.trace_module is None
    assert "load_module" not in first_line(binary, FILES)


def test_module_that_nginx_rejects_is_not_loaded(tmp_path: Path) -> None:
    add_module(tmp_path)
    assert nginx(tmp_path, accepts=False).trace_module is None


def test_real_nginx_rejects_a_broken_module(tmp_path: Path) -> None:
    add_module(tmp_path)
    real = probe_nginx(find_nginx_binary(None))
    broken = NginxBinary(real.path, real.version, f"--modules-path={tmp_path}/modules")
    assert broken.trace_module is None


@pytest.mark.parametrize("name", ['a"b', "a b", "a;b", "a$b"])
def test_path_that_needs_quotes_is_not_loaded(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    directory.mkdir()
    add_module(directory)
    assert nginx(directory).trace_module is None
