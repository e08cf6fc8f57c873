"""`gatehouse certs`: certificates of the channel between controller and agents."""

from __future__ import annotations

import asyncio
import base64
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from gatehouse.apis import resources
from gatehouse.cli.errors import CLIError
from gatehouse.cli.output import show
from gatehouse.cli.parameters import PATH
from gatehouse.cli.terminal import ObjectTable, show_coloured
from gatehouse.controller.options import SERVER_NAME
from gatehouse.dataplane.machine_identity import MachineIdentity
from gatehouse.kube import client as kube
from gatehouse.kube.config import ConfigError
from gatehouse.standalone import pki

_CHANNEL_FILES = ("ca.crt", "tls.crt", "tls.key")
"""Files of the Secret that the controller mounts."""

_CA_FILES = ("ca.crt", "ca.key")
"""Files of the Secret with the CA, needed for renewal only."""


@click.group(invoke_without_command=True)
@click.option("--dir", "directory", type=PATH, default=None, help="Directory of the certificates.")
@click.option("--secret", default="", help="Secret for the certificates (namespace/name).")
@click.option(
    "--kubeconfig",
    type=PATH,
    default=None,
    help="Path of the kubeconfig. Default: the service account of the Pod.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    default=(SERVER_NAME,),
    show_default=True,
    help="DNS name of the controller. Can be repeated.",
)
@click.option(
    "--address",
    "addresses",
    multiple=True,
    help="IP address of the controller. Can be repeated.",
)
@click.pass_context
def certs(
    context: click.Context,
    directory: Path | None,
    secret: str,
    kubeconfig: Path | None,
    names: tuple[str, ...],
    addresses: tuple[str, ...],
) -> None:
    """Create the certificates of the agent channel and renew those that expire soon.

    The command is idempotent. It issues certificates that are missing, that are for other names or
    that expire within 60 days. The controller and its agents reload them while running. The key of
    the CA is in <dir>/ca.key or in the Secret <name>-ca. It does not change when the CA is renewed.
    """
    if context.invoked_subcommand is not None:
        return
    _require_one_target(directory, secret)
    try:
        if directory is not None:
            pki.create_directory(directory)
            expiries = pki.ensure_channel(directory, names, addresses, datetime.now(UTC))
        else:
            expiries = asyncio.run(_in_secrets(secret, kubeconfig, names, addresses))
    except (OSError, ValueError, ConfigError, kube.ApiError) as error:
        raise CLIError(str(error)) from error
    _show(expiries)


@certs.command("machine")
@click.argument("name")
@click.option(
    "--load-balancer",
    "balancer",
    required=True,
    help="ExternalLoadBalancer of the machine (namespace/name).",
)
@click.option("--dir", "directory", type=PATH, default=None, help="Directory of the CA.")
@click.option(
    "--secret", default="", help="Secret of the certificates (namespace/name), as for `certs`."
)
@click.option(
    "--kubeconfig",
    type=PATH,
    default=None,
    help="Path of the kubeconfig. Default: the service account of the Pod.",
)
@click.option("--out", type=PATH, default=None, help="Directory of the certificate. Default: NAME.")
def machine_certificate(
    name: str,
    balancer: str,
    directory: Path | None,
    secret: str,
    kubeconfig: Path | None,
    out: Path | None,
) -> None:
    """Create the client certificate of the agent on machine NAME.

    NAME is one of spec.hosts of an ExternalLoadBalancer of type Nginx or Envoy. The command is
    idempotent. It renews a certificate that expires within 60 days. The agent reloads the
    certificate while running.
    """
    _require_one_target(directory, secret)
    try:
        uri = MachineIdentity.parse(MachineIdentity(*balancer.partition("/")[::2], name).uri).uri
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    target = out or Path(name)
    try:
        if directory is not None:
            expiries = pki.ensure_machine(directory, target, uri, datetime.now(UTC))
        else:
            expiries = asyncio.run(_by_secret(secret, kubeconfig, target, uri))
    except (OSError, ValueError, ConfigError, kube.ApiError) as error:
        raise CLIError(str(error)) from error
    _show(expiries)


def _require_one_target(directory: Path | None, secret: str) -> None:
    if (directory is None) == (not secret):
        raise click.UsageError("exactly one of --dir and --secret is required")


def _show(expiries: Mapping[str, datetime]) -> None:
    if not expiries:
        show("Nothing to renew.")
        return
    table = ObjectTable("Certificates", "File", "Valid until")
    for file, end in expiries.items():
        table.add_values(file, f"{end:%Y-%m-%d %H:%M} UTC")
    show_coloured(table)


async def _by_secret(
    secret: str, kubeconfig: Path | None, target: Path, uri: str
) -> dict[str, datetime]:
    namespace, _, name = secret.partition("/")
    async with _client(kubeconfig) as client:
        ca_secret = await client.get(resources.SECRETS, f"{name}-ca", namespace)
    with tempfile.TemporaryDirectory() as scratch:
        for file in _CA_FILES:
            content = (ca_secret.get("data") or {}).get(file)
            if content is None:
                raise ValueError(f"Secret {namespace}/{name}-ca has no key {file}")
            (Path(scratch) / file).write_bytes(base64.b64decode(content))
        return pki.ensure_machine(Path(scratch), target, uri, datetime.now(UTC))


def _client(kubeconfig: Path | None) -> kube.Client:
    return kube.Client.from_kubeconfig(kubeconfig) if kubeconfig else kube.Client.from_environment()


async def _in_secrets(
    secret: str, kubeconfig: Path | None, names: tuple[str, ...], addresses: tuple[str, ...]
) -> dict[str, datetime]:
    namespace, _, name = secret.partition("/")
    if not namespace or not name:
        raise click.BadParameter(f"{secret} must be namespace/name", param_hint="--secret")
    async with _client(kubeconfig) as client:
        with tempfile.TemporaryDirectory() as scratch:
            directory = Path(scratch)
            secrets = [await _read(client, namespace, n) for n in (name, f"{name}-ca")]
            for secret_object in secrets:
                for file, content in ((secret_object or {}).get("data") or {}).items():
                    (directory / file).write_bytes(base64.b64decode(content))
            expiries = pki.ensure_channel(directory, names, addresses, datetime.now(UTC))
            if expiries:
                # The CA first: without its key no certificate could be renewed.
                await _write(client, namespace, f"{name}-ca", "Opaque", directory, _CA_FILES)
                await _write(
                    client, namespace, name, "kubernetes.io/tls", directory, _CHANNEL_FILES
                )
    return expiries


async def _read(client: kube.Client, namespace: str, name: str) -> Mapping[str, Any] | None:
    try:
        return await client.get(resources.SECRETS, name, namespace)
    except kube.NotFound:
        return None


async def _write(
    client: kube.Client,
    namespace: str,
    name: str,
    kind: str,
    directory: Path,
    files: tuple[str, ...],
) -> None:
    data = {file: base64.b64encode((directory / file).read_bytes()).decode() for file in files}
    present = await _read(client, namespace, name)
    if present is not None:
        await client.update(resources.SECRETS, {**present, "data": data})
        return
    metadata = {"name": name, "namespace": namespace}
    await client.create(resources.SECRETS, {"metadata": metadata, "type": kind, "data": data})


COMMANDS = (certs,)
