"""A new controller in small: its quarantine, with an instance that serves and rejects some routes.

No I/O: each version is tested as soon as it is published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fakes.instance_reports import data_plane_report, instance_report
from fakes.quarantine_loop import GATEWAY, to_publish
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.proxy_settings import NginxSnippet
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.quarantine import Quarantine
from gatehouse.controller.quarantines import process_report
from gatehouse.controller.stored_verdicts import StatusHistory
from gatehouse.dataplane.delivery import DataPlaneReport
from gatehouse.dataplane.origin import Origin, object_of
from gatehouse.incremental.query import Key

FILTER: Key = ("SnippetsFilter", "ns", "f")


class NewController:
    """A new controller with an instance that serves already, and rejects some routes."""

    def __init__(self, *routes: http.Route, snippet: str = "") -> None:
        self.routes = list(routes)
        self.snippet = snippet
        self.histories: dict[Key, StatusHistory] = {}
        self.times: dict[Key, str] = {}
        """Time of the last change of each object, as the API server stores it."""
        self.named: Callable[[set[str]], Iterable[Suspect]] = lambda _: ()
        """Returns what the instance's message names, from the routes of a rejected version."""
        self.published: list[set[str]] = []
        self.bad: set[str] = set()
        self.bad_matches: tuple[set[str], ...] = ()
        """Names of routes whose matches are rejected together, whatever the routes do."""
        self.bad_actions: tuple[set[str], ...] = ()
        """Names of routes that are rejected together if they forward requests."""
        self.confirmed: list[set[str]] = []
        self.quarantine = Quarantine(
            GATEWAY,
            lambda gateway, _: self.named(_routes(gateway)),
            lambda _: "spec",
            lambda _: True,
            history=lambda key: self.histories.get(key, StatusHistory.SERVED),
            changed_at=lambda key: self.times.get(key, ""),
        )
        self.serving, self.trials = True, False
        self.bad_in_service: set[str] = set()
        """Routes that the instance accepts in a trial, and rejects when it serves them."""

    def compile(self) -> ir.GatewayConfiguration:
        inputs, routes = self.quarantine.inputs, []
        for item in self.routes:
            replacement = inputs.get(gateway_api.replacement_key(GATEWAY, item.origin))
            replaced = dict(replacement.routes) if replacement is not None else {}
            served = replaced.get(item, item)
            routes += [served] if served is not None else []
        hosts = (http.VirtualHost("", tuple(routes)),)
        rejected = gateway_api.rejected_object_key(GATEWAY, FILTER) in inputs
        snippets = (NginxSnippet(object_of(FILTER), "http", self.snippet),)
        return ir.GatewayConfiguration(
            "ns/gw",
            listeners=(ir.Listener(80, "HTTP", hosts),),
            snippets=snippets if self.snippet and not rejected else (),
        )

    def report(self, version: str, *, rejected: bool) -> DataPlaneReport:
        return data_plane_report(
            instance_report(version, rejected=rejected, serving=self.serving, trials=self.trials)
        )

    def edited(self, *names: str, history: StatusHistory = StatusHistory.CHANGED) -> None:
        """Let routes have a history."""
        self.histories |= {("HTTPRoute", "ns", name): history for name in names}

    def settle(self) -> bool:
        """Publish until nothing changes. Return whether the last version is accepted."""
        for _ in range(300):
            compiled = self.compile()
            gateway = to_publish(self.quarantine, compiled)
            (host,) = gateway.listeners[0].virtual_hosts or (http.VirtualHost("", ()),)
            served = {
                item.name for item in host.routes if not isinstance(item.action, http.Respond)
            }
            if self.published[-1:] != [served]:
                self.published.append(served)
            if self.quarantine.published(repr(gateway), gateway, compiled):
                continue
            bad = bool(self.bad & served) or "bad" in repr(gateway.snippets)
            trial = self.quarantine.trial
            bad |= not trial and bool(self.bad_in_service & served)
            bad |= any(names <= {item.name for item in host.routes} for names in self.bad_matches)
            bad |= any(names <= served for names in self.bad_actions)
            if not bad and not trial:
                self.confirmed.append(served)
            if not process_report(self.quarantine, self.report(repr(gateway), rejected=bad)):
                return not bad
        raise AssertionError("the quarantine does not settle")


def _routes(gateway: ir.GatewayConfiguration) -> set[str]:
    return {
        item.name
        for listener in gateway.listeners
        for host in listener.virtual_hosts
        for item in host.routes
    }


def match(name: str, rule: int = 0, number: int = 0, namespace: str = "ns") -> http.Route:
    origin = Origin("HTTPRoute", namespace, name, f"rules[{rule}].matches[{number}]")
    return http.Route(f"{name}/{rule}/{number}", http.Match(), http.Redirect(), origin=origin)
