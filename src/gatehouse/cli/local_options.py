"""Options of the commands that run data planes on this machine."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path

import click

from gatehouse.agent.nginx import binary as nginx_binary
from gatehouse.cli.errors import CLIError
from gatehouse.standalone.node import data_plane_users as users


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


def data_plane_users(_: click.Context, __: click.Parameter, value: str) -> str:
    """Validate the user IDs of data planes. Raises BadParameter."""
    try:
        users.parse_range(value)
    except users.UserRangeError as error:
        raise click.BadParameter(str(error)) from error
    return value


data_plane_users_option = click.option(
    "--data-plane-users",
    default=users.DEFAULT_RANGE,
    show_default=True,
    callback=data_plane_users,
    metavar="FIRST-LAST|none",
    help="User IDs of data planes if root runs this, one for each. none: data planes run as root.",
)


def find_nginx(named: str | None) -> Path:
    """Return the path of the NGINX to run, after probing it. Raises CLIError."""
    try:
        return nginx_binary.probe_nginx(nginx_binary.find_nginx_binary(named or None)).path
    except nginx_binary.NginxMissingError as error:
        raise CLIError(str(error)) from error
