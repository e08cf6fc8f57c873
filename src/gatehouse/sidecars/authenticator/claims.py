"""Claims: what rules ask of them, and what backends are told. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import re2

from gatehouse.sidecars.authenticator.config import Claim, Party

_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


def authorized(party: Party, claims: Mapping[str, Any]) -> bool:
    """Whether claims are as a party's rules ask."""
    met = [
        (all if rule.every else any)(_held(each, claims) for each in rule.claims)
        for rule in party.rules
    ]
    return not met or (all(met) if party.every else any(met))


def _held(wanted: Claim, claims: Mapping[str, Any]) -> bool:
    found = _texts(claims.get(wanted.name))
    if not wanted.values:
        return bool(found)
    if wanted.regex:
        # RE2: a user's own claims are matched in linear time.
        return any(re2.fullmatch(each, text) for each in wanted.values for text in found)
    return not {*wanted.values}.isdisjoint(found)


def claim_text(value: Any) -> str:
    """Give a claim as a header's value: of a list, its entries joined by commas."""
    return _CONTROL.sub(" ", ",".join(_texts(value))).strip()


def _texts(value: Any) -> list[str]:
    """Give what is there to compare: of a list each entry, of nothing nothing."""
    entries = value if isinstance(value, list) else [value]
    texts = [each if isinstance(each, str) else _written(each) for each in entries]
    return [text for text in texts if text]


def _written(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
