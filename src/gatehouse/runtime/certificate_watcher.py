"""A server's certificate, taken over from its files while serving."""

from __future__ import annotations

import ssl
import threading
from pathlib import Path

import grpc
import structlog

log = structlog.get_logger("gatehouse.certificate")


class CertificateWatcher:
    """Reads the files again when one changed; gRPC asks at every handshake, from its threads.

    It answers None while nothing changed: handing out a new configuration at each handshake has
    crashed servers (grpc issue 36693). Connections that there are go on as they began.
    """

    def __init__(self, cert: Path, key: Path, client_ca: Path | None = None) -> None:
        """Serve ``cert``; ``client_ca``: whose certificates clients must show, None: none."""
        self._files = [key, cert] if client_ca is None else [key, cert, client_ca]
        self._lock = threading.Lock()
        self._stamp: tuple[int, ...] = ()
        self._loaded: list[bytes] = []

    def credentials(self) -> grpc.ServerCredentials:
        """Give credentials that follow the files; raises OSError, or ssl.SSLError for bad ones."""
        self._read()
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(),
            self._fetch,  # type: ignore[arg-type] # None, for no change, is missing from its stubs
            require_client_authentication=len(self._files) == 3,
        )

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        key, cert, *client_ca = self._loaded
        authorities = client_ca[0] if client_ca else None
        return grpc.ssl_server_certificate_configuration([(key, cert)], authorities)

    def _read(self) -> bool:
        """Take the files over; gives whether they changed."""
        stamp = self._stamp_now()
        contents = [file.read_bytes() for file in self._files]
        key, cert, *client_ca = self._files
        # Fails unless key and certificate belong together, so a half-written pair is not used.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
        for authorities in client_ca:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(authorities)
        changed = contents != self._loaded
        self._stamp, self._loaded = stamp, contents
        return changed

    def _stamp_now(self) -> tuple[int, ...]:
        found = [file.stat() for file in self._files]
        return tuple(value for stat in found for value in (stat.st_mtime_ns, stat.st_ino))

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        with self._lock:
            try:
                if self._stamp_now() == self._stamp or not self._read():
                    return None
            except (OSError, ssl.SSLError) as error:
                log.warning("certificate kept", reason=str(error))
                return None
            log.info("certificate renewed")
            return self._configuration()
