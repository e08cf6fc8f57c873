"""The server's certificate, taken over from its files while serving."""

from __future__ import annotations

import ssl
import threading
from pathlib import Path

import grpc
import structlog

log = structlog.get_logger("gatehouse.agents")


class ServerCertificate:
    """Reads the pair again when a file changed; gRPC asks at every handshake, from its threads.

    It answers None while nothing changed: handing out a new configuration at each handshake has
    crashed servers (grpc issue 36693).
    """

    def __init__(self, cert: Path, key: Path) -> None:
        self._cert = cert
        self._key = key
        self._lock = threading.Lock()
        self._stamp: tuple[int, ...] = ()
        self._loaded = (b"", b"")

    def credentials(self) -> grpc.ServerCredentials:
        """Give credentials that follow the files; raises OSError or ssl.SSLError for a bad pair."""
        first = self._read()
        return grpc.dynamic_ssl_server_credentials(
            grpc.ssl_server_certificate_configuration(first),
            self._fetch,  # type: ignore[arg-type] # None, for no change, is missing from its stubs
        )

    def _read(self) -> list[tuple[bytes, bytes]]:
        self._stamp = self._stamp_now()
        self._loaded = (self._key.read_bytes(), self._cert.read_bytes())
        # Fails unless key and certificate belong together, so a half-written pair is not used.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._cert, self._key)
        return [self._loaded]

    def _stamp_now(self) -> tuple[int, ...]:
        found = (self._cert.stat(), self._key.stat())
        return tuple(value for stat in found for value in (stat.st_mtime_ns, stat.st_ino))

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        with self._lock:
            try:
                if self._stamp_now() == self._stamp:
                    return None
                before = self._loaded
                pairs = self._read()
            except (OSError, ssl.SSLError) as error:
                self._stamp = ()
                log.warning("certificate kept", reason=str(error))
                return None
            if self._loaded == before:
                return None
            log.info("certificate renewed")
            return grpc.ssl_server_certificate_configuration(pairs)
