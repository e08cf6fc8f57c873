"""`gatehouse certs`: certificates of the channel between the control plane and its agents."""

from __future__ import annotations

import asyncio
import base64
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from gatehouse.apis import resources
from gatehouse.cli.errors import CLIError
from gatehouse.controller.options import SERVER_NAME
from gatehouse.dataplane.machine_identity import Machine
from gatehouse.kube import client as kube
from gatehouse.kube.config import ConfigError
from gatehouse.standalone import pki

PATH = click.Path(path_type=Path)

_PUBLIC = ("ca.crt", "tls.crt", "tls.key")
"""Files of the Secret that the control plane mounts."""

_AUTHORITY = ("ca.crt", "ca.key")
"""Files of the Secret that only renewal needs."""


@click.group(invoke_without_command=True)
@click.option("--dir", "directory", type=PATH, default=None, help="Directory of the files.")
@click.option("--secret", default="", help="namespace/name: keep them in Secrets instead.")
@click.option("--kubeconfig", type=PATH, default=None, help="Without it: the Pod's environment.")
@click.option("--name", "names", multiple=True, default=(SERVER_NAME,), show_default=True)
@click.option("--address", "addresses", multiple=True, help="IP address of the control plane.")
@click.pass_context
def certs(
    context: click.Context,
    directory: Path | None,
    secret: str,
    kubeconfig: Path | None,
    names: tuple[str, ...],
    addresses: tuple[str, ...],
) -> None:
    """Make the channel's certificates, and renew those that will soon expire.

    Safe to run again and again: only what is missing, for other names, or expires within 60 days is
    made anew. The control plane and its agents take over what is new as they run. The authority's
    key, which a renewed authority keeps, is in <dir>/ca.key, or in the Secret <name>-ca.
    """
    if context.invoked_subcommand is not None:
        return
    _check_places(directory, secret)
    try:
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            made = pki.ensure_channel(directory, names, addresses, datetime.now(UTC))
        else:
            made = asyncio.run(_in_secrets(secret, kubeconfig, names, addresses))
    except (OSError, ValueError, ConfigError, kube.ApiError) as error:
        raise CLIError(str(error)) from error
    _show(made)


@certs.command("agent")
@click.argument("name")
@click.option(
    "--for-load-balancer", "balancer", required=True, help="namespace/name of its object."
)
@click.option("--dir", "directory", type=PATH, default=None, help="Directory of the authority.")
@click.option("--secret", default="", help="namespace/name: of the channel, as for `certs`.")
@click.option("--kubeconfig", type=PATH, default=None, help="Without it: the Pod's environment.")
@click.option("--out", type=PATH, default=None, help="Directory to write to. Default: NAME.")
def agent_certificate(
    name: str,
    balancer: str,
    directory: Path | None,
    secret: str,
    kubeconfig: Path | None,
    out: Path | None,
) -> None:
    """Make the certificate by which the agent of machine NAME proves itself.

    NAME is one of spec.hosts of an ExternalLoadBalancer of type nginx or envoy. Safe to run again:
    a certificate that expires within 60 days is made anew. The agent takes it over as it runs.
    """
    _check_places(directory, secret)
    try:
        uri = Machine.parse(Machine(*balancer.partition("/")[::2], name).uri).uri
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    target = out or Path(name)
    try:
        if directory is not None:
            made = pki.ensure_machine(directory, target, uri, datetime.now(UTC))
        else:
            made = asyncio.run(_by_secret(secret, kubeconfig, target, uri))
    except (OSError, ValueError, ConfigError, kube.ApiError) as error:
        raise CLIError(str(error)) from error
    _show(made)


def _check_places(directory: Path | None, secret: str) -> None:
    if (directory is None) == (not secret):
        raise click.UsageError("give either --dir or --secret")


def _show(made: Mapping[str, datetime]) -> None:
    table = Table("File", "Valid until")
    for file, end in made.items():
        table.add_row(file, f"{end:%Y-%m-%d %H:%M} UTC")
    Console().print(table if made else "Nothing to renew.")


async def _by_secret(
    secret: str, kubeconfig: Path | None, target: Path, uri: str
) -> dict[str, datetime]:
    namespace, _, name = secret.partition("/")
    async with _client(kubeconfig) as client:
        found = await client.get(resources.SECRETS, f"{name}-ca", namespace)
    with tempfile.TemporaryDirectory() as scratch:
        for file in _AUTHORITY:
            content = (found.get("data") or {}).get(file)
            if content is None:
                raise ValueError(f"Secret {namespace}/{name}-ca has no {file}")
            (Path(scratch) / file).write_bytes(base64.b64decode(content))
        return pki.ensure_machine(Path(scratch), target, uri, datetime.now(UTC))


def _client(kubeconfig: Path | None) -> kube.Client:
    return kube.Client.from_kubeconfig(kubeconfig) if kubeconfig else kube.Client.from_environment()


async def _in_secrets(
    secret: str, kubeconfig: Path | None, names: tuple[str, ...], addresses: tuple[str, ...]
) -> dict[str, datetime]:
    namespace, _, name = secret.partition("/")
    if not namespace or not name:
        raise click.BadParameter(f"{secret} is not namespace/name", param_hint="--secret")
    async with _client(kubeconfig) as client:
        with tempfile.TemporaryDirectory() as scratch:
            directory = Path(scratch)
            present = {kept: await _read(client, namespace, kept) for kept in (name, f"{name}-ca")}
            for found in present.values():
                for file, content in ((found or {}).get("data") or {}).items():
                    (directory / file).write_bytes(base64.b64decode(content))
            made = pki.ensure_channel(directory, names, addresses, datetime.now(UTC))
            if made:
                # The authority first: without its key nothing could be renewed.
                await _write(client, namespace, f"{name}-ca", "Opaque", directory, _AUTHORITY)
                await _write(client, namespace, name, "kubernetes.io/tls", directory, _PUBLIC)
    return made


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
