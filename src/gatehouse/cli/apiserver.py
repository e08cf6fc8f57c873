"""`gatehouse apiserver`: the embedded API server, and what looks after its storage."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import click

from gatehouse.apiserver import main
from gatehouse.apiserver.http.handler import Limits
from gatehouse.apiserver.identity.static_tokens import TokenFileError
from gatehouse.apiserver.storage import backup as transfer
from gatehouse.apiserver.storage import encryption
from gatehouse.apiserver.storage.backup import TransferError
from gatehouse.apiserver.storage.encryption import EncryptionError
from gatehouse.apiserver.storage.entries import AddressError, UnavailableError
from gatehouse.cli import run
from gatehouse.cli.errors import CLIError
from gatehouse.standalone.node import pods

PATH = click.Path(path_type=Path)
EXPECTED = (EncryptionError, TokenFileError, TransferError, UnavailableError, AddressError)


@click.group(invoke_without_command=True, subcommand_metavar="[COMMAND]")
@click.option(
    "--storage",
    default=None,
    help="Directory of the database (SQLite), or etcd://host:port[,host:port]/prefix?ca=…&cert=….",
)
@click.option("--bind", default="127.0.0.1:16443", show_default=True, help="host:port to serve.")
@click.option("--tls-cert", type=PATH, default=None, help="Certificate to serve with, PEM.")
@click.option("--tls-key", type=PATH, default=None, help="Its key.")
@click.option("--client-ca", type=PATH, default=None, help="CA of client certificates.")
@click.option("--token-key", type=PATH, default=None, help="EC key that tokens begin with.")
@click.option("--token-file", type=PATH, default=None, help='Static tokens: token,user,uid,"g,g".')
@click.option("--encryption-keys", type=PATH, default=None, help="Keys that seal Secrets at rest.")
@click.option("--audit-log", type=PATH, default=None, help="File of the audit log (JSON lines).")
@click.option("--audit-reads", is_flag=True, help="Note reads in the audit log, too.")
@click.option("--anonymous", is_flag=True, help="Take requests without credentials, as nobody's.")
@click.option("--service-cidr", default="10.96.0.0/16", show_default=True, help="Cluster IPs.")
@click.option("--max-reads", default=400, show_default=True, help="Reads answered at a time.")
@click.option("--max-writes", default=200, show_default=True, help="Writes answered at a time.")
@click.option("--node-dir", type=PATH, default=None, help="The node's directory, for pod logs.")
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
    node_dir: Path | None,
) -> None:
    """Serve the embedded kube-style API; or, with a command, look after its storage."""
    if context.invoked_subcommand is not None:
        return
    if storage is None or tls_cert is None or tls_key is None or client_ca is None:
        needed = "--storage, --tls-cert, --tls-key and --client-ca are needed to serve"
        raise click.UsageError(needed, context)
    options = main.Options(
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
        pod_logs=functools.partial(pods.log_file, node_dir) if node_dir else None,
    )

    async def part(stop: asyncio.Event, leave: asyncio.Event) -> None:
        await main.run(options, await run.either(stop, leave))

    run.run(part, expected=EXPECTED)


_STORAGE = click.option("--storage", required=True, help="Directory (SQLite) or etcd://….")


@apiserver.command()
@_STORAGE
@click.option("--to", "target", type=PATH, required=True, help="File to write.")
def backup(storage: str, target: Path) -> None:
    """Write all objects to a file; the server may go on running."""

    async def work() -> None:
        revision, records = await transfer.read(storage)
        transfer.dump(target, revision, records)
        click.echo(f"{len(records)} objects of revision {revision} written to {target}")

    _run(work)


@apiserver.command()
@_STORAGE
@click.option("--from", "source", type=PATH, required=True, help="File written by backup.")
def restore(storage: str, source: Path) -> None:
    """Read a backup into an empty storage."""

    async def work() -> None:
        revision, records = transfer.load(source)
        count = await transfer.write(storage, revision, records)
        click.echo(f"{count} objects restored into {storage}")

    _run(work)


@apiserver.command()
@click.option("--from", "source", required=True, help="Storage to read, whose server is stopped.")
@click.option("--to", "target", required=True, help="Empty storage to write, such as etcd://….")
def migrate(source: str, target: str) -> None:
    """Move all objects from one storage to another."""

    async def work() -> None:
        revision, records = await transfer.read(source)
        count = await transfer.write(target, revision, records)
        click.echo(f"{count} objects moved to {target}")

    _run(work)


@apiserver.command("new-key")
def new_key() -> None:
    """Print a line for the file of --encryption-keys; the first line seals."""
    click.echo(encryption.generate())


def _run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        asyncio.run(work())
    except EXPECTED as error:
        raise CLIError(str(error)) from error


COMMANDS = (apiserver,)
