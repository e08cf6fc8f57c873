"""Minimal client of etcd's v3 protocol over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Self

import grpc
import msgspec
import structlog
from grpc import aio

from kube_api_server.storage.entries import StorageFullError, UnavailableError
from kube_api_server.storage.etcd.address import EtcdAddress
from kube_api_server.wire.etcd import rpc_pb2 as rpc
from kube_base.runtime.time_limits import scaled

log = structlog.get_logger("apiserver")

PAGE = 500
RPC_TIMEOUT_SECONDS = scaled(5.0)
"""Timeout in seconds of a request."""

NO_SPACE = "database space exceeded"
"""Text of etcd's error for a write while its alarm NOSPACE is active."""

_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]


class EtcdCompactedError(Exception):
    """The requested revision is older than the history that etcd retains."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"compacted at {revision}")
        self.revision = revision


class KeyValue(msgspec.Struct, frozen=True):
    """A key and its value."""

    key: bytes
    value: bytes
    revision: int


class KeyChange(msgspec.Struct, frozen=True):
    """A change of a key. `value` is None for a deletion."""

    key: bytes
    value: bytes | None
    revision: int
    before: bytes | None
    before_revision: int


class EtcdClient:
    """Client of one etcd. Uses another endpoint if one does not respond."""

    def __init__(self, address: EtcdAddress) -> None:
        self._address = address
        self._channels = [_channel(address, endpoint) for endpoint in address.endpoints]
        self._current = 0
        self._token = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        for channel in self._channels:
            await channel.close(None)

    async def revision(self) -> int:
        """Return the newest revision, confirmed by a majority of members."""
        request = rpc.RangeRequest(key=b"\0", keys_only=True, limit=1)
        return int((await self._call("KV/Range", request, rpc.RangeResponse)).header.revision)

    async def list_all(self, prefix: bytes) -> tuple[int, list[KeyValue]]:
        """Return one revision, and all keys under a prefix as of this revision."""
        revision, pairs, start = 0, list[KeyValue](), prefix
        while True:
            request = rpc.RangeRequest(
                key=start, range_end=after(prefix), limit=PAGE, revision=revision
            )
            page = await self._call("KV/Range", request, rpc.RangeResponse)
            revision = revision or int(page.header.revision)
            pairs += [KeyValue(kv.key, kv.value, kv.mod_revision) for kv in page.kvs]
            if not page.more:
                return revision, pairs
            start = page.kvs[-1].key + b"\0"

    async def put(self, key: bytes, value: bytes, expected: int) -> int | None:
        """Write if the key has revision `expected` (0: does not exist); else return None."""
        operation = rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value))
        return await self._if(key, expected, operation)

    async def delete(self, key: bytes, expected: int) -> int | None:
        """Remove if the key has revision `expected`; else return None."""
        operation = rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))
        return await self._if(key, expected, operation)

    async def _if(self, key: bytes, expected: int, operation: Any) -> int | None:
        compare = rpc.Compare(
            target=rpc.Compare.MOD, result=rpc.Compare.EQUAL, key=key, mod_revision=expected
        )
        request = rpc.TxnRequest(compare=[compare], success=[operation])
        response = await self._call("KV/Txn", request, rpc.TxnResponse, retry=False)
        return int(response.header.revision) if response.succeeded else None

    async def touch(self, key: bytes) -> int:
        """Write a key unconditionally. Return the revision."""
        operation = rpc.RequestOp(request_put=rpc.PutRequest(key=key))
        request = rpc.TxnRequest(success=[operation])
        return int((await self._call("KV/Txn", request, rpc.TxnResponse)).header.revision)

    async def compact(self, revision: int) -> None:
        """Compact the history before `revision`. Does nothing if it is compacted already."""
        try:
            request = rpc.CompactionRequest(revision=revision)
            await self._call("KV/Compact", request, rpc.CompactionResponse)
        except EtcdCompactedError:
            return

    def watch(self, prefix: bytes, revision: int) -> EtcdWatch:
        """Watch all keys under a prefix from `revision` on."""
        call = self._channels[self._current].stream_stream(
            "/etcdserverpb.Watch/Watch",
            request_serializer=rpc.WatchRequest.SerializeToString,
            response_deserializer=rpc.WatchResponse.FromString,
        )(metadata=self._metadata())
        return EtcdWatch(call, prefix, revision, self._next_endpoint)

    def _next_endpoint(self) -> None:
        """Switch to the next endpoint."""
        self._current = (self._current + 1) % len(self._channels)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (("token", self._token),) if self._token else ()

    async def _call(self, method: str, request: Any, response: Any, *, retry: bool = True) -> Any:
        """Send a request. Reads are retried on every endpoint; writes are not, as they could
        repeat.
        """
        if self._address.user and not self._token:
            await self._authenticate()
        error: grpc.RpcError | None = None
        for _ in range(len(self._channels) if retry else 1):
            try:
                return await self._once(method, request, response)
            except aio.AioRpcError as failure:
                error = failure
                code, details = failure.code(), str(failure.details())
                if code == grpc.StatusCode.OUT_OF_RANGE and "compacted" in details:
                    raise EtcdCompactedError(0) from failure
                if code == grpc.StatusCode.RESOURCE_EXHAUSTED and NO_SPACE in details:
                    raise StorageFullError(details) from failure
                if code == grpc.StatusCode.UNAUTHENTICATED and self._token:
                    await self._authenticate()
                    return await self._once(method, request, response)
                if code not in (
                    grpc.StatusCode.UNAVAILABLE,
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                ):
                    raise UnavailableError(f"etcd: {details}") from failure
                self._next_endpoint()
        details = str(error.details()) if isinstance(error, aio.AioRpcError) else ""
        raise UnavailableError(f"etcd not reachable: {details}") from error

    async def _once(self, method: str, request: Any, response: Any) -> Any:
        call = self._channels[self._current].unary_unary(
            f"/etcdserverpb.{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        return await call(request, timeout=RPC_TIMEOUT_SECONDS, metadata=self._metadata())

    async def _authenticate(self) -> None:
        self._token = ""
        request = rpc.AuthenticateRequest(name=self._address.user, password=self._address.password)
        try:
            response = await self._once("Auth/Authenticate", request, rpc.AuthenticateResponse)
        except aio.AioRpcError as error:
            raise UnavailableError(f"etcd rejected the user: {error.details()}") from error
        self._token = response.token


class EtcdWatch:
    """A running watch."""

    def __init__(
        self, call: Any, prefix: bytes, revision: int, on_failure: Callable[[], None]
    ) -> None:
        self._call, self._on_failure = call, on_failure
        create = rpc.WatchCreateRequest(
            key=prefix,
            range_end=after(prefix),
            start_revision=revision,
            prev_kv=True,
        )
        self._request = rpc.WatchRequest(create_request=create)

    async def batches(self) -> AsyncIterator[list[KeyChange]]:
        """Yield changes in order. Raises EtcdCompactedError, UnavailableError."""
        try:
            await self._call.write(self._request)
            while True:
                response = await self._call.read()
                if response is aio.EOF:
                    raise UnavailableError("etcd closed the watch")
                if response.canceled:
                    if response.compact_revision:
                        raise EtcdCompactedError(response.compact_revision)
                    raise UnavailableError(f"etcd closed the watch: {response.cancel_reason}")
                if not response.created:
                    yield [_change(event) for event in response.events]
        except aio.AioRpcError as error:
            self._on_failure()
            raise UnavailableError(f"etcd: {error.details()}") from error
        finally:
            self._call.cancel()


def _change(event: Any) -> KeyChange:
    deleted = event.type == rpc.Event.DELETE
    had = event.HasField("prev_kv")
    return KeyChange(
        event.kv.key,
        None if deleted else event.kv.value,
        event.kv.mod_revision,
        event.prev_kv.value if had else None,
        event.prev_kv.mod_revision if had else 0,
    )


def after(prefix: bytes) -> bytes:
    """Return the end of the range of all keys with a prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def _channel(address: EtcdAddress, endpoint: str) -> aio.Channel:
    if not address.tls:
        return aio.insecure_channel(endpoint, options=_OPTIONS)
    credentials = grpc.ssl_channel_credentials(
        address.ca.read_bytes() if address.ca else None,
        address.key.read_bytes() if address.key else None,
        address.cert.read_bytes() if address.cert else None,
    )
    return aio.secure_channel(endpoint, credentials, options=_OPTIONS)
