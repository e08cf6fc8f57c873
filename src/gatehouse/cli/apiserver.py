"""`gatehouse apiserver`: the embedded API server and the commands for its storage."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import click

from gatehouse.apiserver_extension.extension import GATEHOUSE, STORAGE_NAMES
from gatehouse.cli import run, storage_option
from gatehouse.cli.errors import CLIError
from gatehouse.cli.output import show
from gatehouse.cli.parameters import PATH
from gatehouse.standalone.node import pods
from kube_api_server import main
from kube_api_server.http.connections import ConnectionLimits
from kube_api_server.http.handler import Limits
from kube_api_server.identity.static_tokens import TokenFileError
from kube_api_server.storage import backup as transfer
from kube_api_server.storage import encryption
from kube_api_server.storage.backup import TransferError
from kube_api_server.storage.encryption import EncryptionError
from kube_api_server.storage.entries import StorageAddressError, UnavailableError

_REQUIRED = (
    "--storage, --tls-cert-file, --tls-private-key-file and --client-ca-file are required without "
    "a command"
)
EXPECTED = (EncryptionError, TokenFileError, TransferError, UnavailableError, StorageAddressError)


@click.group(invoke_without_command=True, subcommand_metavar="[COMMAND]")
@click.option(
    "--storage",
    default=None,
    callback=storage_option.storage,
    help="Storage: directory of a SQLite database, or "
    "etcd://host:port[,host:port]/prefix?ca=FILE&cert=FILE&key=FILE.",
)
@click.option(
    "--bind-address",
    "bind",
    default="127.0.0.1:16443",
    show_default=True,
    help="Listen address (host:port).",
)
@click.option(
    "--tls-cert-file",
    "tls_cert",
    type=PATH,
    default=None,
    help="Path of the TLS certificate (PEM).",
)
@click.option(
    "--tls-private-key-file",
    "tls_key",
    type=PATH,
    default=None,
    help="Path of the TLS private key (PEM).",
)
@click.option(
    "--client-ca-file",
    "client_ca",
    type=PATH,
    default=None,
    help="Path of the CA certificates of clients (PEM).",
)
@click.option(
    "--service-account-signing-key-file",
    "token_key",
    type=PATH,
    default=None,
    help="Path of the EC key that signs the first service account tokens (PEM).",
)
@click.option(
    "--token-file",
    type=PATH,
    default=None,
    help='Path of the static tokens: lines of token,user,uid,"group,group".',
)
@click.option(
    "--encryption-key-file",
    "encryption_keys",
    type=PATH,
    default=None,
    help="Path of the keys that encrypt Secrets at rest. Default: not encrypted.",
)
@click.option(
    "--audit-log-path",
    "audit_log",
    type=PATH,
    default=None,
    help="Path of the audit log (JSON lines). Default: no audit log.",
)
@click.option("--audit-reads", is_flag=True, help="Include read requests in the audit log.")
@click.option(
    "--anonymous-auth",
    "anonymous",
    is_flag=True,
    help="Accept requests without credentials as user system:anonymous.",
)
@click.option(
    "--service-cluster-ip-range",
    "service_cidr",
    default="10.96.0.0/16",
    show_default=True,
    help="CIDR of the cluster IPs of Services.",
)
@click.option(
    "--max-requests-inflight",
    "max_reads",
    default=400,
    show_default=True,
    help="Seats for read requests. Priority levels share the seats for reads and writes.",
)
@click.option(
    "--max-mutating-requests-inflight",
    "max_writes",
    default=200,
    show_default=True,
    help="Seats for write requests. Priority levels share the seats for reads and writes.",
)
@click.option(
    "--max-connections-per-source",
    "per_source",
    default=1000,
    show_default=True,
    help="Maximum number of connections of one source address without an authenticated request. "
    "The oldest is closed for a new one.",
)
@click.option(
    "--max-connections-per-user",
    "per_user",
    default=1000,
    show_default=True,
    help="Maximum number of connections of one user, or of the ServiceAccounts of one namespace.",
)
@click.option(
    "--node-dir",
    type=PATH,
    default=None,
    help="Directory of `gatehouse node`, for Pod logs. Default: Pod logs are not served.",
)
@click.pass_context
def apiserver(
    context: click.Context,
    storage: str | None,
    bind: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    client_ca: Path | None,
    token_key: Path | None,
    token_file: Path | None,
    encryption_keys: Path | None,
    audit_log: Path | None,
    audit_reads: bool,
    anonymous: bool,
    service_cidr: str,
    max_reads: int,
    max_writes: int,
    per_source: int,
    per_user: int,
    node_dir: Path | None,
) -> None:
    """Serve the embedded Kubernetes API, or run a command on its storage."""
    if context.invoked_subcommand is not None:
        return
    if not storage or tls_cert is None or tls_key is None or client_ca is None:
        raise click.UsageError(_REQUIRED, context)
    options = main.ApiServerOptions(
        storage=storage,
        bind=bind,
        tls_cert=tls_cert,
        tls_key=tls_key,
        client_ca=client_ca,
        token_key=token_key,
        token_file=token_file,
        encryption_keys=encryption_keys,
        audit_log=audit_log,
        audit_reads=audit_reads,
        anonymous=anonymous,
        service_cidr=service_cidr,
        limits=Limits(max_reads, max_writes),
        connection_limits=ConnectionLimits(per_source, per_user),
        pod_logs=functools.partial(pods.log_file, node_dir) if node_dir else None,
        extension=GATEHOUSE,
    )

    async def part(stop: asyncio.Event, leave: asyncio.Event) -> None:
        await main.run_api_server(options, await run.any_event(stop, leave))

    run.run_until_signal(part, expected=EXPECTED)


_STORAGE = click.option(
    "--storage",
    required=True,
    callback=storage_option.storage,
    help="Directory (SQLite) or etcd:// URL.",
)


@apiserver.command()
@_STORAGE
@click.option("--to", "target", type=PATH, required=True, help="Path of the backup.")
def backup(storage: str, target: Path) -> None:
    """Write all objects to a file. The server may be running."""

    async def work() -> None:
        revision, records = await transfer.read_backup(storage, STORAGE_NAMES)
        transfer.dump_backup(target, revision, records, STORAGE_NAMES)
        show(f"{len(records)} objects of revision {revision} written to {target}")

    _run(work)


@apiserver.command()
@_STORAGE
@click.option("--from", "source", type=PATH, required=True, help="Path of the backup.")
def restore(storage: str, source: Path) -> None:
    """Restore a backup into an empty storage."""

    async def work() -> None:
        revision, records = transfer.load_backup(source, STORAGE_NAMES)
        count = await transfer.restore_objects(storage, revision, records, STORAGE_NAMES)
        show(f"{count} objects restored into {storage}")

    _run(work)


@apiserver.command()
@click.option(
    "--from",
    "source",
    required=True,
    callback=storage_option.storage,
    help="Source storage, whose server must be stopped.",
)
@click.option(
    "--to",
    "target",
    required=True,
    callback=storage_option.storage,
    help="Target storage, which must be empty.",
)
def migrate(source: str, target: str) -> None:
    """Copy all objects from one storage to another."""

    async def work() -> None:
        revision, records = await transfer.read_backup(source, STORAGE_NAMES)
        count = await transfer.restore_objects(target, revision, records, STORAGE_NAMES)
        show(f"{count} objects copied to {target}")

    _run(work)


@apiserver.command("generate-encryption-key")
def generate_encryption_key() -> None:
    """Print a new line for --encryption-key-file. The first line of that file encrypts."""
    show(encryption.generate_key())


def _run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        asyncio.run(work())
    except (*EXPECTED, OSError) as error:
        raise CLIError(str(error)) from error


COMMANDS = (apiserver,)
