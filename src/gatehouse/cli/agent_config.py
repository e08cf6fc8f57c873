"""`gatehouse agent-config`: configurations of the agent in this container, for `gatehouse config`.

Runs in images of agents, and imports no module of the control plane except for Envoy's messages.
"""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from gatehouse.agent.options import KEYS
from gatehouse.cli.data_plane_files import read_stored
from gatehouse.cli.errors import CLIError
from gatehouse.cli.output import show
from gatehouse.cli.secret_digest import SecretDigest

COMMAND = "agent-config"
DIGEST_KEY_OPTION = "--digest-key"


@click.command(COMMAND)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    default="/var/lib/gatehouse",
    envvar=KEYS["gatehouse.state_dir"],
    show_default=True,
    help="State directory of the agent.",
)
@click.option(
    DIGEST_KEY_OPTION,
    default="",
    help="Key of the digests that stand for secrets. Data planes that were read with the same key "
    "have the same digest of a secret. Default: a random key.",
)
def agent_config(state_dir: Path, digest_key: str) -> None:
    """Print the configurations of the agent in this container as JSON.

    `gatehouse config` runs it in the Pods of data planes. Digests stand for private keys, tokens
    and passwords.
    """
    digest = SecretDigest(digest_key) if digest_key else SecretDigest.random()
    try:
        stored = read_stored(state_dir, digest)
    except OSError as error:
        raise CLIError(str(error)) from error
    if stored is None:
        raise CLIError(f"{state_dir} has no configuration yet")
    show(msgspec.json.encode(stored).decode())


COMMANDS = (agent_config,)
