"""Input events and effects of a session."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gatehouse.dataplane import features
from gatehouse.dataplane.agent_limits import (
    MAX_ERROR_CHARACTERS,
    MAX_PATH_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    cut_paths,
    cut_texts,
)


class SeparateEndpoints(msgspec.Struct, frozen=True):
    """The endpoints of a version, which some instances receive separately, one upstream at a
    time."""

    files: str
    """Version of the files without endpoints."""
    upstreams: tuple[tuple[str, str], ...]
    """Names and digests of upstreams. A digest is equal as long as the servers are equal."""


class Publish(msgspec.Struct, frozen=True, tag=True):
    """``version`` is the desired version. Empty: stop sending."""

    version: str
    separate_endpoints: Callable[[], SeparateEndpoints | None] = lambda: (
        None
    )  # Expensive; called only if needed.


class Register(msgspec.Struct, frozen=True, tag=True):
    """The instance described its NGINX. ``nginx_id`` is empty until the agent has found one."""

    nginx_id: str
    proxy: str
    modules: tuple[str, ...] = ()
    features: frozenset[str] = frozenset()
    main_file: str = ""
    """Path of the main configuration file."""
    problem: str = ""
    """Reason why this NGINX serves nothing; empty if no problem is known."""
    loadable_modules: tuple[str, ...] = ()
    """Names of the dynamic modules that this NGINX can load, such as ``ngx_stream_module``."""
    reports_files: bool = False
    """True if the agent reports the files that NGINX reads. Such an agent deletes reported files
    that a request neither contains nor lists as unmanaged."""

    @property
    def takes_actions(self) -> bool:
        """True for NGINX Plus with NGINX Agent: upstream servers are sent separately."""
        nginx_agent = features.ENDPOINTS not in self.features
        calls_api = features.API_ACTION in self.features
        return nginx_agent and calls_api and "nginx-plus" in self.proxy

    @property
    def limited(self) -> Register:
        """The description within the limits of agents. An NGINX whose identifier or path is too
        long counts as not found, because requests could not name it."""
        usable = (
            len(self.nginx_id) <= MAX_TEXT_CHARACTERS and len(self.main_file) <= MAX_PATH_CHARACTERS
        )
        return Register(
            self.nginx_id if usable else "",
            self.proxy[:MAX_TEXT_CHARACTERS],
            cut_texts(self.modules),
            frozenset(cut_texts(self.features)),
            self.main_file if usable else "",
            self.problem[:MAX_ERROR_CHARACTERS],
            cut_texts(self.loadable_modules),
            self.reports_files,
        )


class Reconnected(msgspec.Struct, frozen=True, tag=True):
    """The instance opened a new connection. It may be another process than before."""

    about: Register


class Restarted(msgspec.Struct, frozen=True, tag=True):
    """The instance reported on its open stream that it is a new process."""

    about: Register


class HasVersion(msgspec.Struct, frozen=True, tag=True):
    """The instance reported, without a request, the version that it serves."""

    version: str


class HasFiles(msgspec.Struct, frozen=True, tag=True):
    """The instance reported the files that its NGINX reads. ``paths`` excludes Gatehouse's
    files."""

    paths: tuple[str, ...]


class Health(msgspec.Struct, frozen=True, tag=True):
    """The instance reported the health of its NGINX."""

    problem: str
    """Reason why NGINX serves nothing; empty if it is healthy."""


class StreamOpen(msgspec.Struct, frozen=True, tag=True):
    """Stream ``generation`` was opened. A greater number is a newer stream."""

    generation: int


class StreamClosed(msgspec.Struct, frozen=True, tag=True):
    """Stream ``generation`` ended."""

    generation: int


class ApplyResponse(msgspec.Struct, frozen=True, tag=True):
    """The final response to the request ``correlation``. An empty ``error`` means success."""

    correlation: str
    error: str = ""
    rejected: bool = False
    """True if NGINX rejected the files. False if the agent failed to fetch or store them, too."""


class FileFetched(msgspec.Struct, frozen=True, tag=True):
    """The instance fetched a file, so it is working on the request."""


class Elapsed(msgspec.Struct, frozen=True, tag=True):
    """Time passed."""


AgentEvent = (
    Publish
    | Register
    | Reconnected
    | Restarted
    | HasVersion
    | HasFiles
    | Health
    | StreamOpen
    | StreamClosed
    | ApplyResponse
    | FileFetched
    | Elapsed
)


def limited_event(event: AgentEvent) -> AgentEvent:
    """Return an event with what may be stored of the texts and lists that an agent sent."""
    match event:
        case Register():
            return event.limited
        case Reconnected(about):
            return Reconnected(about.limited)
        case Restarted(about):
            return Restarted(about.limited)
        case HasVersion(version):
            return HasVersion(version if len(version) <= MAX_TEXT_CHARACTERS else "")
        case HasFiles(paths):
            return HasFiles(cut_paths(paths))
        case Health(problem):
            return Health(problem[:MAX_ERROR_CHARACTERS])
        case ApplyResponse(correlation, error, rejected):
            return ApplyResponse(correlation, error[:MAX_ERROR_CHARACTERS], rejected)
    return event


class Send(msgspec.Struct, frozen=True):
    """Effect: send a request on stream ``generation`` to apply ``version``."""

    generation: int
    version: str
    correlation: str
    upstream: str = ""
    """If set, request only the servers of this upstream; the files are applied already."""


class End(msgspec.Struct, frozen=True):
    """Effect: end stream ``generation`` because a newer one replaced it or its client does not
    respond."""

    generation: int


Effect = Send | End
