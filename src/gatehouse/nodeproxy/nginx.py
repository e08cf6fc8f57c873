"""NGINX configuration of the node proxy, for its stream module (1.19.3 and newer)."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from gatehouse.nodeproxy.options import NodeProxyOptions
from kube_base.types.ip_addresses import bracketed

_WORKERS = 2


class NoNameServerError(Exception):
    """The gateway is a DNS name, and the node has no name server."""


def nginx_configuration(options: NodeProxyOptions, nameservers: Sequence[str]) -> str:
    """Return the configuration file. All values have been checked with the options.

    Raises NoNameServerError.
    """
    listens = "".join(
        f"        listen {bracketed(str(address))}:{options.port} so_keepalive=on;\n"
        for address in options.addresses
    )
    # Two connections per client, and some for NGINX itself.
    connections = 2 * options.connections // _WORKERS + 64
    return f"""\
daemon off;
worker_processes {_WORKERS};
worker_rlimit_nofile {2 * connections};
worker_shutdown_timeout 30s;
pid nginx.pid;
error_log stderr notice;

events {{
    worker_connections {connections};
}}

stream {{
    access_log off;
{_resolver(options, nameservers)}
    server {{
{listens}        proxy_connect_timeout 5s;
        proxy_timeout 24h;
        proxy_socket_keepalive on;
        proxy_protocol on;
        proxy_pass {_target(options)};
    }}
}}
"""


def nameservers(resolv_conf: str) -> list[str]:
    """Return the name servers in a resolv.conf, as NGINX writes them."""
    servers = []
    for line in resolv_conf.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == "nameserver":
            try:
                servers.append(bracketed(str(ipaddress.ip_address(words[1]))))
            except ValueError:
                continue
    return servers


def _resolver(options: NodeProxyOptions, servers: Sequence[str]) -> str:
    if options.gateway.address is not None:
        return ""
    if not servers:
        raise NoNameServerError("no name server in /etc/resolv.conf")
    # NGINX resolves a name in a variable again when its TTL has expired.
    return (
        f"    resolver {' '.join(servers)};\n    resolver_timeout 5s;\n"
        f'    map "" $gateway {{\n        default "{options.gateway}";\n    }}\n'
    )


def _target(options: NodeProxyOptions) -> str:
    return str(options.gateway) if options.gateway.address is not None else "$gateway"
