"""An HTTPS server in threads: asyncio's leaves transports behind when its peers go first."""

from __future__ import annotations

import contextlib
import http.server
import ssl
import threading
from collections.abc import Iterator
from typing import Any


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Backend", "secure")
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(
        self,
        address: tuple[str, int],
        context: ssl.SSLContext,
        handler: type[http.server.BaseHTTPRequestHandler],
    ) -> None:
        super().__init__(address, handler)
        self._context = context

    def finish_request(self, request: Any, client_address: Any) -> None:
        # A client that rejects the certificate closes the connection in the handshake.
        with (
            contextlib.suppress(OSError),
            self._context.wrap_socket(request, server_side=True) as wrapped,
        ):
            super().finish_request(wrapped, client_address)


@contextlib.contextmanager
def serving(
    context: ssl.SSLContext,
    address: tuple[str, int] = ("127.0.0.1", 0),
    handler: type[http.server.BaseHTTPRequestHandler] = _Handler,
) -> Iterator[int]:
    """Echo the body of requests, or run another handler. Yield the port."""
    with _Server(address, context, handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()
