"""Address of a storage: a directory, or an etcd."""

from __future__ import annotations

import re

from kube_api_server.storage.entries import StorageAddressError
from kube_api_server.storage.etcd.address import parse_etcd_address
from kube_api_server.storage.names import DEFAULT_NAMES

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def is_etcd(address: str) -> bool:
    """Return whether an address is one of an etcd. Raises StorageAddressError for unknown ones."""
    if address.startswith("etcd://"):
        return True
    if not address:
        raise StorageAddressError("must be a directory or etcd://host:port/prefix")
    if _SCHEME.match(address):
        raise StorageAddressError(
            f"{address}: must be a directory or etcd://host:port/prefix; "
            f"a directory of this name is ./{address}"
        )
    return False


def check_storage(address: str) -> str:
    """Return a valid address. Raises StorageAddressError."""
    if is_etcd(address):
        parse_etcd_address(address, DEFAULT_NAMES)
    return address
