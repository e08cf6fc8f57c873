"""Connections to the pickers of a pool, and calls over them."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import time
from collections.abc import Sequence

from gatehouse.dataplane.endpoints import WeightedEndpoint
from gatehouse.sidecars.base import san_match
from gatehouse.sidecars.base.failure_log import error_text
from gatehouse.sidecars.picker import ext_proc
from gatehouse.sidecars.picker.config import PickerTls
from gatehouse.sidecars.picker.ext_proc import PickerCall
from gatehouse.sidecars.picker.grpc_call import CallFailedError, GrpcCall
from gatehouse.sidecars.picker.http2 import Http2Connection

PICKER_CONNECT_SECONDS = 2.0
"""Time limit of a connection to a picker, in seconds."""

REFUSAL_SECONDS = 1.0
"""Time in seconds for which a picker is not asked that accepted no connection."""


class PickerCalls:
    """Pickers of a pool."""

    def __init__(self) -> None:
        self._pickers: tuple[WeightedEndpoint, ...] = ()
        self._tls: tuple[PickerTls, ssl.SSLContext] | None = None
        self._seconds = 0.0
        self._connections: dict[WeightedEndpoint, list[Http2Connection]] = {}
        self._refused: dict[WeightedEndpoint, tuple[float, str]] = {}
        """Pickers that accepted no connection: when, and why."""
        self._opening: dict[WeightedEndpoint, asyncio.Lock] = {}
        self._turn = itertools.count()

    def configure(
        self,
        pickers: Sequence[WeightedEndpoint],
        tls: tuple[PickerTls, ssl.SSLContext] | None,
        seconds: float,
    ) -> None:
        """Use these pickers from now on. Calls that are open stay where they are."""
        if tls != self._tls:
            self.close()
        self._pickers, self._tls, self._seconds = tuple(pickers), tls, seconds
        for address in self._connections.keys() - set(pickers):
            self._retire(address)
        self._refused = {one: self._refused[one] for one in pickers if one in self._refused}

    async def open(self) -> PickerCall:
        """Start a call to a picker that accepts connections. Raises CallFailedError."""
        pickers, start = self._pickers, next(self._turn)
        why = "no picker is ready"
        for number in range(len(pickers)):
            address = pickers[(start + number) % len(pickers)]
            try:
                connection = await self._connection(address)
                scheme = "http" if self._tls is None else "https"
                name = self._tls[0].server_name if self._tls is not None else address.encoded
                call = GrpcCall.start(connection, ext_proc.METHOD, name, scheme)
            except CallFailedError as error:
                why = f"{address.encoded}: {error}"
            else:
                return PickerCall(call, self._seconds)
        raise CallFailedError(why)

    async def _connection(self, address: WeightedEndpoint) -> Http2Connection:
        """Return a connection that accepts a call. Raises CallFailedError."""
        async with self._opening.setdefault(address, asyncio.Lock()):
            listed = [one for one in self._connections.get(address, ()) if not one.closed]
            self._connections[address] = listed
            for connection in listed:
                if connection.is_usable:
                    return connection
            when, why = self._refused.get(address, (0.0, ""))
            if why and time.monotonic() - when < REFUSAL_SECONDS:
                raise CallFailedError(why)
            try:
                connection = await self._connect(address)
            except (OSError, TimeoutError) as error:
                timed_out = isinstance(error, TimeoutError)
                why = f"no connection within {PICKER_CONNECT_SECONDS:g} s"
                why = why if timed_out else error_text(error)
                self._refused[address] = time.monotonic(), why
                raise CallFailedError(why) from error
            self._refused.pop(address, None)
            self._connections.setdefault(address, []).append(connection)
            return connection

    async def _connect(self, address: WeightedEndpoint) -> Http2Connection:
        """Raises OSError (also of TLS) or TimeoutError."""
        tls, context = self._tls if self._tls is not None else (None, None)
        async with asyncio.timeout(PICKER_CONNECT_SECONDS):
            transport, connection = await asyncio.get_running_loop().create_connection(
                Http2Connection,
                address.address,
                address.port,
                ssl=context,
                server_hostname=tls.server_name if tls is not None else None,
            )
        if tls is not None and tls.trust:
            certificate = transport.get_extra_info("peercert") or {}
            if not san_match.matches_any_san(certificate, tls.names):
                transport.abort()
                actual = san_match.format_certificate_names(certificate)
                raise OSError(f"the certificate has none of the accepted names; it has {actual}")
        return connection

    def _retire(self, address: WeightedEndpoint) -> None:
        self._opening.pop(address, None)
        for connection in self._connections.pop(address, ()):
            connection.retire()

    def close(self) -> None:
        """Close all connections after their last calls."""
        for address in tuple(self._connections):
            self._retire(address)
