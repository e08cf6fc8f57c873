"""Every field of the kinds that Gatehouse serves is read or reported, by both proxies."""

from __future__ import annotations

from itertools import chain

import pytest
import served_fields

from fakes.field_effects import Effects
from gatehouse.apis.gateway import ENVOY_CONTROLLER, NGINX_CONTROLLER
from gatehouse.compiler.frontends import combined, external_load_balancer


def test_every_kind_is_tested_or_read_by_no_component() -> None:
    unread, tested = set(served_fields.UNREAD_KINDS), set(served_fields.KINDS)
    assert unread | tested == set(served_fields.schemas())
    assert not unread & tested
    read = chain(combined.KINDS, external_load_balancer.LOAD_BALANCER_FRONT_END.kinds)
    assert not unread & {kind.resource.kind for kind in read}


def test_exceptions_are_fields_and_have_reasons() -> None:
    for (kind, path), support in served_fields.exceptions().items():
        fields = served_fields.supports(kind).items()
        below = [effects for field, effects in fields if field.startswith(path)]
        assert support in below, (kind, path)
        assert support.note or {support.nginx, support.envoy} <= {"served", "reported", "fixed"}


CASES = [
    (controller, kind)
    for controller in (NGINX_CONTROLLER, ENVOY_CONTROLLER)
    for kind in served_fields.KINDS
    if controller == ENVOY_CONTROLLER or kind not in served_fields.ENVOY_KINDS
]


@pytest.mark.long
@pytest.mark.parametrize(("controller", "kind"), CASES)
def test_every_field_has_the_effect_that_the_table_says(controller: str, kind: str) -> None:
    observed = Effects.of(controller).of_kind(kind)
    side = 0 if controller == NGINX_CONTROLLER else 1
    assert observed == {path: both[side] for path, both in served_fields.supports(kind).items()}
