"""Execution of the commands that change the node's network."""

from __future__ import annotations

import asyncio

from kube_base.runtime.time_limits import scaled

COMMAND_TIMEOUT_SECONDS = scaled(10.0)
"""Timeout of a command in seconds. No command normally takes that long. It is killed then."""


class CommandError(Exception):
    """A command failed. The message quotes its error output."""


class CommandMissingError(CommandError):
    """The command is not installed on this node."""


async def run_command(*words: str, stdin: str = "") -> str:
    """Run a command with `stdin` as its input. Return its output. Raises CommandError."""
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError as error:
        raise CommandMissingError(f"command {words[0]} not found") from error
    except OSError as error:
        raise CommandError(f"{words[0]}: {error.strerror}") from error
    try:
        async with asyncio.timeout(COMMAND_TIMEOUT_SECONDS):
            output, errors = await process.communicate(stdin.encode() or None)
    except BaseException as error:
        if process.returncode is None:
            process.kill()
            await process.wait()
        if isinstance(error, TimeoutError):
            raise CommandError(
                f"{' '.join(words)}: did not finish within {COMMAND_TIMEOUT_SECONDS:.0f} s"
            ) from error
        raise
    if process.returncode:
        reason = errors.decode(errors="replace").strip() or f"status {process.returncode}"
        raise CommandError(f"{' '.join(words)}: {reason}")
    return output.decode(errors="replace")
