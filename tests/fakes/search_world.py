"""A compiler in small with objects of several kinds, and the quarantine of its Gateway."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from fakes.quarantine_loop import GATEWAY, to_publish
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.proxy_settings import NginxSettings, NginxSnippet
from gatehouse.compiler.ir.settings import (
    Attribute,
    ClientSettings,
    DataPlaneSettings,
    Settings,
    UpstreamSettings,
)
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.change_log import ChangeLog
from gatehouse.controller.quarantine import Quarantine
from gatehouse.dataplane.origin import Origin, object_of
from gatehouse.incremental.query import Key

BAD = "BAD"
"""Text that the proxy rejects wherever it is."""


def origin(kind: str, name: str) -> Origin:
    return Origin(kind, "ns", name)


class World:
    """A compiler in small, with an instance that rejects what contains :data:`BAD`."""

    def __init__(self) -> None:
        self.specs: dict[Origin, str] = {}
        """Text of each policy, filter, parameters object, certificate and L4 route."""
        self.routes: dict[str, tuple[str, str]] = {}
        """By name, a text in the route, and the name of the filter that it uses; or empty."""
        self.serving = ir.GatewayConfiguration("ns/gw")
        self.accepted: list[ir.GatewayConfiguration] = []
        self.changes = ChangeLog()
        self.named: list[Suspect] = []
        """Suspects of each error."""
        self.endpoints: tuple[http.Endpoint, ...] = ()
        self.quarantine = Quarantine(
            GATEWAY,
            lambda *_: self.named,
            lambda key: self.specs.get(object_of(key)),
            self.reads,
            self.changes,
        )
        self.report: list[str] = []
        self.arriving: list[Callable[[], object]] = []
        """Changes that are made during a search, one after each publication."""

    def reads(self, key: Key) -> bool:
        """Return whether a key is that of the present certificate."""
        content = self.specs.get(origin("Secret", "tls"), "")
        name = f"cert-{content.lower()}"
        return key == gateway_api.rejected_credential_key(GATEWAY, name)

    def put(self, kind: str, name: str, text: str) -> Origin:
        """Store an object."""
        key = origin(kind, name)
        self.specs[key] = text
        if kind not in gateway_api.ROUTE_KINDS:
            self.changes.record(gateway_api.key_of(key))
        return key

    def text(self, kind: str, name: str) -> str:
        """Return the text of an object that is not rejected; empty if there is none."""
        key = origin(kind, name)
        rejected = gateway_api.rejected_object_key(GATEWAY, gateway_api.key_of(key))
        return "" if rejected in self.quarantine.inputs else self.specs.get(key, "")

    def _sessions(self, name: str) -> http.Persistence | None:
        """Return the sessions of a policy, if it is there and not rejected."""
        kind = "XBackendTrafficPolicy"
        text, source = self.text(kind, name), origin(kind, name).field("sessionPersistence")
        return http.Persistence("cookie", text, origin=source) if text else None

    def compile(self) -> ir.GatewayConfiguration:
        """Compile as the front end does."""
        policy = self.text("SnippetsPolicy", "all")
        common = (NginxSnippet(origin("SnippetsPolicy", "all"), "http.server.location", policy),)
        limit = self.text("ClientSettingsPolicy", "limits")
        settings = Settings()
        if limit:
            sources = (("body_size", origin("ClientSettingsPolicy", "limits").field("body")),)
            size = -1 if BAD in limit else len(limit)
            settings = Settings(client=ClientSettings(body_size=size, sources=sources))
        both = ("sessions", "other-sessions")
        persisted = tuple(http.Backend("app", persistence=self._sessions(name)) for name in both)
        routes, shared = [], []
        for name, (text, used) in self.routes.items():
            snippets: tuple[NginxSnippet, ...] = common if policy else ()
            if used and (snippet_text := self.text("SnippetsFilter", used)):
                shared.append(NginxSnippet(origin("SnippetsFilter", used), "http", snippet_text))
                snippets += (shared[-1],)
            part = Origin("HTTPRoute", "ns", name, "rules[0].matches[0]")
            action: http.Action = http.Forward(persisted)
            if used and not self.text("SnippetsFilter", used):
                action = http.Respond(500)
            match = http.Match(http.PathPrefix(f"/{name}/{text}"))
            compiled_route = http.Route(
                name, match, action, settings=settings, snippets=snippets, origin=part
            )
            replacement = self.quarantine.inputs.get(gateway_api.replacement_key(GATEWAY, part))
            replaced = dict(replacement.routes) if replacement is not None else {}
            served = replaced.get(compiled_route, compiled_route)
            routes += [served] if served is not None else []
        upstream = self.text("UpstreamSettingsPolicy", "balancing")
        cluster = http.Cluster("app", self.endpoints)
        if upstream:
            sources = (("key", origin("UpstreamSettingsPolicy", "balancing").field("key")),)
            values = UpstreamSettings(key=Attribute(upstream), sources=sources)
            cluster = msgspec.structs.replace(cluster, settings=values)
        proxy = origin("NginxProxy", "parameters")
        level = self.text(proxy.kind, proxy.name)
        l4_hosts = []
        for key, text in self.specs.items():
            if key.kind == "TCPRoute":
                left = self.text(key.kind, key.name)
                sources_of = (text,) if left else ()
                backends = (ir.L4Backend("app"),) if left else ()
                l4_hosts.append(ir.L4Host("", backends, sources=sources_of, origin=key))
        certificates = []
        if content := self.specs.get(origin("Secret", "tls"), ""):
            name = f"cert-{content.lower()}"
            rejected = gateway_api.rejected_credential_key(GATEWAY, name)
            if rejected not in self.quarantine.inputs:
                key_pair = ir.SecretBytes(b"")
                secret = origin("Secret", "tls")
                certificates.append(ir.Certificate(name, content.encode(), key_pair, secret))
        host = http.VirtualHost(
            "a.example",
            tuple(routes),
            tuple(entry.name for entry in certificates),
            settings=settings,
        )
        return ir.GatewayConfiguration(
            "ns/gw",
            listeners=(ir.Listener(80, "HTTP", (host,)),),
            l4_listeners=tuple(
                ir.L4Listener(90 + number, "TCP", (entry,)) for number, entry in enumerate(l4_hosts)
            ),
            clusters=(cluster,),
            certificates=tuple(certificates),
            settings=DataPlaneSettings(
                nginx=NginxSettings(error_level=level), origins=(proxy,) if level else ()
            ),
            snippets=tuple(dict.fromkeys(shared)),
        )

    def settle(self) -> str:
        """Publish until nothing changes. Return the last error."""
        for _ in range(200):
            if self.arriving and self.quarantine.searching:
                self.arriving.pop()()
            compiled = self.compile()
            gateway = to_publish(self.quarantine, compiled)
            version = repr(gateway)
            changed = self.quarantine.published(version, gateway, compiled)
            if changed:
                continue
            if BAD in version or "body_size=-1" in version:
                self.report = [version]
            elif self.serving != gateway or self.report:
                self.report, self.serving = [], gateway
                self.accepted.append(gateway)
            if self.report:
                changed = self.quarantine.rejected(self.report[0], "bad", "nginx/1")
            else:
                changed = self.quarantine.confirmed([version])
            if not changed:
                return "bad" if self.report else ""
        raise AssertionError("the quarantine does not settle")

    @property
    def left_out(self) -> set[str]:
        return {f"{entry.kind} {entry.name}" for entry in self.quarantine.left_out}


def served(gateway: ir.GatewayConfiguration) -> set[str]:
    """Return the names of the routes that forward requests."""
    return {
        route.name
        for listener in gateway.listeners
        for host in listener.virtual_hosts
        for route in host.routes
        if isinstance(route.action, http.Forward)
    }
