"""OpenTelemetry collectors that tests run: one in the process, with the real wire format."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import grpc.aio
import msgspec
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from fakes import patience
from fakes.durations import be_slow

SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"


class ReceivedSpan(msgspec.Struct, frozen=True):
    """A span as a collector received it."""

    trace: str
    span: str
    parent: str
    name: str
    kind: str
    """``server`` or ``client``."""
    attributes: Mapping[str, str]
    resource: Mapping[str, str]


class Collector:
    """The spans that a collector received."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.spans: list[ReceivedSpan] = []
        self.exports: list[int] = []
        """Number of spans of each export."""

    async def refresh(self) -> None:
        """Read the spans that arrived, if they do not arrive in this process."""

    async def matching(
        self, number: int, holds: Callable[[ReceivedSpan], bool] = lambda _: True
    ) -> list[ReceivedSpan]:
        """Wait until at least ``number`` spans match, and return them."""

        async def received() -> list[ReceivedSpan]:
            await self.refresh()
            spans = [span for span in self.spans if holds(span)]
            return spans if len(spans) >= number else []

        spans: list[ReceivedSpan] = await patience.until(received)
        return spans


class InProcessCollector(Collector):
    """A gRPC server of OTLP. It can be stopped, and started again on its port."""

    def __init__(self, host: str) -> None:
        super().__init__(0)
        self._host = host
        self.delay = 0.0
        """Seconds until an export is answered."""
        self.headers: dict[str, str | bytes] = {}
        """Headers of the last export."""
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Listen on the port, or on a free one at first."""
        self._server = grpc.aio.server()
        export = grpc.unary_unary_rpc_method_handler(
            self._export,
            trace_service_pb2.ExportTraceServiceRequest.FromString,
            trace_service_pb2.ExportTraceServiceResponse.SerializeToString,
        )
        handler = grpc.method_handlers_generic_handler(SERVICE, {"Export": export})
        self._server.add_generic_rpc_handlers((handler,))
        self.port = self._server.add_insecure_port(f"{self._host}:{self.port}")
        await self._server.start()

    async def stop(self) -> None:
        """Close all connections."""
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    async def _export(
        self,
        request: trace_service_pb2.ExportTraceServiceRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        self.headers = dict(context.invocation_metadata() or ())
        await be_slow(self.delay)
        number = 0
        for group in request.resource_spans:
            resource = {item.key: item.value.string_value for item in group.resource.attributes}
            # The name of this field before it was `scope_spans`; its number is the same.
            for scope in group.instrumentation_library_spans:
                self.spans += [_received(span, resource) for span in scope.spans]
                number += len(scope.spans)
        self.exports.append(number)
        return trace_service_pb2.ExportTraceServiceResponse()


def _received(span: trace_pb2.Span, resource: Mapping[str, str]) -> ReceivedSpan:
    kinds = {trace_pb2.Span.SPAN_KIND_SERVER: "server", trace_pb2.Span.SPAN_KIND_CLIENT: "client"}
    return ReceivedSpan(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        kinds.get(span.kind, str(span.kind)),
        {item.key: item.value.string_value for item in span.attributes},
        resource,
    )


@contextlib.asynccontextmanager
async def collecting(host: str = "127.0.0.1") -> AsyncIterator[InProcessCollector]:
    """Run a collector in this process."""
    collector = InProcessCollector(host)
    await collector.start()
    try:
        yield collector
    finally:
        await collector.stop()
