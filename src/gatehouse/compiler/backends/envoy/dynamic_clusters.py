"""Connections that select their cluster by name, so that listeners do not depend on routes.

A chain writes the SNI, or the destination in the PROXY header, into the name of a cluster. If no
cluster has this name, the connection is closed. So a new name only adds a cluster. The client
controls only the end of the name: the prefix is fixed, so that no other cluster can be selected.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import base_pb2, socket_option_pb2, substitution_format_string_pb2
from envoy.config.listener.v3 import listener_components_pb2 as components
from envoy.config.listener.v3 import listener_pb2
from envoy.extensions.filters.common.set_filter_state.v3 import value_pb2
from envoy.extensions.filters.network.set_filter_state.v3 import set_filter_state_pb2
from envoy.extensions.filters.network.tcp_proxy.v3 import tcp_proxy_pb2
from envoy.type.v3 import percent_pb2

from gatehouse.compiler.backends.envoy import extensions, names, quoting
from gatehouse.compiler.backends.envoy.protobufs import wrap_number
from gatehouse.compiler.ir import gateway as ir

IDLE = 3600.0
"""Idle timeout of a connection in seconds."""

MAX_CONNECTION_SECONDS = 82_800.0
_JITTER = 4.0
"""Maximum age in seconds, and random addition in percent. Passthrough connections end before they
are a day old (client certificates are checked only when connecting), and not all at once."""

BUFFER = 32 * 1024
"""Maximum bytes that a connection buffers in either direction."""

KEEPALIVE = 55
"""TCP keepalive: seconds without traffic until the first probe, and between probes."""

KEEPALIVE_PROBES = 3

SNI = "%REQUESTED_SERVER_NAME%"
DESTINATION = "%DOWNSTREAM_LOCAL_ADDRESS%"

_SOCKET, _KEEPALIVE, _TCP, _IDLE, _INTERVAL_OPTION, _COUNT = 1, 9, 6, 4, 5, 6
"""Socket option numbers of Linux."""


class DynamicCluster(msgspec.Struct, frozen=True):
    """A hostname or destination, and the cluster of its connections."""

    name: str
    """Name of the Envoy cluster."""
    cluster: str
    """Name of the IR cluster; empty: connections are closed."""
    route: str = ""
    """Rule that is served, for the access log."""


def needs_chain(host: ir.L4Host) -> bool:
    """Return whether a hostname needs a filter chain of its own."""
    if host.certificates or host.sources:
        return True
    if not host.backends:
        return False
    mixed = len(host.backends) > 1 or bool(host.rejected)
    return mixed or not host.hostname or host.hostname.startswith("*")


def forward_tcp(prefix: str, *, unlimited: bool = False) -> tcp_proxy_pb2.TcpProxy:
    """Return the part of the TCP proxy that all connections share.

    ``unlimited``: without a maximum age.
    """
    proto = tcp_proxy_pb2.TcpProxy(stat_prefix=prefix, idle_timeout=quoting.duration_of(IDLE))
    if not unlimited:
        proto.max_downstream_connection_duration.CopyFrom(
            quoting.duration_of(MAX_CONNECTION_SECONDS)
        )
        proto.max_downstream_connection_duration_jitter_percentage.CopyFrom(
            percent_pb2.Percent(value=_JITTER)
        )
    return proto


def forwarding_filters(
    stat_prefix: str, prefix: str, suffix: str, logs: Iterable[accesslog_pb2.AccessLog]
) -> list[components.Filter]:
    """Return the filters that forward to the cluster whose name ends in ``suffix``."""
    text = base_pb2.DataSource(inline_string=quoting.escape_percent(prefix) + suffix)
    value = value_pb2.FilterStateValue(
        object_key="envoy.tcp_proxy.cluster",
        format_string=substitution_format_string_pb2.SubstitutionFormatString(
            text_format_source=text
        ),
    )
    filter_state = set_filter_state_pb2.Config(on_new_connection=[value])
    proto = forward_tcp(stat_prefix)
    proto.cluster = names.BROKEN
    proto.access_log.extend(logs)
    return [
        extensions.network_filter("envoy.filters.network.set_filter_state", filter_state),
        extensions.network_filter("envoy.filters.network.tcp_proxy", proto),
    ]


def limit_buffers(listener: listener_pb2.Listener) -> None:
    """Limit buffers of a listener's connections, and detect dead clients by TCP keepalive.

    These are fields of the listener: they do not depend on chains.
    """
    listener.per_connection_buffer_limit_bytes.CopyFrom(wrap_number(BUFFER))
    keep_clients_alive(listener)


def keep_clients_alive(listener: listener_pb2.Listener) -> None:
    """Detect dead clients of a listener by TCP keepalive."""
    for level, name, value in (
        (_SOCKET, _KEEPALIVE, 1),
        (_TCP, _IDLE, KEEPALIVE),
        (_TCP, _INTERVAL_OPTION, KEEPALIVE),
        (_TCP, _COUNT, KEEPALIVE_PROBES),
    ):
        listener.socket_options.append(
            socket_option_pb2.SocketOption(
                level=level,
                name=name,
                int_value=value,
                state=socket_option_pb2.SocketOption.STATE_LISTENING,
            )
        )


def set_tcp_keepalive(cluster: cluster_pb2.Cluster) -> None:
    """Limit buffers and enable TCP keepalive for connections of a cluster."""
    cluster.per_connection_buffer_limit_bytes.CopyFrom(wrap_number(BUFFER))
    keepalive = cluster.upstream_connection_options.tcp_keepalive
    keepalive.keepalive_time.CopyFrom(wrap_number(KEEPALIVE))
    keepalive.keepalive_interval.CopyFrom(wrap_number(KEEPALIVE))
    keepalive.keepalive_probes.CopyFrom(wrap_number(KEEPALIVE_PROBES))
