"""Every field of the kinds that Gatehouse serves is read or reported, by both proxies."""

from __future__ import annotations

import pytest
import served_fields

from fakes.field_effects import Effects
from gatehouse.apis.gateway import ENVOY_CONTROLLER, NGINX_CONTROLLER

FIXED = {"uncovered": "fixed"}


def test_every_kind_is_tested_or_named() -> None:
    assert set(served_fields.KINDS) | served_fields.UNTESTED_KINDS == set(served_fields.schemas())
    assert not set(served_fields.KINDS) & served_fields.UNTESTED_KINDS


def test_exceptions_are_fields_and_have_reasons() -> None:
    for (kind, path), support in served_fields.exceptions().items():
        assert path in served_fields.supports(kind), (kind, path)
        assert support.note or {support.nginx, support.envoy} <= {"served", "reported"}


@pytest.mark.long
@pytest.mark.parametrize("controller", [NGINX_CONTROLLER, ENVOY_CONTROLLER])
def test_every_field_has_the_effect_that_the_table_says(controller: str) -> None:
    effects = Effects(controller)
    for kind in served_fields.KINDS:
        observed = {
            path: FIXED.get(effect, effect) for path, effect in effects.of_kind(kind).items()
        }
        side = 0 if controller == NGINX_CONTROLLER else 1
        assert observed == {path: both[side] for path, both in served_fields.supports(kind).items()}
