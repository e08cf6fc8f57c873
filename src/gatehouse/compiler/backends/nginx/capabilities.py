"""Capabilities of an NGINX and its agent, as the agent reports them."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gatehouse.compiler.ir.tracing import TraceExport

_VERSION = re.compile(r"-[0-9][0-9.]*$")

_RELEASE = re.compile(r"nginx-plus-r(\d{1,9})")


class NginxCapabilities(msgspec.Struct, frozen=True):
    """Capabilities of one NGINX binary and its agent."""

    version: tuple[int, int, int]
    modules: frozenset[str] = frozenset()
    """Names of dynamic modules, without versions."""
    named_endpoints: bool = False
    """True if the agent resolves endpoint names of upstreams (DNS)."""
    connectors: bool = False
    """True if the agent runs a TLS connector."""
    authenticators: bool = False
    """True if the agent runs an authenticator."""
    plus: int = 0
    """Release of NGINX Plus; 0: NGINX Open Source."""
    api_actions: bool = False
    """True if the agent applies upstream changes separately from files, by the NGINX Plus API."""
    access_log: bool = False
    """True if the agent forwards access log entries from the standard output of NGINX."""
    traces: bool = False
    """True if the agent loads the module ngx_otel_module."""
    failure_causes: bool = False
    """True if the agent replaces marks in logs by causes from the error log."""
    pickers: bool = False
    """True if the agent runs a picker client."""

    @classmethod
    def parse(cls, text: str, modules: Iterable[str] = (), **agent: bool) -> NginxCapabilities:
        """Parse a version such as ``1.31.3``, ``nginx/1.22.1`` or ``1.27.2 (nginx-plus-r33)``.

        Text without a version counts as the oldest supported NGINX, 1.22.0. ``agent``: the fields
        about the agent.
        """
        match = re.search(r"(?<!\d)(\d{1,9})\.(\d{1,9})\.(\d{1,9})", text)
        version = (int(match[1]), int(match[2]), int(match[3])) if match else (1, 22, 0)
        names = frozenset(_VERSION.sub("", module) for module in modules)
        release = _RELEASE.search(text)
        return cls(version, names, plus=int(release[1]) if release else 0, **agent)

    @classmethod
    def common(cls, instances: Iterable[NginxCapabilities]) -> NginxCapabilities | None:
        """Return the capabilities that all have in common; None if there are none."""
        known = list(instances)
        if not known:
            return None
        modules = frozenset.intersection(*(capabilities.modules for capabilities in known))
        # A number is that of the oldest, and a capability is False if one lacks it.
        least = {
            name: min(getattr(capabilities, name) for capabilities in known)
            for name in cls.__struct_fields__
            if name != "modules"
        }
        return cls(modules=modules, **least)

    def exported(self, export: TraceExport | None) -> TraceExport | None:
        """Return the export of spans if this NGINX can do it; else None: no request is traced.

        The module verifies a collector under the name that it connects to, so not one whose
        addresses are known.
        """
        if export is None or not self.traces or (export.tls and export.addresses):
            return None
        return export

    @property
    def auth_request(self) -> bool:
        """``auth_request``."""
        return "http_auth_request_module" in self.modules

    @property
    def jwt(self) -> bool:
        """``auth_jwt``: of the module nginx-auth-jwt, or of NGINX Plus (``_require``: R25)."""
        return "nginx-auth-jwt" in self.modules or self.plus >= 25

    @property
    def keepalive_min_timeout(self) -> bool:
        """``keepalive_min_timeout`` (1.27.4)."""
        return self.version >= (1, 27, 4)

    @property
    def keepalive_off(self) -> bool:
        """``keepalive 0`` in an upstream; without it, upstreams keep connections by default
        (1.29.7)."""
        return self.version >= (1, 29, 7)

    @property
    def least_time(self) -> bool:
        """``least_time`` (1.31.0; in every NGINX Plus)."""
        return self.plus > 0 or self.version >= (1, 31, 0)

    @property
    def random_least_time(self) -> bool:
        """``random two least_time=…``, which NGINX Open Source rejects (1.31.3)."""
        return self.plus > 0

    @property
    def http2_directive(self) -> bool:
        """``http2 on``: HTTP/1.1 and HTTP/2 with prior knowledge on one plain port (1.25.1)."""
        return self.version >= (1, 25, 1)

    @property
    def resolving_upstreams(self) -> bool:
        """``server … resolve`` with the agent as DNS server: endpoints change without reload
        (1.27.3)."""
        return self.named_endpoints and not self.plus and self.version >= (1, 27, 3)

    @property
    def versions_by_sni(self) -> bool:
        """``ssl_protocols`` of the server that the SNI selects; before, that of the default server
        counted (1.29.2)."""
        return self.version >= (1, 29, 2)

    @property
    def external_names(self) -> bool:
        """``resolver`` and ``server … resolve`` in an upstream (1.27.3; in every NGINX Plus)."""
        return self.plus > 0 or self.version >= (1, 27, 3)

    @property
    def state_files(self) -> str:
        """Directory of ``state`` files for servers set by the NGINX Plus API; empty: not supported.

        With our agent it is in the agent's run directory; with others, where the documentation and
        images of NGINX Plus have it.
        """
        if not self.plus:
            return ""
        if self.named_endpoints:
            return "state"
        return "/var/lib/nginx/state" if self.api_actions else ""

    @property
    def status_zones(self) -> bool:
        """``status_zone``: metrics of each virtual server."""
        return self.plus > 0

    @property
    def licensed(self) -> bool:
        """``license_token``: NGINX Plus that requires a licence and reports its usage (R33)."""
        return self.plus >= 33

    @property
    def usage_proxy(self) -> bool:
        """``proxy`` in ``mgmt`` (R34)."""
        return self.plus >= 34

    @property
    def http2_upstreams(self) -> bool:
        """``proxy_http_version 2`` (1.29.4)."""
        return self.version >= (1, 29, 4)

    @property
    def stream_servers(self) -> bool:
        """Virtual servers and ``pass`` in the stream context (1.25.5)."""
        return self.version >= (1, 25, 5)
