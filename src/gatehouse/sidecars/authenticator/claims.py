"""Claims: authorization by rules, and values for backends. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import re2

from gatehouse.sidecars.authenticator.config import ClaimConfig, Party
from kube_base.runtime.quiet_re2 import quiet_options

_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


def authorized(party: Party, claims: Mapping[str, Any]) -> bool:
    """Return whether claims satisfy a party's rules."""
    results = [
        (all if rule.every else any)(_matches(claim, claims) for claim in rule.claims)
        for rule in party.rules
    ]
    return not results or (all(results) if party.every else any(results))


def _matches(claim: ClaimConfig, claims: Mapping[str, Any]) -> bool:
    texts = _texts(claims.get(claim.name))
    if not claim.values:
        return bool(texts)
    if claim.regex:
        # RE2 matches in linear time, because users control their claims.
        options = quiet_options()
        return any(re2.fullmatch(value, text, options) for value in claim.values for text in texts)
    return not {*claim.values}.isdisjoint(texts)


def claim_text(value: Any) -> str:
    """Return a claim as a header value. List entries are joined by commas."""
    return _CONTROL.sub(" ", ",".join(_texts(value))).strip()


def _texts(value: Any) -> list[str]:
    """Return the values to compare: the entries of a list, or nothing for a missing claim."""
    entries = value if isinstance(value, list) else [value]
    texts = [entry if isinstance(entry, str) else _to_text(entry) for entry in entries]
    return [text for text in texts if text]


def _to_text(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
