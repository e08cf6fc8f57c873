"""Limits of every gRPC server: what a peer may make it read, store and answer."""

from __future__ import annotations

import resource

MAX_RESOURCE_LIST_BYTES = 32 << 20
"""Maximum size of a message in bytes where an Envoy sends the names and versions of all its
resources when it reconnects."""

_HANDSHAKE_SECONDS = 20
"""Maximum duration of a TLS handshake in seconds. gRPC's default is 120 s."""

PING_INTERVAL_SECONDS = 5
"""Minimum interval in seconds between two pings of an idle client. NGINX Agent v3 and the Gatehouse
agent ping every 20 s; gRPC's default of 5 minutes would close their connections."""

MAX_EARLY_PINGS = 10
"""Number of pings before that interval after which a connection is closed."""

_IDENTITY_ONLY = 1
"""Bit set of compression algorithms without any."""

Options = tuple[tuple[str, int], ...]


def server_options(max_message_bytes: int, max_streams: int) -> Options:
    """Return the options of a server.

    ``max_message_bytes``: maximum size of a received message. ``max_streams``: maximum number of
    calls per connection. Responses are not limited: their size is that of the configuration.
    """
    return (
        # Two servers on one port would each silently get a part of the clients.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", -1),
        # A compressed message costs its sender a thousandth of the memory that it costs here.
        ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ONLY),
        ("grpc.max_concurrent_streams", max_streams),
        ("grpc.max_allowed_incoming_connections", _max_connections()),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_SECONDS * 1000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", PING_INTERVAL_SECONDS * 1000),
        ("grpc.http2.max_ping_strikes", MAX_EARLY_PINGS),
    )


def _max_connections() -> int:
    """Return three quarters of the file descriptors, so that the process itself has the rest.

    The hard limit counts: a process raises its soft limit to it when it starts, and options are
    computed before that.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if hard == resource.RLIM_INFINITY else max(16, hard * 3 // 4)
