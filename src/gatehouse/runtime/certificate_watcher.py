"""Server certificate that is reloaded from its files while the server runs."""

from __future__ import annotations

import ssl
import threading
from pathlib import Path

import grpc
import structlog

log = structlog.get_logger("gatehouse.certificate")


class CertificateWatcher:
    """Reloads key, certificate and client CA when one of the files changes.

    gRPC calls `_fetch` at every TLS handshake, from its own threads. It returns None while nothing
    changed: returning a new configuration at each handshake has crashed servers (grpc issue 36693).
    Established connections are not affected by a reload.
    """

    def __init__(self, cert: Path, key: Path, client_ca: Path | None = None) -> None:
        """Serve `cert` with `key`.

        With `client_ca`, clients must present a certificate signed by it. None disables client
        certificates.
        """
        self._files = [key, cert] if client_ca is None else [key, cert, client_ca]
        self._lock = threading.Lock()
        self._stamp: tuple[int, ...] = ()
        self._loaded: list[bytes] = []

    def credentials(self) -> grpc.ServerCredentials:
        """Return server credentials that follow the files.

        Raises OSError if a file cannot be read, or ssl.SSLError if its content is invalid.
        """
        self._read()
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(),
            self._fetch,  # type: ignore[arg-type] # None, meaning "no change", is missing from its stubs
            require_client_authentication=len(self._files) == 3,
        )

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        key, cert, *client_ca = self._loaded
        client_ca_pem = client_ca[0] if client_ca else None
        return grpc.ssl_server_certificate_configuration([(key, cert)], client_ca_pem)

    def _read(self) -> bool:
        """Load the files and return whether their content changed."""
        stamp = self._stamp_now()
        contents = [file.read_bytes() for file in self._files]
        key, cert, *client_ca = self._files
        # Fails unless key and certificate match, so a half-written pair is not used.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
        for ca_file in client_ca:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(ca_file)
        changed = contents != self._loaded
        self._stamp, self._loaded = stamp, contents
        return changed

    def _stamp_now(self) -> tuple[int, ...]:
        stats = [file.stat() for file in self._files]
        return tuple(value for stat in stats for value in (stat.st_mtime_ns, stat.st_ino))

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        with self._lock:
            try:
                if self._stamp_now() == self._stamp or not self._read():
                    return None
            except (OSError, ssl.SSLError) as error:
                log.warning("certificate not reloaded", error=str(error))
                return None
            log.info("certificate reloaded")
            return self._configuration()
