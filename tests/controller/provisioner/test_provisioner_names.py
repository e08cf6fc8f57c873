"""Names of everything made for a Gateway are valid, stable and never shared."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from gatehouse.controller.provisioner import names

SUBDOMAIN = r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?){0,5}"
dns_names = st.from_regex(SUBDOMAIN, fullmatch=True).filter(lambda name: len(name) <= 253)


def test_short_name_consists_of_gateway_and_class() -> None:
    assert names.resource_name("cafe", "gatehouse-nginx") == "cafe-gatehouse-nginx"


def test_long_name_is_truncated_to_63_characters_with_digest() -> None:
    assert names.resource_name("a" * 47, "gatehouse-nginx") == "a" * 47 + "-gatehouse-nginx"
    longer = names.resource_name("a" * 48, "gatehouse-nginx")
    assert len(longer) == 63
    assert re.fullmatch(r"a{48}-gateh-[0-9a-f]{8}", longer)


def test_truncated_names_are_distinct() -> None:
    assert names.resource_name("a" * 80 + "1", "c") != names.resource_name("a" * 80 + "2", "c")


def test_dot_and_leading_digit_are_replaced_in_service_name() -> None:
    assert re.fullmatch(r"a-b-c-[0-9a-f]{8}", names.resource_name("a.b", "c"))
    assert re.fullmatch(r"g-1st-c-[0-9a-f]{8}", names.resource_name("1st", "c"))


@given(dns_names, dns_names)
def test_every_name_is_a_valid_service_name(gateway: str, gateway_class: str) -> None:
    name = names.resource_name(gateway, gateway_class)
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name)
    assert name == names.resource_name(gateway, gateway_class)


@given(dns_names)
def test_every_label_is_a_valid_value(value: str) -> None:
    label = names.label_value(value)
    assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", label)
    assert label == value or len(value) > 63
