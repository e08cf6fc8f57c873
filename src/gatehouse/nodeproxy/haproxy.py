"""HAProxy configuration of the node proxy (2.4 and newer)."""

from __future__ import annotations

from gatehouse.nodeproxy.options import NodeProxyOptions
from kube_base.types.ip_addresses import bracketed

_CONNECT_SECONDS = 5
IDLE_HOURS = 24
"""Idle timeout of a connection in hours, because watches may be idle for long."""


def haproxy_configuration(options: NodeProxyOptions, status: str) -> str:
    """Return the configuration file. `status` is the path of the metrics socket.

    All values have been checked with the options: addresses, a port, a DNS name.
    """
    binds = "".join(
        f"    bind {bracketed(str(address))}:{options.port}\n" for address in options.addresses
    )
    named = options.gateway.address is None
    gateway = f"{bracketed(options.gateway.host)}:{options.gateway.port}"
    follow = " resolvers node init-addr last,libc,none" if named else ""
    return f"""\
global
    maxconn {options.connections}
    no strict-limits
    log stdout format raw daemon notice
    hard-stop-after 30s

defaults
    mode tcp
    log global
    option dontlognull
    option clitcpka
    option srvtcpka
    timeout connect {_CONNECT_SECONDS}s
    timeout client {IDLE_HOURS}h
    timeout server {IDLE_HOURS}h
    timeout tunnel {IDLE_HOURS}h

{_resolvers() if named else ""}frontend kube-apiserver
{binds}    default_backend gateway

backend gateway
    retries 3
    server gateway {gateway} send-proxy-v2{follow}

frontend figures
    mode http
    bind unix@{status} mode 600
    timeout client 10s
    http-request use-service prometheus-exporter if {{ path /metrics }}
    http-request return status 404
"""


def _resolvers() -> str:
    # A new address is used at once. Without a name server the last one is used.
    return f"""\
resolvers node
    parse-resolv-conf
    resolve_retries 3
    timeout resolve 5s
    hold obsolete 0s
    hold timeout {IDLE_HOURS}h
    hold refused {IDLE_HOURS}h
    hold other {IDLE_HOURS}h

"""
