"""Options of the commands that run data planes on this machine."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path

import click

from gatehouse.agent.nginx import binary as nginx_binary
from gatehouse.cli.errors import CLIError


def address_pool(_: click.Context, __: click.Parameter, value: str) -> str:
    """Validate the CIDR of Gateway addresses. Raises BadParameter."""
    pool = _network(value)
    if pool.num_addresses < 4:
        raise click.BadParameter(f"{value}: must have at least 4 addresses")
    if not pool.is_loopback and not _is_local(pool):
        reason = f"{value}: not local to this machine (ip route add local {value} dev lo)"
        raise click.BadParameter(reason)
    return value


def _network(value: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(value)
    except ValueError as error:
        raise click.BadParameter(f"{value}: {error}") from error


def _is_local(pool: ipaddress.IPv4Network) -> bool:
    """Return whether this machine accepts connections to addresses of `pool`."""
    with socket.socket() as probe:
        try:
            probe.bind((str(pool.network_address + 1), 0))
        except OSError:
            return False
    return True


def find_nginx(named: str | None) -> Path:
    """Return the path of the NGINX to run, after probing it. Raises CLIError."""
    try:
        return nginx_binary.probe(nginx_binary.find(named or None)).path
    except nginx_binary.NginxMissingError as error:
        raise CLIError(str(error)) from error
