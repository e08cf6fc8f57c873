"""Values that a hostile agent reports, in the compiler: versions and messages of NGINX."""

from __future__ import annotations

import pytest

from fakes.cpu_growth import assert_linear
from gatehouse.compiler.backends.nginx import names, snippets, tracing
from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.transports.agents import main_file

MAX_CHARACTERS = 500_000


@pytest.mark.parametrize(
    "text", ["1" * 5000, "1." * 5000, f"1.2.{'3' * 5000}", "1" * 4999 + ".1.1"]
)
def test_versions_of_any_length_are_read(text: str) -> None:
    assert NginxCapabilities.parse(text).version
    assert NginxCapabilities.parse(f"1.31.3 (nginx-plus-r{text})").version == (1, 31, 3)
    assert isinstance(main_file._version(text), tuple)


@pytest.mark.parametrize("text", ["1", "1.", "1.1", "nginx-plus-r1"])
def test_versions_are_read_in_linear_time(text: str) -> None:
    assert_linear(NginxCapabilities.parse, lambda size: text * size, MAX_CHARACTERS)


@pytest.mark.parametrize(
    "text",
    [
        f" in {names.ROOT}/", f"{names.ROOT}/", "bind() to :1", "bind() to ", ".conf:1", ".conf:",
        f"{names.ROOT}/tls/",
    ],
)  # fmt: skip
def test_messages_of_nginx_are_traced_in_linear_time(text: str) -> None:
    gateway = GatewayConfiguration("a")
    capabilities = NginxCapabilities.parse("1.31.3")

    def trace(message: str) -> None:
        assert tracing.suspects(gateway, capabilities, message) == ()

    assert_linear(trace, lambda size: f" in {text * size}", MAX_CHARACTERS)


def test_line_numbers_of_any_length_are_no_places() -> None:
    gateway = GatewayConfiguration("a")
    capabilities = NginxCapabilities.parse("1.31.3")
    for message in (f" in {names.ROOT}/http.conf:{'1' * 5000}", f"bind() to :{'1' * 5000} failed"):
        assert tracing.suspects(gateway, capabilities, message) == ()


@pytest.mark.parametrize("text", ["${", "a;", "a\n", '"\\', "{}"])
def test_snippets_are_checked_in_linear_time(text: str) -> None:
    assert_linear(snippets.syntax_error, lambda size: text * size, MAX_CHARACTERS)
