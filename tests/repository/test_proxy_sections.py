"""Settings in the IR that only one back end reads are in the section of its proxy."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import msgspec
import pytest

import gatehouse
from gatehouse.compiler.ir import access_log, proxy_settings, settings
from gatehouse.dataplane.origin import Origin

BACK_ENDS = Path(gatehouse.__file__).parent / "compiler" / "backends"

NEUTRAL = (
    settings.ClientSettings,
    settings.ProxySettings,
    settings.RateLimit,
    settings.RateLimits,
    settings.Settings,
    settings.UpstreamSettings,
    settings.ClientAddress,
    settings.Compression,
    settings.DataPlaneSettings,
    settings.NameResolution,
    access_log.AccessLog,
)

COMMON = {"nginx", "envoy", "sources", "origin", "origins"}
"""Sections, and fields that say where settings come from."""

READ_AS = {"balancing": "effective_balancing"}
"""Properties by which back ends read fields."""

SECTIONS = [value for value in vars(proxy_settings).values() if isinstance(value, type)]


@functools.cache
def attributes(package: str) -> set[str]:
    """Return the names of all attributes that the modules of a back end read."""
    return {
        node.attr
        for path in (BACK_ENDS / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
    }


@pytest.mark.parametrize("struct", NEUTRAL, ids=lambda struct: struct.__name__)
def test_neutral_settings_are_read_by_both_back_ends(struct: type[msgspec.Struct]) -> None:
    fields = {READ_AS.get(field, field) for field in struct.__struct_fields__} - COMMON
    unread = {package: fields - attributes(package) for package in ("nginx", "envoy")}
    assert unread == {"nginx": set(), "envoy": set()}


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_section_has_the_name_of_its_proxy(section: type) -> None:
    general = (proxy_settings.ProxyOnly, proxy_settings.Buffers, Origin)
    if section not in general:
        assert section.__name__.startswith(("Nginx", "Envoy"))


def test_nginx_reads_no_section_of_envoy() -> None:
    assert "envoy" not in attributes("nginx")
