"""Files that the agents of both proxies have."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gatehouse.dataplane import connection_counts, request_log


class AgentPaths(msgspec.Struct, frozen=True):
    """Paths under the agent's root and run directories."""

    root: Path
    run: Path

    @property
    def access_log(self) -> Path:
        """Output of the proxy: entries of the access log, until the agent forwards them."""
        return self.run / "access.log"

    @property
    def request_log(self) -> Path:
        """Lines about requests, until the agent counts them."""
        return self.run / request_log.FILE

    @property
    def connection_log(self) -> Path:
        """Lines about L4 connections, until the agent counts them."""
        return self.run / connection_counts.CONNECTIONS_FILE
