"""Network configuration of the node: interface with the addresses, and conntrack rules."""

from __future__ import annotations

import time

import structlog

from gatehouse.nodeproxy import conntrack
from gatehouse.nodeproxy.commands import CommandError
from gatehouse.nodeproxy.network_interface import Link
from gatehouse.nodeproxy.options import NodeProxyOptions

log = structlog.get_logger("gatehouse.nodeproxy")


class NodeNetwork:
    """The managed part of the node's network."""

    def __init__(self, options: NodeProxyOptions) -> None:
        """Raises CommandError if the requested conntrack rules are not supported."""
        self._link = Link(options.interface, options.link, options.addresses)
        self._rules = conntrack.conntrack_rules(options.tracking, options.addresses, options.port)
        self.problem = "not checked yet"
        """Reason why the node's network is not as desired. Empty if it is."""
        self.checks = 0
        """Number of checks."""
        self.repairs = 0
        """Number of checks that made changes after an earlier successful one."""
        self.failures = 0
        """Number of failed checks."""
        self.last_success_at = 0.0
        """Unix time of the last successful check in seconds. 0: none."""

    async def ensure(self) -> list[str]:
        """Reconcile everything. Return what was changed. Raises CommandError."""
        self.checks += 1
        try:
            changes = await self._link.ensure()
            if self._rules is not None:
                changes += await self._rules.ensure()
        except CommandError as error:
            self.failures += 1
            if self.problem != str(error):
                log.warning("node network not configured", error=str(error))
            self.problem = str(error)
            raise
        if changes:
            log.info("node network configured", changes=changes)
            self.repairs += bool(self.last_success_at)
        self.problem = ""
        self.last_success_at = time.time()
        return changes

    async def remove(self) -> list[str]:
        """Remove everything. Return what was changed. Raises CommandError."""
        # Remove the interface first: without its addresses nothing needs the rules.
        changes = await self._link.remove()
        if self._rules is not None:
            changes += await self._rules.remove()
        if changes:
            log.info("node network removed", changes=changes)
        return changes
