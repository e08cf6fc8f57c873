"""Result of `gatehouse explain --send`, compared with the expectation."""

from __future__ import annotations

import aiohttp
import msgspec

from gatehouse.cli.logged_request import LoggedRequest
from gatehouse.compiler.evaluation.explanation import ExpectedResponse

_AGREES, _DIFFERS = "as expected", "unlike the expected answer"


class SentResponse(msgspec.Struct, frozen=True, rename="camel"):
    """Result of a request or connection."""

    agrees: bool
    """It is one of the expected answers."""
    text: str
    status: int | None = None
    """Status of HTTP, or of gRPC for a gRPC call; None if there was no response."""
    logged: LoggedRequest | msgspec.UnsetType = msgspec.UNSET
    """Its entry in the access log, if the data plane may have answered itself."""

    @classmethod
    def compared(cls, text: str, agrees: bool, status: int | None = None) -> SentResponse:
        """Return a result whose text says whether it is an expected one."""
        return cls(agrees, f"{text}, {_AGREES if agrees else _DIFFERS}", status)

    def judged(self, agrees: bool, logged: LoggedRequest) -> SentResponse:
        """Return the result with its entry in the access log, and the verdict that follows."""
        text = self.text.removesuffix(f", {_AGREES}").removesuffix(f", {_DIFFERS}")
        compared = self.compared(text, agrees, self.status)
        return msgspec.structs.replace(compared, logged=logged)

    def explained(self, logged: LoggedRequest, expected: ExpectedResponse) -> SentResponse:
        """Return the answer with its entry in the access log.

        An answer of the data plane itself is unlike that of a backend.
        """
        return self.judged(
            self.agrees and not (logged.reason and expected.verdict == "forwarded"), logged
        )


def failure_text(error: Exception) -> str:
    """Return why a request has no response, without addresses of objects in memory."""
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
