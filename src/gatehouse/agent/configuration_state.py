"""Metrics of the configuration that a proxy serves: version, age and certificates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping

import structlog

from gatehouse.agent import certificate_expiry
from gatehouse.agent.certificate_expiry import Expiry, parse_expiry
from gatehouse.runtime.prometheus import Sample

log = structlog.get_logger("gatehouse.agent")

Chains = Callable[[], Mapping[str, Callable[[], bytes]]]
"""Returns a reader of each certificate chain as PEM, by a key that depends on its content."""

_POLL_SECONDS = 1.0


class ConfigurationState:
    """The confirmed configuration, as seen once a second.

    `version` returns the confirmed version, empty while it is unknown. `chains` returns the
    certificate chains of the configuration. It runs in a thread and may raise OSError.
    """

    def __init__(self, version: Callable[[], str], chains: Chains) -> None:
        self._version, self._chains = version, chains
        self._expiries: dict[str, Expiry | None] = {}
        self._last = ""
        self._unread = False
        """True if the certificates of the last version have not been read."""
        self._since = 0.0

    async def run(self) -> None:
        """Watch the configuration until cancelled."""
        while True:
            await self.update()
            await asyncio.sleep(_POLL_SECONDS)

    async def update(self) -> None:
        """Read the certificates and record the time if the version differs from the last one."""
        version = self._version()
        if version and version != self._last:
            self._last, self._since, self._unread = version, time.time(), True
        if not self._unread:
            return
        try:
            await asyncio.to_thread(self._read_certificates)
            self._unread = False
        except OSError as error:
            log.warning("expiry of certificates unknown", error=str(error))

    def _read_certificates(self) -> None:
        """Read the certificates that were not read before. Raises OSError."""
        expiries: dict[str, Expiry | None] = {}
        for key, read in self._chains().items():
            known = key in self._expiries
            expiries[key] = self._expiries[key] if known else parse_expiry(read())
        self._expiries = expiries

    def samples(self) -> Iterator[Sample]:
        """Yield the current metrics."""
        name = "gatehouse_agent_configuration"
        help_ = "Confirmed configuration version."
        yield Sample(f"{name}_info", help_, 1, labels={"version": self._version()})
        if self._since:
            help_ = "Unix time at which the agent first saw the confirmed version."
            yield Sample(f"{name}_timestamp_seconds", help_, self._since)
        yield from certificate_expiry.certificate_samples(filter(None, self._expiries.values()))
