"""Kubernetes' extension functions for CEL.

https://kubernetes.io/docs/reference/using-api/cel/#cel-community-libraries
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import re2
from cel_expr_python import cel

from kube_base.runtime.quiet_re2 import quiet_options
from kube_base.types.ip_addresses import ip_address, ip_network
from kube_base.types.quantities import quantity

_STRING, _BOOL, _INT, _DYN = cel.Type.STRING, cel.Type.BOOL, cel.Type.INT, cel.Type.DYN
_LIST = cel.Type.List(cel.Type.DYN)


def _holds(read: Callable[[str], Any]) -> Callable[[str], bool]:
    def test(text: str) -> bool:
        try:
            read(text)
        except ValueError:
            return False
        return True

    return test


def _address(text: str) -> Any:
    if "%" in text or text.lower().startswith("::ffff:"):
        raise ValueError(f"IP Address {text!r} is not allowed")
    return ip_address(text)


def _network(text: str) -> Any:
    if "/" not in text:
        raise ValueError(f"not a CIDR: {text}")
    return ip_network(text, strict=False)


def _url(text: str) -> Any:
    parts = urlsplit(text)
    if not parts.scheme and not text.startswith("/"):
        raise ValueError(f"URL parse error during conversion from string: {text!r}")
    return parts


def _tagged(kind: str, read: Callable[[str], Any]) -> Callable[[str], dict[str, str]]:
    """Represent a Kubernetes type by a map, because CEL has no such type."""

    def make(text: str) -> dict[str, str]:
        read(text)
        return {"~": kind, "text": text}

    return make


def _compare(left: dict[str, str], right: dict[str, str]) -> int:
    first, second = quantity(left["text"]), quantity(right["text"])
    return (first > second) - (first < second)


def _is_sorted(items: list[Any]) -> bool:
    plain = [_plain(item) for item in items]
    return all(a <= b for a, b in itertools.pairwise(plain))


def _plain(value: Any) -> Any:
    return value.plain_value() if hasattr(value, "plain_value") else value


def _index(items: list[Any], item: Any) -> int:
    plain = [_plain(value) for value in items]
    return plain.index(_plain(item)) if _plain(item) in plain else -1


def _last_index(items: list[Any], item: Any) -> int:
    plain = [_plain(value) for value in items]
    plain_item = _plain(item)
    return len(plain) - 1 - plain[::-1].index(plain_item) if plain_item in plain else -1


def _find(text: str, pattern: str) -> str:
    match = re2.search(pattern, text, quiet_options())
    return str(match.group(0)) if match else ""


def _find_all(text: str, pattern: str) -> list[str]:
    return [str(match.group(0)) for match in re2.finditer(pattern, text, quiet_options())]


def _contains_ip(network: dict[str, str], address: Any) -> bool:
    text = address if isinstance(address, str) else _plain(address)["text"]
    return ip_address(text) in ip_network(network["text"], strict=False)


def _function(
    name: str, result: Any, parameters: list[Any], run: Callable[..., Any], *, member: bool = False
) -> Any:
    identity = f"{name}_{'_'.join(str(p.name()) for p in parameters)}".replace("(", "").replace(
        ")", ""
    )
    overload = cel.Overload(
        identity,
        return_type=result,
        parameters=parameters,
        is_member=member,
        impl=lambda *arguments: run(*map(_plain, arguments)),
    )
    return cel.FunctionDecl(name, [overload])


_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_NAMED = {
    "dns1123Label": (r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", 63),
    "dns1123Subdomain": (_SUBDOMAIN, 253),
    "dns1035Label": (r"[a-z]([-a-z0-9]*[a-z0-9])?", 63),
    "qualifiedName": (rf"(?:(?=[^/]{{1,253}}/){_SUBDOMAIN}/)?(?=.{{1,63}}$){_NAME}", 317),
    "labelValue": (rf"({_NAME})?", 63),
}
"""Named formats: pattern and maximum length in characters."""


def _validate(named: dict[str, str], text: str) -> list[str]:
    """Return the problems of a text; empty for none."""
    pattern, max_length = _NAMED[named["text"]]
    if len(text) <= max_length and re.fullmatch(pattern, text):
        return []
    return [f"must be a {named['text']}"]


def _problems(problems: list[str]) -> list[str]:
    """Return the problems that there are. Raises ValueError for none."""
    if not problems:
        raise ValueError("optional.none() dereference")
    return problems


def _formats() -> list[Any]:
    def maker(name: str) -> Callable[[], dict[str, str]]:
        return lambda: {"~": "format", "text": name}

    named_formats = [_function(f"format.{name}", _DYN, [], maker(name)) for name in _NAMED]
    # Functions in Python cannot return CEL's optional values. A list has the functions of them. Its
    # type is dynamic, since rules may compare an optional value with null, which it never equals.
    return [
        *named_formats,
        _function("validate", _DYN, [_DYN, _STRING], _validate, member=True),
        _function("hasValue", _BOOL, [_LIST], bool, member=True),
        _function("value", _LIST, [_LIST], _problems, member=True),
    ]


def _texts() -> list[Any]:
    """Return the functions on strings."""
    return [
        _function("isIP", _BOOL, [_STRING], _holds(_address)),
        _function("isCIDR", _BOOL, [_STRING], _holds(_network)),
        _function("isURL", _BOOL, [_STRING], _holds(_url)),
        _function("isQuantity", _BOOL, [_STRING], _holds(quantity)),
        _function("ip", _DYN, [_STRING], _tagged("ip", _address)),
        _function("cidr", _DYN, [_STRING], _tagged("cidr", _network)),
        _function("url", _DYN, [_STRING], _tagged("url", _url)),
        _function("quantity", _DYN, [_STRING], _tagged("quantity", quantity)),
        _function("find", _STRING, [_STRING, _STRING], _find, member=True),
        _function("findAll", cel.Type.List(_STRING), [_STRING, _STRING], _find_all, member=True),
    ]


def _of(name: str, result: Any, run: Callable[[str], Any]) -> Any:
    """Return a member function of a tagged value, from a function of its text."""
    return _function(name, result, [_DYN], lambda value: run(value["text"]), member=True)


def _members() -> list[Any]:
    """Return the functions on tagged values."""
    both = [_DYN, _DYN]
    return [
        _of("family", _INT, lambda text: ip_address(text).version),
        _of("isLoopback", _BOOL, lambda text: ip_address(text).is_loopback),
        _of("prefixLength", _INT, lambda text: ip_network(text, strict=False).prefixlen),
        _function("containsIP", _BOOL, both, _contains_ip, member=True),
        _of("getScheme", _STRING, lambda text: urlsplit(text).scheme),
        _of("getHost", _STRING, lambda text: urlsplit(text).netloc),
        _of("getHostname", _STRING, lambda text: urlsplit(text).hostname or ""),
        _of("getPort", _STRING, lambda text: str(urlsplit(text).port or "")),
        _of("getEscapedPath", _STRING, lambda text: urlsplit(text).path),
        _function("isGreaterThan", _BOOL, both, lambda a, b: _compare(a, b) > 0, member=True),
        _function("isLessThan", _BOOL, both, lambda a, b: _compare(a, b) < 0, member=True),
        _function("compareTo", _INT, both, _compare, member=True),
        _of("isInteger", _BOOL, lambda text: quantity(text) == int(quantity(text))),
        _of("asInteger", _INT, lambda text: int(quantity(text))),
    ]


def _lists() -> list[Any]:
    """Return the functions on lists."""
    return [
        _function("isSorted", _BOOL, [_LIST], _is_sorted, member=True),
        _function("sum", _DYN, [_LIST], lambda v: sum(map(_plain, v)), member=True),
        _function("min", _DYN, [_LIST], lambda v: min(map(_plain, v)), member=True),
        _function("max", _DYN, [_LIST], lambda v: max(map(_plain, v)), member=True),
        _function("indexOf", _INT, [_LIST, _DYN], _index, member=True),
        _function("lastIndexOf", _INT, [_LIST, _DYN], _last_index, member=True),
    ]


def functions() -> list[Any]:
    """Return the declarations of all functions."""
    return [*_formats(), *_texts(), *_members(), *_lists()]
