"""Running the commands that change the node's network."""

from __future__ import annotations

import asyncio

COMMAND_TIMEOUT_SECONDS = 10.0
"""No command takes so long; one that does is ended, and counts as failed."""


class CommandError(Exception):
    """A command failed; the message holds its own words."""


class CommandMissingError(CommandError):
    """There is no such command on this node."""


async def run(*words: str, given: str = "") -> str:
    """Run a command with ``given`` as its input; gives what it printed. Raises CommandError."""
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE if given else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError as error:
        raise CommandMissingError(f"the command {words[0]} is missing") from error
    except OSError as error:
        raise CommandError(f"{words[0]}: {error.strerror}") from error
    try:
        async with asyncio.timeout(COMMAND_TIMEOUT_SECONDS):
            printed, said = await process.communicate(given.encode() or None)
    except BaseException as error:
        if process.returncode is None:
            process.kill()
            await process.wait()
        if isinstance(error, TimeoutError):
            raise CommandError(
                f"{' '.join(words)}: no end after {COMMAND_TIMEOUT_SECONDS:.0f} s"
            ) from error
        raise
    if process.returncode:
        reason = said.decode(errors="replace").strip() or f"status {process.returncode}"
        raise CommandError(f"{' '.join(words)}: {reason}")
    return printed.decode(errors="replace")
