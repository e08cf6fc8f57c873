"""Licence and usage reporting of NGINX Plus, and snippets that replace it."""

from __future__ import annotations

import pytest

from gatehouse.compiler.backends.nginx import usage_reporting as block
from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.backends.nginx.directives import format_directives
from gatehouse.compiler.backends.nginx.snippets import outermost
from gatehouse.controller import plus_usage
from gatehouse.controller.provisioner.copied_secrets import SecretSource

LICENSE = [SecretSource.parse("license=system/plus")]
R33, R36 = (NginxCapabilities.parse(f"1.27.2 (nginx-plus-r{release})") for release in (33, 36))


def test_no_mgmt_block_without_licence() -> None:
    assert (
        plus_usage.reports(plus_usage.parse_plus_usage('{"endpoint": "nim.example"}'), []) is None
    )


def test_licence_alone_keeps_defaults_of_nginx_plus() -> None:
    reports = plus_usage.reports(plus_usage.parse_plus_usage(""), LICENSE)
    assert format_directives(block.directives(reports, R36)) == (
        "mgmt {\n"
        '    license_token "/etc/gatehouse/plus/license/license.jwt";\n'
        '    state_path "/var/lib/gatehouse/state";\n'
        "}\n"
    )


@pytest.mark.parametrize("version", ["1.31.3", "1.25.5 (nginx-plus-r32)"])
def test_no_mgmt_block_for_releases_without_licence(version: str) -> None:
    reports = plus_usage.reports(plus_usage.parse_plus_usage('{"proxy": "p:1"}'), LICENSE)
    capabilities = NginxCapabilities.parse(version)
    assert block.directives(reports, capabilities) == []
    assert block.unsupported_usage_reporting(reports, capabilities) == []


def test_unsupported_usage_proxy_is_omitted_and_reported() -> None:
    reports = plus_usage.reports(
        plus_usage.parse_plus_usage('{"proxy": "p:1", "endpoint": "nim.example"}'), LICENSE
    )
    text = format_directives(block.directives(reports, R33))
    assert "proxy" not in text
    assert '"endpoint=nim.example"' in text
    assert block.unsupported_usage_reporting(reports, R33) == [
        "usage reports through a proxy require NGINX Plus R34 or newer"
    ]
    assert block.unsupported_usage_reporting(reports, R36) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"endpoint": "a; }"}', "endpoint"),
        ('{"endpoint": "https://nim.example"}', "endpoint"),
        ('{"proxy": "p:1;"}', "proxy"),
        ('{"resolver": "10.0.0.1 ipv6=off"}', "resolver"),
        ('{"enforce": true}', "enforce"),
        ('{"skipVerify": "yes"}', "skipVerify"),
        ("[]", "object"),
        ("{", "truncated"),
    ],
)
def test_invalid_options_are_rejected_by_name(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plus_usage.parse_plus_usage(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", set()),
        ("a 1; b { c 2; d { e; } } f;", {"a", "b", "f"}),
        ("# mgmt { }\nset $x 'mgmt {';", {"set"}),
        ("mgmt{license_token x;}", {"mgmt"}),
    ],
)
def test_top_level_directives_are_found_by_name(text: str, names: set[str]) -> None:
    assert outermost(text) == names
