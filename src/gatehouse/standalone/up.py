"""Body of `gatehouse up`: state directory, certificates and supervised processes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import aiohttp
import msgspec
import structlog

from gatehouse.standalone import pki
from gatehouse.standalone.listeners import check_listeners
from gatehouse.standalone.node.data_plane_users import DEFAULT_RANGE, effective_range
from gatehouse.standalone.state_directory import Addresses, State, split_address
from gatehouse.standalone.supervisor import ControlPlaneProcess, ControlPlaneSupervisor
from kube_base.runtime.time_limits import scaled

log = structlog.get_logger("gatehouse.up")

DATA_PLANES = ("gatehouse/nginx:local", "gatehouse/envoy:local")
"""Image names in Pods of data planes, which run the local programs."""

READY_POLL_SECONDS = 0.05
"""Interval in seconds between requests of the API server's /readyz."""

READY_TIMEOUT_SECONDS = scaled(2.0)
"""Timeout in seconds of such a request."""

RENEW_SECONDS = 6 * 3600.0
"""Interval in seconds between checks of certificates."""


class InstallationOptions(msgspec.Struct, frozen=True):
    """Options of an installation."""

    state_dir: Path
    api_address: str = "127.0.0.1:16443"
    agent_address: str = "127.0.0.1:16444"
    health_address: str = "127.0.0.1:0"
    """``host:port`` of the controller's health and metrics; empty: not served."""
    outside_address: str = ""
    """``host:port`` of the agent channel for external machines; empty for none."""
    address_pool: str = "127.100.0.0/16"
    nginx: str = ""
    controller_arguments: tuple[str, ...] = ()
    """Further arguments of the controller's command line."""
    storage: str = ""
    """Storage of the API server; empty for SQLite in the state directory."""
    encryption_keys: Path | None = None
    data_plane_users: str = DEFAULT_RANGE
    """User IDs of data planes, or ``none``. Has an effect only as root."""
    log_level: str = "info"
    log_format: str = "auto"


async def run_installation(
    options: InstallationOptions,
    stop: asyncio.Event,
    on_ready: Callable[[State, str], None],
    leaving: asyncio.Event | None = None,
) -> None:
    """Run an installation until ``stop``. ``on_ready`` gets its state and the API server's URL.

    If ``leaving`` is set then, data planes keep running and the next start adopts them.
    Raises StateError if the directory or a listen address cannot be used.
    """
    state = State(options.state_dir)
    users = effective_range(options.data_plane_users)
    state.acquire(users.ids if users else ())
    state.pki.ensure()
    addresses = state.addresses(options.api_address, options.agent_address, options.health_address)
    server = f"https://{addresses.api}"
    state.write_kubeconfigs(server)
    listeners = {
        "--api-address": addresses.api,
        "--agent-address": addresses.agent,
        "--health-bind-address": addresses.health,
        "--machine-address": options.outside_address,
    }
    supervisor = ControlPlaneSupervisor(_processes(options, state, addresses), state.run, leaving)
    renewal = asyncio.create_task(_renew(state))
    try:
        await supervisor.run(
            stop, lambda: on_ready(state, server), lambda: check_listeners(listeners)
        )
    finally:
        renewal.cancel()
        await asyncio.gather(renewal, return_exceptions=True)


async def _renew(state: State) -> None:
    """Renew certificates in time until cancelled. The agent channel reloads its own."""
    while True:
        await asyncio.sleep(RENEW_SECONDS)
        try:
            await asyncio.to_thread(state.pki.ensure)
        except (OSError, ValueError) as error:
            log.warning("certificates not renewed", error=str(error))


def _processes(
    options: InstallationOptions, state: State, addresses: Addresses
) -> list[ControlPlaneProcess]:
    common = ("--log-level", options.log_level, "--log-format", options.log_format)
    ca = state.pki.ca().cert

    async def api_ready() -> None:
        await _until_ready(addresses.api, ca)

    apiserver = state.pki.leaf(pki.APISERVER)
    return [
        ControlPlaneProcess(
            "apiserver",
            (
                *common,
                "apiserver",
                *("--storage", options.storage or str(state.database)),
                *("--bind-address", addresses.api, "--client-ca-file", str(ca)),
                *_path_option("--encryption-key-file", options.encryption_keys),
                *("--node-dir", str(state.node)),
                *("--audit-log-path", str(state.directory / "audit" / "audit.log")),
                *("--tls-cert-file", str(apiserver.cert)),
                *("--tls-private-key-file", str(apiserver.key)),
                *("--service-account-signing-key-file", str(state.pki.token_key)),
            ),
            api_ready,
        ),
        ControlPlaneProcess("controller", (*common, *_controller(options, state, addresses))),
        ControlPlaneProcess(
            "node",
            (
                *common,
                "node",
                *("--kubeconfig", str(state.node_kubeconfig), "--dir", str(state.node)),
                *("--address-pool", options.address_pool),
                *("--data-plane-users", options.data_plane_users),
                *(("--nginx", options.nginx) if options.nginx else ()),
            ),
        ),
    ]


def _controller(
    options: InstallationOptions, state: State, addresses: Addresses
) -> tuple[str, ...]:
    ca, channel = state.pki.ca().cert, state.pki.leaf(pki.CHANNEL)
    return (
        "controller",
        *("--kubeconfig", str(state.controller_kubeconfig)),
        *("--agent-bind-address", addresses.agent, "--agent-advertise-address", addresses.agent),
        *("--tls-cert-file", str(channel.cert), "--tls-private-key-file", str(channel.key)),
        *("--agent-ca-file", str(ca), "--listener-address-mode", "load-balancer"),
        # Constant names: an upgrade must not replace proxies; only agents are replaced.
        *("--nginx-image", DATA_PLANES[0], "--envoy-image", DATA_PLANES[1]),
        *(("--health-bind-address", addresses.health) if addresses.health else ()),
        *_outside(options.outside_address, ca),
        *options.controller_arguments,
    )


def _outside(address: str, ca: Path) -> tuple[str, ...]:
    return ("--machine-bind-address", address, "--machine-ca-file", str(ca)) if address else ()


def _path_option(name: str, value: Path | None) -> tuple[str, ...]:
    return (name, str(value.absolute())) if value is not None else ()


async def _until_ready(address: str, ca: Path) -> None:
    host, port = split_address(address)
    context = ssl.create_default_context(cafile=str(ca))
    timeout = aiohttp.ClientTimeout(total=READY_TIMEOUT_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        while True:
            try:
                async with session.get(f"https://{host}:{port}/readyz", ssl=context) as response:
                    if response.status == 200:
                        return
            except (aiohttp.ClientError, TimeoutError, OSError):
                pass
            await asyncio.sleep(READY_POLL_SECONDS)
