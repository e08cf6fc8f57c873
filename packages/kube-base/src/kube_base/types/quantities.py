"""Parser and canonical form of quantities such as `500m` or `1.5Gi`.

`k8s.io/apimachinery/pkg/api/resource`:
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import re
from decimal import Decimal, DecimalException
from typing import Any

KEYWORD = "x-builtin-quantity"
"""Schema keyword that marks quantity fields of built-in kinds."""

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIXES = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY_SUFFIXES = {0: "", **{power: suffix for suffix, power in _BINARY.items()}}

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?=\.?[0-9])(?P<whole>[0-9]*)(?:\.(?P<rest>[0-9]*))?"
    r"(?:[eE](?P<power>[+-]?[0-9]+)|(?P<suffix>[numkMGTPE]|[KMGTPE]i|))"
)

_MIN_POWER = -9
"""Power of ten of the smallest quantity. Smaller fractions are rounded away from zero."""

_MAX_VALUE = 2**63 - 1
_MAX_CANONICAL_DIGITS = 18
"""Maximum number of digits for which Kubernetes keeps a canonical-looking text unchanged."""

_MAX_CHARACTERS = 1024
"""Maximum length in characters. Longer texts are not accepted as quantities."""

_MAX_POWER = 1000
"""Maximum power of ten, and of its fraction. Others are not accepted: they have as many digits."""


def quantity(text: str) -> Decimal:
    """Parse a quantity such as `1.5Gi`. Raises ValueError."""
    matched = _match(text)
    number = Decimal(f"{matched['sign']}{matched['whole'] or 0}.{matched['rest'] or 0}")
    if matched["suffix"] in _BINARY:
        return number * Decimal(1 << _BINARY[matched["suffix"]])
    try:
        return number * Decimal(f"1e{_power(matched)}")
    except DecimalException as error:
        raise ValueError(f"not a quantity: {text}") from error


def canonical(value: str | float) -> str:
    """Return a quantity in the form in which kube-apiserver returns it: `0.5` becomes `500m`.

    A number that is too large for every suffix is returned unchanged; Go loses its powers of ten.
    Raises ValueError.
    """
    text = _format_number(value) if isinstance(value, int | float) else value.strip()
    matched = _match(text)
    whole, rest = matched["whole"].lstrip("0") or "0", matched["rest"] or ""
    digits = whole + rest
    number, power, binary = int(digits), -len(rest), _BINARY.get(matched["suffix"])
    if not number:
        return "0"
    if binary is None:
        power += _power(matched)
    if _is_unchanged(digits, power, binary):
        return text
    sign = "-" if matched["sign"] == "-" else ""
    if binary is not None:
        number, power = _multiply(number, power, 2**binary)
        if number > _MAX_VALUE * 10**-power:
            number, power = _MAX_VALUE, 0
        if power == 0 and number >= 1024:
            return sign + _in_binary(number)
    formatted = _in_decimal(number, power, exponent=matched["power"] is not None)
    return text if formatted is None else sign + formatted


def canonical_or_same(value: Any) -> Any:
    """Return a quantity in canonical form. Other values are returned unchanged, for validation."""
    try:
        return canonical(value) if isinstance(value, str | int | float) else value
    except ValueError:
        return value


def is_quantity(text: str) -> bool:
    """Return whether a text is a quantity."""
    return _fullmatch(text) is not None


def _fullmatch(text: str) -> re.Match[str] | None:
    matched = _QUANTITY.fullmatch(text) if len(text) <= _MAX_CHARACTERS else None
    return matched if matched and abs(int(matched["power"] or 0)) <= _MAX_POWER else None


def _match(text: str) -> re.Match[str]:
    matched = _fullmatch(text)
    if matched is None:
        raise ValueError("quantities must match the regular expression of resource quantities")
    return matched


def _power(matched: re.Match[str]) -> int:
    return _DECIMAL[matched["suffix"]] if matched["power"] is None else int(matched["power"])


def _format_number(value: float) -> str:
    """Format a number as Go's JSON encoder does, which kubectl uses to convert YAML."""
    if isinstance(value, float) and (1e-6 <= abs(value) < 1e21 or value == 0):
        return format(Decimal(repr(value)), "f").removesuffix(".0")
    return str(value)


def _is_unchanged(digits: str, power: int, binary: int | None) -> bool:
    """Return whether Kubernetes keeps the text unchanged: its quick test for canonical texts."""
    if binary is not None:
        spare_digits = 15 - len(digits) - binary * 3 // 10 - 1
        return power == 0 and spare_digits >= 0 and int(digits) % 8 != 0
    if len(digits) > _MAX_CANONICAL_DIGITS or power < _MIN_POWER:
        return False
    return power % 3 == 0 and not digits.endswith("000") and digits[0] != "0"


def _multiply(number: int, power: int, factor: int) -> tuple[int, int]:
    """Multiply, and move trailing zeros into the power, up to power 0."""
    number *= factor
    while power < 0 and number % 10 == 0:
        number, power = number // 10, power + 1
    return number, power


def _in_binary(number: int) -> str:
    power = 0
    while number >= 1024 and number % 1024 == 0:
        number, power = number // 1024, power + 10
    return f"{number}{_BINARY_SUFFIXES[power]}"


def _in_decimal(number: int, power: int, *, exponent: bool) -> str | None:
    """Format `number` times ten to the `power`; None if no suffix is large enough."""
    if power < _MIN_POWER:
        lost = min(_MIN_POWER - power, len(str(number)) + 1)
        number, power = -(-number // 10**lost), _MIN_POWER
    while number % 10 == 0:
        number, power = number // 10, power + 1
    number, power = number * 10 ** (power % 3), power - power % 3
    if exponent:
        return f"{number}e{power}" if power else str(number)
    suffix = _DECIMAL_SUFFIXES.get(power)
    return None if suffix is None else f"{number}{suffix}"
