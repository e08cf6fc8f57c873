"""Modules that commands import: what a process does not use costs start time and memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gatehouse.cli.main import MODULES

_PROXIES = ("envoy", "gatehouse.compiler")
_API_SERVER = ("kube_api_server", "cel_expr_python")
UNUSED = {
    "agent": (
        *_PROXIES,
        *_API_SERVER,
        "aiohttp",
        "grpc",
        "cryptography",
        "gatehouse.controller",
    ),
    "apiserver": (*_PROXIES, "grpc", "gatehouse.controller"),
    "controller": (*_API_SERVER, "aiohttp.web_server"),
    "explain": (*_API_SERVER, "aiohttp.web_server"),
    "node": (*_PROXIES, *_API_SERVER, "grpc", "cryptography", "jwt"),
    "node-proxy": (*_PROXIES, *_API_SERVER, "aiohttp", "re2"),
    "ratelimit": (*_API_SERVER, "aiohttp", "re2"),
    "status": (*_API_SERVER, "aiohttp.web_server"),
    "up": (*_PROXIES, "google.protobuf", "grpc", "jwt"),
}
"""Packages that the process of a command must not import, by command."""

_NO_TRUST = "import ssl; ssl.SSLContext.set_default_verify_paths = None; "
"""Makes a process fail that loads the CA certificates of the machine."""

_IMPORT = "import sys; from gatehouse.cli.main import command; command.get_command(None, {!r}); "


def output(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.process
@pytest.mark.parametrize("name", UNUSED)
def test_commands_import_no_unused_packages(name: str) -> None:
    imported = set(output(_IMPORT.format(name) + "print(*sys.modules)").split())
    assert f"gatehouse.cli.{MODULES[name]}" in imported
    assert imported.isdisjoint(UNUSED[name])


@pytest.mark.process
def test_commands_are_imported_without_collections_of_garbage() -> None:
    code = (
        "import gc; from gatehouse.cli.main import command; gc.collect(); phases = []; "
        "gc.callbacks.append(lambda phase, _: phases.append(phase)); "
        "command.get_command(None, 'apiserver'); "
        "print(phases, gc.isenabled(), len(gc.get_objects()) < gc.get_freeze_count())"
    )
    assert output(code) == "[] True True\n"


@pytest.mark.process
def test_no_import_loads_the_certificates_of_the_machine() -> None:
    every = "".join(map(_IMPORT.format, MODULES))
    assert "aiohttp" in output(f"{_NO_TRUST}{every}print(*sys.modules)").split()
    reviewer = "from gatehouse.sidecars import __main__"
    code = f"{_NO_TRUST}import sys; sys.argv = ['', 'reviewer', '/nowhere', '0']; {reviewer}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "FileNotFoundError" in done.stderr, done.stderr


def test_connection_without_named_trust_trusts_nothing() -> None:
    code = (
        f"{_IMPORT.format('status')}import aiohttp.connector as connector, ssl; "
        "context = connector._SSL_CONTEXT_VERIFIED; "
        "print(context.cert_store_stats()['x509_ca'], context.check_hostname, "
        "context.verify_mode == ssl.CERT_REQUIRED)"
    )
    assert output(code) == "0 True True\n"
