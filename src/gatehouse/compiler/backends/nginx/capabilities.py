"""What a particular NGINX and its agent can do, as far as they tell."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

_VERSION = re.compile(r"-[0-9][0-9.]*$")

_RELEASE = re.compile(r"nginx-plus-r(\d+)")


class Capabilities(msgspec.Struct, frozen=True):
    """Of one binary."""

    version: tuple[int, int, int]
    modules: frozenset[str] = frozenset()
    """Names of modules beside its own, without their versions."""
    named_endpoints: bool = False
    """Whether its agent answers, by name, where upstreams are."""
    connectors: bool = False
    """Whether its agent runs a connector beside it."""
    authenticators: bool = False
    """Whether it runs an authenticator."""
    plus: int = 0
    """The release of NGINX Plus; 0: it is the open-source NGINX."""
    api_actions: bool = False
    """Whether its agent takes changes of upstreams apart from files, for NGINX Plus' API."""

    @classmethod
    def parse(
        cls,
        text: str,
        modules: Iterable[str] = (),
        *,
        named_endpoints: bool = False,
        connectors: bool = False,
        authenticators: bool = False,
        api_actions: bool = False,
    ) -> Capabilities:
        """Read a version such as ``1.31.3``, ``nginx/1.22.1`` or ``1.27.2 (nginx-plus-r33)``.

        Text without a version counts as the oldest NGINX that is served, 1.22.0.
        """
        found = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
        version = (int(found[1]), int(found[2]), int(found[3])) if found else (1, 22, 0)
        names = frozenset(_VERSION.sub("", each) for each in modules)
        release = _RELEASE.search(text)
        return cls(
            version,
            names,
            named_endpoints,
            connectors,
            authenticators,
            int(release[1]) if release else 0,
            api_actions,
        )

    @classmethod
    def common(cls, everyone: Iterable[Capabilities]) -> Capabilities | None:
        """Give what all can do; None if there are none."""
        found = list(everyone)
        if not found:
            return None
        modules = frozenset.intersection(*(each.modules for each in found))
        named = all(each.named_endpoints for each in found)
        connectors = all(each.connectors for each in found)
        authenticators = all(each.authenticators for each in found)
        version = min(each.version for each in found)
        plus = min(each.plus for each in found)
        actions = all(each.api_actions for each in found)
        return cls(version, modules, named, connectors, authenticators, plus, actions)

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
        """``keepalive 0`` in an upstream, which else keeps connections by itself (1.29.7)."""
        return self.version >= (1, 29, 7)

    @property
    def least_time(self) -> bool:
        """``least_time`` (1.31.0; in every NGINX Plus)."""
        return self.plus > 0 or self.version >= (1, 31, 0)

    @property
    def random_least_time(self) -> bool:
        """``random two least_time=…``, which the open-source NGINX refuses (1.31.3)."""
        return self.plus > 0

    @property
    def http2_directive(self) -> bool:
        """``http2 on``: HTTP/1.1 and HTTP/2 with prior knowledge on one plain port (1.25.1)."""
        return self.version >= (1, 25, 1)

    @property
    def resolving_upstreams(self) -> bool:
        """``server … resolve``, asking the agent: endpoints change without a reload (1.27.3)."""
        return self.named_endpoints and not self.plus and self.version >= (1, 27, 3)

    @property
    def state_files(self) -> str:
        """The directory of ``state`` files, for servers that come by NGINX Plus' API; or empty.

        That of our agent's is the agent's own; that of others is where NGINX Plus' documentation
        and images have it.
        """
        if not self.plus:
            return ""
        if self.named_endpoints:
            return "state"
        return "/var/lib/nginx/state" if self.api_actions else ""

    @property
    def status_zones(self) -> bool:
        """``status_zone``: figures of each virtual server."""
        return self.plus > 0

    @property
    def licensed(self) -> bool:
        """``license_token``: NGINX Plus that needs a licence and says how it is used (R33)."""
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
        """Virtual servers and ``pass`` in streams (1.25.5)."""
        return self.version >= (1, 25, 5)
