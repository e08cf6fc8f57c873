"""What is kept on the node: the addresses, and no tracking of connections to them."""

from __future__ import annotations

import time

import structlog

from gatehouse.nodeproxy import conntrack
from gatehouse.nodeproxy.commands import CommandError
from gatehouse.nodeproxy.network_interface import Link
from gatehouse.nodeproxy.options import Options

log = structlog.get_logger("gatehouse.nodeproxy")


class Node:
    """The node's network, as far as it is ours."""

    def __init__(self, options: Options) -> None:
        """Raises CommandError if nothing can keep tracking away as asked."""
        self._link = Link(options.interface, options.link, options.addresses)
        self._rules = conntrack.rules(options.tracking, options.addresses, options.port)
        self.trouble = "not looked at yet"
        """Why the node is not as it should be; empty if it is."""
        self.checks = 0
        """How often everything was looked at."""
        self.repairs = 0
        """How often something was found otherwise after it had been in order."""
        self.failures = 0
        """How often it could not be put in order."""
        self.last_success_at = 0.0
        """When everything was in order last, in seconds since the epoch; 0: never."""

    async def ensure(self) -> list[str]:
        """Put everything in order; gives what was done. Raises CommandError."""
        self.checks += 1
        try:
            done = await self._link.ensure()
            if self._rules is not None:
                done += await self._rules.ensure()
        except CommandError as error:
            self.failures += 1
            if self.trouble != str(error):
                log.warning("the node is not in order", reason=str(error))
            self.trouble = str(error)
            raise
        if done:
            log.info("put in order", done=done)
            self.repairs += bool(self.last_success_at)
        self.trouble = ""
        self.last_success_at = time.time()
        return done

    async def remove(self) -> list[str]:
        """Remove all that was made; gives what was done. Raises CommandError."""
        # First the address: without it nothing needs the rules.
        done = await self._link.remove()
        if self._rules is not None:
            done += await self._rules.remove()
        if done:
            log.info("cleaned up", done=done)
        return done
