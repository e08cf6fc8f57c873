"""Connections that find their cluster by its name, so that no listener changes with what is served.

A chain writes the name in the handshake, or the destination in the PROXY header, into the name of
a cluster; where there is none of that name, the connection is cut. So a name more is a cluster
more, and nothing else. The client chooses only the end of that name: what stands before it is ours,
so that nobody can ask for any other cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec
from envoy.config.core.v3 import base_pb2, socket_option_pb2, substitution_format_string_pb2
from envoy.config.listener.v3 import listener_components_pb2 as components
from envoy.extensions.filters.common.set_filter_state.v3 import value_pb2
from envoy.extensions.filters.network.set_filter_state.v3 import set_filter_state_pb2
from envoy.extensions.filters.network.tcp_proxy.v3 import tcp_proxy_pb2
from envoy.type.v3 import percent_pb2

from gatehouse.compiler.backends.envoy import names, quoting
from gatehouse.compiler.backends.envoy.fragments import ChangeTracker
from gatehouse.compiler.backends.envoy.protobufs import number, packed
from gatehouse.compiler.ir import gateway as ir

IDLE = 3600.0
"""Seconds; connections without traffic for so long are closed."""

MAX_CONNECTION_SECONDS = 82_800.0
JITTER = 4.0
"""Seconds, and percent more by chance: connections that pass through end before they are a day old
(a client's certificate is only looked at when it connects), and not all at once."""

BUFFER = 32 * 1024
"""Bytes of each connection that may wait in either direction."""

KEEPALIVE = 55
"""Seconds without traffic until a peer is asked if it is there, and between such questions."""

KEEPALIVE_PROBES = 3

SNI = "%REQUESTED_SERVER_NAME%"
DESTINATION = "%DOWNSTREAM_LOCAL_ADDRESS%"

_SOCKET, _KEEPALIVE, _TCP, _IDLE, _INTERVAL, _COUNT = 1, 9, 6, 4, 5, 6
"""As Linux numbers them."""


class DynamicCluster(msgspec.Struct, frozen=True):
    """A name or destination, and the cluster that its connections go to."""

    name: str
    """Of Envoy's cluster."""
    cluster: str
    """Of the IR."""


def single_cluster(host: ir.L4Host) -> str | None:
    """Give the cluster of a name that needs no chain by itself, "" for none; None: it needs one."""
    if host.certificates or host.sources:
        return None
    shares = [each for each in host.backends if each.weight > 0]
    if len(shares) > 1 or (shares and (not host.hostname or host.hostname.startswith("*"))):
        return None
    return shares[0].cluster if shares else ""


def forward(prefix: str, *, lasting: bool = False) -> Any:
    """Give what sends connections on, as far as all of them have it in common.

    ``lasting``: for as long as they like.
    """
    made = tcp_proxy_pb2.TcpProxy(stat_prefix=prefix, idle_timeout=quoting.seconds(IDLE))
    if not lasting:
        made.max_downstream_connection_duration.CopyFrom(quoting.seconds(MAX_CONNECTION_SECONDS))
        made.max_downstream_connection_duration_jitter_percentage.CopyFrom(
            percent_pb2.Percent(value=JITTER)
        )
    return made


def filters(stat_prefix: str, prefix: str, what: str) -> list[Any]:
    """Give the filters that send a connection to the cluster whose name ends in ``what``."""
    text = base_pb2.DataSource(inline_string=quoting.literal(prefix) + what)
    value = value_pb2.FilterStateValue(
        object_key="envoy.tcp_proxy.cluster",
        format_string=substitution_format_string_pb2.SubstitutionFormatString(
            text_format_source=text
        ),
    )
    written = set_filter_state_pb2.Config(on_new_connection=[value])
    made = forward(stat_prefix)
    made.cluster = names.BROKEN
    return [
        components.Filter(
            name="envoy.filters.network.set_filter_state", typed_config=packed(written)
        ),
        components.Filter(name="envoy.filters.network.tcp_proxy", typed_config=packed(made)),
    ]


def limit_buffers(listener: Any) -> None:
    """Let a listener keep its connections small, and notice clients that went without a word.

    These are a listener's own fields: they depend on nothing.
    """
    listener.per_connection_buffer_limit_bytes.CopyFrom(number(BUFFER))
    for level, name, value in (
        (_SOCKET, _KEEPALIVE, 1),
        (_TCP, _IDLE, KEEPALIVE),
        (_TCP, _INTERVAL, KEEPALIVE),
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


def set_tcp_keepalive(cluster: Any) -> None:
    """The same for a cluster."""
    cluster.per_connection_buffer_limit_bytes.CopyFrom(number(BUFFER))
    asked = cluster.upstream_connection_options.tcp_keepalive
    asked.keepalive_time.CopyFrom(number(KEEPALIVE))
    asked.keepalive_interval.CopyFrom(number(KEEPALIVE))
    asked.keepalive_probes.CopyFrom(number(KEEPALIVE_PROBES))


class DynamicClusterDiff(msgspec.Struct):
    """What is directed otherwise than before."""

    fresh: list[DynamicCluster]
    gone: list[DynamicCluster]


class Names:
    """The names of a TLS port, told apart: which have a chain, and which only a cluster."""

    def __init__(self, port: int) -> None:
        self._prefix = names.by_name(port)
        self._followed: ChangeTracker[ir.L4Host] = ChangeTracker()
        self._own_wide: dict[str, ir.L4Host] = {}
        self._wide: frozenset[str] = frozenset()
        self._directed: dict[str, DynamicCluster] = {}
        self._apart: dict[str, ir.L4Host] = {}
        self.chained: tuple[ir.L4Host, ...] = ()
        """Those that have a chain, sorted."""

    def follow(self, hosts: Collection[ir.L4Host], https: Iterable[str]) -> DynamicClusterDiff:
        """Look at the names that there are now; say which of those without chain changed.

        ``https``: names of chains that end TLS on the same port. Chains are looked for before all
        other names: what a wide one covers must have a chain, too.
        """
        fresh, gone = self._followed.follow(hosts)
        for each in gone:
            self._own_wide.pop(each.hostname, None)
        for host in fresh:
            if _is_wide(host.hostname) and single_cluster(host) is None:
                self._own_wide[host.hostname] = host
        wide = frozenset((*self._own_wide, *filter(_is_wide, https)))
        if wide != self._wide:
            self._wide, fresh = wide, list(hosts)
        before = {each: self._directed.get(each) for each in _named(fresh, gone)}
        chained = {each: self._apart.get(each) for each in before}
        for each in gone:
            self._drop(each.hostname)
        for host in fresh:
            self._drop(host.hostname)
            self._place(host)
        if any(self._apart.get(name) is not host for name, host in chained.items()):
            self.chained = tuple(self._apart[name] for name in sorted(self._apart))
        after = {name: self._directed.get(name) for name in before}
        moved = [(before[name], after[name]) for name in before if before[name] != after[name]]
        return DynamicClusterDiff(
            [new for _, new in moved if new is not None],
            [old for old, _ in moved if old is not None],
        )

    def _drop(self, hostname: str) -> None:
        self._apart.pop(hostname, None)
        self._directed.pop(hostname, None)

    def _place(self, host: ir.L4Host) -> None:
        cluster = single_cluster(host)
        if cluster is None or self._covered(host.hostname):
            self._apart[host.hostname] = host
        elif cluster:
            self._directed[host.hostname] = DynamicCluster(self._prefix + host.hostname, cluster)

    def _covered(self, hostname: str) -> bool:
        if not self._wide or not hostname:
            return False
        labels = hostname.removeprefix("*.").split(".")
        first = 0 if hostname.startswith("*.") else 1
        tails = (f"*.{'.'.join(labels[start:])}" for start in range(first, len(labels)))
        return "" in self._wide or any(tail in self._wide for tail in tails if tail != hostname)


def _named(*several: Iterable[ir.L4Host]) -> dict[str, None]:
    return {host.hostname: None for hosts in several for host in hosts}


def _is_wide(hostname: str) -> bool:
    return not hostname or hostname.startswith("*.")
