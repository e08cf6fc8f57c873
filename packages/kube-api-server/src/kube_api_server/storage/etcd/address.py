"""Address of an etcd.

`etcd://host:port,host:port/prefix?ca=FILE&cert=FILE&key=FILE&user=NAME`
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec

from kube_api_server.storage.entries import StorageAddressError
from kube_api_server.storage.names import StorageNames

PORT = 2379


class EtcdAddress(msgspec.Struct, frozen=True):
    """Endpoints and credentials of an etcd, and the prefix of keys."""

    endpoints: tuple[str, ...]
    prefix: str
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    user: str = ""
    password: str = ""

    @property
    def tls(self) -> bool:
        """True if connections use TLS."""
        return self.ca is not None or self.cert is not None


def parse_etcd_address(text: str, names: StorageNames) -> EtcdAddress:
    """Parse an address. Raises StorageAddressError."""
    parts = urlsplit(text)
    if parts.scheme != "etcd" or not parts.netloc:
        raise StorageAddressError(f"expected etcd://host:port[,host:port]/prefix, not {text!r}")
    query = parse_qs(parts.query, strict_parsing=bool(parts.query))
    unknown = set(query) - {"ca", "cert", "key", "user", "password-file"}
    if unknown:
        raise StorageAddressError(f"{text!r}: unknown option {sorted(unknown)[0]!r}")
    files = {name: Path(query[name][0]) for name in ("ca", "cert", "key") if name in query}
    if ("cert" in files) != ("key" in files):
        raise StorageAddressError(f"{text!r}: cert and key belong together")
    for name, path in files.items():
        if not path.is_file():
            raise StorageAddressError(f"{text!r}: {name}: no such file: {path}")
    password = os.environ.get(names.etcd_password_variable, "")
    if "password-file" in query:
        password = _password(text, Path(query["password-file"][0]))
    endpoints = tuple(_endpoint(part) for part in parts.netloc.split(","))
    prefix = parts.path.rstrip("/") or names.etcd_prefix
    user = query.get("user", [""])[0]
    return EtcdAddress(endpoints, prefix, user=user, password=password, **files)


def _password(text: str, path: Path) -> str:
    """Return the password in a file. Raises StorageAddressError."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise StorageAddressError(f"{text!r}: password-file: {path}: {reason.lower()}") from error


def _endpoint(text: str) -> str:
    return text if ":" in text.rpartition("]")[2] else f"{text}:{PORT}"
