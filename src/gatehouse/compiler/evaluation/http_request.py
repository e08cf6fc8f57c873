"""A request to evaluate, and its parts in the form that matches are compared with. No I/O."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

import msgspec

_CALL = re.compile(r"application/grpc(?:[+;]|$)", re.IGNORECASE)

_DECODED_IN_PATTERNS = re.compile("[A-Za-z0-9._~/-]")


class HttpRequest(msgspec.Struct, frozen=True):
    """An HTTP request as a client sends it."""

    method: str
    host: str
    """Requested host, with the port if the client sends one."""
    target: str
    """Path and query, as sent."""
    port: int
    tls: bool = False
    sni: str = ""
    """Server name of the TLS handshake; empty: none is sent."""
    headers: tuple[tuple[str, str], ...] = ()
    client: str = ""
    """IP address of the client, for connections that pass through; empty: any permitted one."""

    def header(self, name: str) -> str:
        """Return a header's value. Several lines are joined by commas (RFC 9110, 5.2)."""
        return ", ".join(value for key, value in self.headers if key.lower() == name)

    @property
    def is_call(self) -> bool:
        """Return whether the request is a gRPC call, by its Content-Type."""
        return _CALL.match(self.header("content-type")) is not None

    @property
    def hostname(self) -> str:
        """The requested host in lower case, without port and without the dot of a full name."""
        return re.sub(r"\.?(:\d*)?$", "", self.host).lower()

    @property
    def has_valid_host(self) -> bool:
        """Return whether the host is a hostname or an IP address (RFC 9112, 3.2)."""
        pattern = r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]/]+)(:\d*)?"
        return re.fullmatch(pattern, self.host) is not None and ".." not in self.host


_ENCODED_SLASH = re.compile("(%2[Ff]|%5[Cc])")


def normalize_path(target: str, *, bounded: bool = False, merge: bool = True) -> bytes | None:
    """Return the decoded path without dot segments and repeated slashes (RFC 3986, 6.2.2).

    None if proxies reject the path: it leads above the root, or contains NUL or an invalid escape.
    ``bounded``: the root is its own parent, as for Envoy. ``merge``: False if repeated and encoded
    slashes stay, so that dot segments between encoded ones are rejected.
    """
    path = target.partition("?")[0]
    if re.search(r"%(?![0-9A-Fa-f]{2})", path):
        return None
    if merge:
        decoded = unquote_to_bytes(path)
        return None if b"\0" in decoded else _without_dot_segments(decoded, bounded=bounded)
    parts = enumerate(_ENCODED_SLASH.split(path))
    decoded = b"".join(
        part.encode() if number % 2 else unquote_to_bytes(part) for number, part in parts
    )
    result = _without_dot_segments(decoded, bounded=bounded, merge=False) or b""
    segments = re.split(rb"/|%2[Ff]|%5[Cc]", result)
    return None if b"\0" in decoded or {b".", b".."} & {*segments} else result


def pattern_path(target: str, *, encoded: bool, merge: bool = True) -> bytes:
    """Return the path that regular expressions match.

    ``encoded``: the proxy decodes letters and slashes only, like Envoy. Otherwise it is the
    normalised path, like that of NGINX. ``merge``: as for :func:`normalize_path`.
    """
    if not encoded:
        return normalize_path(target) or b""
    path = target.partition("?")[0]
    codes = "%[0-9A-Fa-f]{2}" if merge else "(?!%2[Ff]|%5[Cc])%[0-9A-Fa-f]{2}"
    decoded = re.sub(codes, _decoded_letter, path).encode(errors="surrogateescape")
    return _without_dot_segments(decoded, bounded=True, merge=merge) or b""


def _decoded_letter(code: re.Match[str]) -> str:
    letter = chr(int(code[0][1:], 16))
    return letter if _DECODED_IN_PATTERNS.fullmatch(letter) else code[0]


def _without_dot_segments(path: bytes, *, bounded: bool, merge: bool = True) -> bytes | None:
    parts: list[bytes] = []
    segments = path.split(b"/")[1:]
    for number, segment in enumerate(segments):
        if segment == b"..":
            if not parts and not bounded:
                return None
            parts[-1:] = []
        elif segment != b"." and (segment or not merge):
            parts.append(segment)
            continue
        if number == len(segments) - 1:
            parts.append(b"")
    return b"/" + b"/".join(parts)


def query_parameters(target: str) -> dict[str, str]:
    """Return the encoded values by decoded name. The first of several with one name counts."""
    result: dict[str, str] = {}
    for part in target.partition("?")[2].split("&"):
        name, equals, value = part.partition("=")
        if equals:
            result.setdefault(decode_parameter(name), value)
    return result


def decode_parameter(text: str) -> str:
    """Return a name or value of a query without its encoding."""
    return unquote_to_bytes(text.replace("+", " ")).decode(errors="surrogateescape")
