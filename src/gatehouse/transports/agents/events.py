"""What happens to a session, and what it has done about it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gatehouse.dataplane import features


class Apart(msgspec.Struct, frozen=True):
    """What of a version some instances get apart from its files, upstream by upstream."""

    files: str
    """The version of the files alone."""
    upstreams: tuple[tuple[str, str], ...]
    """Names, and what is the same as long as an upstream's servers are."""


class Publish(msgspec.Struct, frozen=True, tag=True):
    """The instance is to have ``version``; empty: nothing more is to be told."""

    version: str
    apart: Callable[[], Apart | None] = lambda: None  # A look at all of it, for those who need it.


class Register(msgspec.Struct, frozen=True, tag=True):
    """The instance said which NGINX it has; ``nginx_id`` is empty while it has found none."""

    nginx_id: str
    proxy: str
    modules: tuple[str, ...] = ()
    features: frozenset[str] = frozenset()
    main_file: str = ""
    """Path of the file that NGINX begins with."""
    problem: str = ""
    """Why this NGINX serves nothing; empty: nothing speaks against it."""
    reports_files: bool = False
    """Whether its agent reports the files that NGINX reads, and deletes those it reported which a
    request neither holds nor names as unmanaged."""

    @property
    def takes_actions(self) -> bool:
        """Whether it gets the servers of upstreams apart: NGINX Plus with an agent not ours."""
        told = features.ENDPOINTS not in self.features and features.API_ACTION in self.features
        return told and "nginx-plus" in self.proxy


class Reconnect(msgspec.Struct, frozen=True, tag=True):
    """The instance made a new connection, so it may be another process than before."""

    about: Register


class Restarted(msgspec.Struct, frozen=True, tag=True):
    """The instance said, on its open stream, that it is a new process."""

    about: Register


class HasVersion(msgspec.Struct, frozen=True, tag=True):
    """The instance said, unasked, which version it is serving."""

    version: str


class HasFiles(msgspec.Struct, frozen=True, tag=True):
    """The instance reported the files that its NGINX reads; ``paths`` are those not Gatehouse's."""

    paths: tuple[str, ...]


class Health(msgspec.Struct, frozen=True, tag=True):
    """The instance reported the health of its NGINX."""

    problem: str
    """Why it serves nothing; empty: it is healthy."""


class StreamOpen(msgspec.Struct, frozen=True, tag=True):
    """The instance listens on stream ``generation``; a greater number is a newer stream."""

    generation: int


class StreamClosed(msgspec.Struct, frozen=True, tag=True):
    """Stream ``generation`` ended."""

    generation: int


class Answer(msgspec.Struct, frozen=True, tag=True):
    """The final answer to the request ``correlation``: empty ``error`` is success."""

    correlation: str
    error: str = ""


class Fetching(msgspec.Struct, frozen=True, tag=True):
    """The instance fetched something, so it is at work on what it was asked."""


class Elapsed(msgspec.Struct, frozen=True, tag=True):
    """Time passed."""


Event = (
    Publish
    | Register
    | Reconnect
    | Restarted
    | HasVersion
    | HasFiles
    | Health
    | StreamOpen
    | StreamClosed
    | Answer
    | Fetching
    | Elapsed
)


class Send(msgspec.Struct, frozen=True):
    """Effect: ask on stream ``generation`` that ``version`` be applied."""

    generation: int
    version: str
    correlation: str
    upstream: str = ""
    """Given: only the servers of this upstream are asked for; the files are there."""


class End(msgspec.Struct, frozen=True):
    """Effect: end stream ``generation``: a newer one replaced it, or nobody is at its end."""

    generation: int


Effect = Send | End
