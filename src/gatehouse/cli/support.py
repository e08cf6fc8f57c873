"""`gatehouse support`: a bundle for bug reports, without secrets."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import click

from gatehouse.cli.errors import CLIError
from gatehouse.cli.output import show
from gatehouse.cli.parameters import PATH, kubeconfig_of
from gatehouse.cli.support_collection import Collection, collect_support
from gatehouse.kube import client as kube
from gatehouse.kube.config import ConfigError
from gatehouse.standalone.state_directory import State, default_directory

_README = """\
Support bundle of Gatehouse.

Contents: versions, objects with their status, Events, the configuration, metrics and logs of data
planes as far as they are reachable. problems.txt lists what objects report, and missing.txt what
could not be collected.

Removed: values of Secrets wherever they occur, contents of ConfigMaps, snippets, environment
variables, annotations of other projects, patches, private keys, tokens, passwords, and query
parameters and user information in URLs. Messages that people wrote freely cannot be checked
completely: look through the files before you send them to others.
"""


@click.command()
@click.option(
    "--output",
    "-o",
    "target",
    type=PATH,
    default=None,
    help="File to write. Default: gatehouse-support-DATE.tar.gz in the current directory.",
)
@click.option(
    "--state-dir",
    type=PATH,
    default=None,
    help="State directory of `gatehouse up`. Default: $XDG_STATE_HOME/gatehouse.",
)
@click.option(
    "--kubeconfig",
    type=PATH,
    default=None,
    help="Path of the kubeconfig. Default: $KUBECONFIG, or that of `gatehouse up`.",
)
def support(target: Path | None, state_dir: Path | None, kubeconfig: Path | None) -> None:
    """Write a bundle for bug reports (tar.gz), without secrets.

    \b
    gatehouse support
    gatehouse support -o /tmp/bundle.tar.gz
    tar -tzf gatehouse-support-*.tar.gz

    It has objects with their status, Events, versions, and the configuration, metrics and logs of
    data planes as far as they are reachable. Look through it before you send it to others.
    """
    now = datetime.now(UTC)
    target = target or Path(f"gatehouse-support-{now:%Y%m%d-%H%M%S}.tar.gz")
    state = State(state_dir or default_directory(os.environ))
    if kubeconfig is None and state_dir is not None:
        kubeconfig = state.kubeconfig
    try:
        collection = asyncio.run(collect_support(kubeconfig_of(kubeconfig), state))
        write_bundle(target, collection, now)
    except (kube.ApiError, ConfigError) as error:
        raise CLIError(str(error)) from error
    except FileExistsError as error:
        raise CLIError(f"{target}: file exists") from error
    except OSError as error:
        raise CLIError(f"{target}: {error.strerror or error}") from error
    for problem in collection.problems:
        show(f"missing: {problem}", err=True)
    show(f"{target}: {len(collection.files)} files; look through it before you send it")


def write_bundle(target: Path, collection: Collection, now: datetime) -> None:
    """Write a bundle that only its owner can read. Raises OSError, also if the file exists."""
    files = {"README.txt": _README, **collection.files}
    files["missing.txt"] = "".join(f"{problem}\n" for problem in collection.problems)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for path, text in sorted(files.items()):
            content = text.encode(errors="replace")
            info = tarfile.TarInfo(f"gatehouse-support/{path}")
            info.size, info.mode, info.mtime = len(content), 0o600, int(now.timestamp())
            archive.addfile(info, io.BytesIO(content))


COMMANDS = (support,)
