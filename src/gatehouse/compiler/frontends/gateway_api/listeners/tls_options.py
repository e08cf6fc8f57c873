"""TLS options of a listener: ``tls.options`` with the keys of NGINX Gateway Fabric."""

from __future__ import annotations

import functools
import re
import ssl
from collections.abc import Iterator

import msgspec

from gatehouse.apis import gateway
from gatehouse.compiler.ir.server_tls import ENVOY_SUITES, TLS_VERSIONS, ServerTls

PROTOCOLS_KEY = "nginx.org/ssl-protocols"
CIPHERS_KEY = "nginx.org/ssl-ciphers"
PREFERENCE_KEY = "nginx.org/ssl-prefer-server-ciphers"
TLS_OPTION_KEYS = (PROTOCOLS_KEY, CIPHERS_KEY, PREFERENCE_KEY)
"""Served keys."""

OLD_VERSIONS = ("SSLv2", "SSLv3", "TLSv1", "TLSv1.1")
"""Versions that NGINX Gateway Fabric accepts, and that no data plane serves (RFC 8996)."""

MAX_CIPHERS_CHARACTERS = 1024
"""Maximum length of a cipher string. NGINX rejects a value of 4 KiB."""

_CIPHERS = re.compile(r"[!+-]?[A-Za-z0-9][A-Za-z0-9+_-]*(:[!+-]?[A-Za-z0-9][A-Za-z0-9+_-]*)*")
"""Cipher strings without commands such as ``@SECLEVEL=0``."""

_AUTHENTICATIONS = ("auth-rsa", "auth-ecdsa")
"""Authentication of the suites that the certificates of listeners can use."""


class TlsOptions(msgspec.Struct, frozen=True):
    """The options of a listener."""

    tls: ServerTls = ServerTls()
    problem: str = ""
    """Problem because of which the listener cannot be served; empty: none."""
    unsupported: tuple[str, ...] = ()
    """Messages about options without which the listener is served."""


NO_OPTIONS = TlsOptions()


def tls_options(listener: gateway.ListenerSpec, controller: str) -> TlsOptions:
    """Return the TLS options of a listener that a controller's data planes serve."""
    options = listener.tls.options if listener.tls is not None else {}
    if not options:
        return NO_OPTIONS
    if listener.tls is not None and listener.tls.mode != "Terminate":
        message = f"tls.options: must be empty for tls.mode {listener.tls.mode}"
        return TlsOptions(unsupported=(message,))
    problems, notes = list[str](), list[str]()
    tls = ServerTls()
    for key, value in sorted(options.items()):
        where = f"tls.options[{key}]"
        if key not in TLS_OPTION_KEYS:
            notes.append(f"{where}: must be one of {', '.join(TLS_OPTION_KEYS)}")
            continue
        try:
            tls, messages = _with_option(tls, key, value, controller)
        except ValueError as error:
            problems.append(f"{where}: {error}")
        else:
            notes += [f"{where}: {message}" for message in messages]
    return TlsOptions(tls, "; ".join(problems), tuple(notes))


def _with_option(
    tls: ServerTls, key: str, value: str, controller: str
) -> tuple[ServerTls, list[str]]:
    """Return the settings with an option, and what of it is not supported. Raises ValueError."""
    if key == PROTOCOLS_KEY:
        return _with_versions(tls, value)
    if key == CIPHERS_KEY:
        return _with_ciphers(tls, value, controller)
    if value not in ("on", "off"):
        raise ValueError(f"{_shown(value)} is not supported: must be on or off")
    return msgspec.structs.replace(tls, prefer_server_ciphers=value), []


def _with_versions(tls: ServerTls, value: str) -> tuple[ServerTls, list[str]]:
    named = value.split()
    possible = ", ".join(TLS_VERSIONS)
    for name in named:
        if name not in TLS_VERSIONS and name not in OLD_VERSIONS:
            raise ValueError(f"{_shown(name)} is not supported: must be {possible}")
    versions = tuple(version for version in TLS_VERSIONS if version in named)
    old = ", ".join(name for name in OLD_VERSIONS if name in named)
    if not versions:
        raise ValueError(f"{old or 'no version'} is not supported: must be {possible}")
    messages = [f"{old} is not supported: must be {possible}"] if old else []
    return msgspec.structs.replace(tls, versions=versions), messages


def _with_ciphers(tls: ServerTls, value: str, controller: str) -> tuple[ServerTls, list[str]]:
    if len(value) > MAX_CIPHERS_CHARACTERS:
        raise ValueError(f"must have at most {MAX_CIPHERS_CHARACTERS} characters")
    if not _CIPHERS.fullmatch(value):
        raise ValueError(f"{_shown(value)} must be a cipher string of OpenSSL without commands")
    selected = _suites(value)
    if not selected:
        raise ValueError(f"{_shown(value)} selects no cipher suite with encryption and certificate")
    suites = tuple(name for name in selected if name in ENVOY_SUITES)
    missing = [word for word in _selecting(value) if not _suites(word)]
    if controller == gateway.ENVOY_CONTROLLER:
        if not suites:
            raise ValueError(f"{_shown(value)} selects no cipher suite that Envoy supports")
        missing += [word for word in _selecting(value) if _suites(word) == (word,)
                    and word not in ENVOY_SUITES]  # fmt: skip
    messages = [f"{', '.join(map(_shown, missing))} not supported"] if missing else []
    return msgspec.structs.replace(tls, ciphers=value, suites=suites), messages


def _selecting(ciphers: str) -> Iterator[str]:
    """Yield the elements of a cipher string that add suites."""
    return (word for word in dict.fromkeys(ciphers.split(":")) if word[0] not in "!+-")


@functools.lru_cache(maxsize=1024)
def _suites(ciphers: str) -> tuple[str, ...]:
    """Return the suites of TLS 1.2 that OpenSSL selects for certificates, most preferred first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.set_ciphers(ciphers)
    except ssl.SSLError:
        return ()
    return tuple(
        str(suite["name"])
        for suite in context.get_ciphers()
        if suite["auth"] in _AUTHENTICATIONS
        and suite["strength_bits"]
        and "PSK" not in suite["name"]
    )


def _shown(value: str) -> str:
    """Return a value as a message shows it."""
    return repr(value if len(value) <= 64 else f"{value[:64]}…")
