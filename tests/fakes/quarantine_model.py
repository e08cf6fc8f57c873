"""A controller in small with the quarantine of a Gateway, and an agent that rejects some routes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from fakes.quarantine_loop import GATEWAY, to_publish
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.change_log import ChangeLog
from gatehouse.controller.quarantine import Quarantine
from gatehouse.controller.stored_verdicts import StatusHistory
from gatehouse.dataplane.origin import Origin

Served = frozenset[tuple[str, str]]
"""Name and text of each route that forwards requests."""


def route(name: str, text: str, match: int = 0, namespace: str = "ns") -> http.Route:
    origin = Origin("HTTPRoute", namespace, name, f"rules[0].matches[{match}]")
    condition = http.Match(http.PathPrefix(f"/{match}"), headers=(http.ValueMatch("v", text),))
    return http.Route(f"{name}/{match}", condition, http.Redirect(hostname=text), origin=origin)


def served(gateway: ir.GatewayConfiguration) -> Served:
    return frozenset(
        (item.name, item.action.hostname or "")
        for listener in gateway.listeners
        for host in listener.virtual_hosts
        for item in host.routes
        if isinstance(item.action, http.Redirect)
    )


class Model:
    """A controller in small, and an agent that tests the newest version when it has time."""

    def __init__(self, rejects: Callable[[Served], bool], *, restarted: bool = False) -> None:
        """``restarted``: statuses tell a new controller that the agent serves all routes."""
        self.rejects = rejects
        self.routes: dict[str, list[http.Route]] = {}
        self.named: Callable[[Served], Iterable[Suspect]] = lambda _: ()
        """Returns what the agent's message names."""
        self.now, self.changes = 0.0, ChangeLog()
        self.quarantine = Quarantine(
            GATEWAY,
            lambda gateway, _: tuple(self.named(served(gateway))),
            lambda _: None,
            lambda _: True,
            self.changes,
            history=lambda _: StatusHistory.SERVED if restarted else StatusHistory.NEW,
            clock=lambda: self.now,
            changed_at=lambda key: f"{self.changes.last(key):09}",
        )
        self.quarantine.connected(("nginx/1",), serving=restarted)
        self.tests: list[Served] = []
        """Every content that the agent tested."""
        self.serving: Served = frozenset()
        self.history: list[Served] = []
        """Everything that the agent served, in this order."""
        self.configurations: list[ir.GatewayConfiguration] = []
        """The configurations of :attr:`history`, and those that differ from them elsewhere."""
        self.hostname: Callable[[str], str] = lambda name: name
        """Returns the hostname of a route."""
        self.answered: dict[str, bool] = {}
        self.newest, self.content = "", ir.GatewayConfiguration("ns/gw")

    def put(self, name: str, text: str, matches: int = 1, namespace: str = "ns") -> None:
        """Store a route."""
        self.routes[name] = [route(name, text, number, namespace) for number in range(matches)]
        self.changes.record(("HTTPRoute", namespace, name))

    def compile(self) -> ir.GatewayConfiguration:
        inputs, hosts = self.quarantine.inputs, dict[str, list[http.Route]]()
        for name, items in self.routes.items():
            chosen = hosts.setdefault(self.hostname(name), [])
            for item in items:
                replacement = inputs.get(gateway_api.replacement_key(GATEWAY, item.origin))
                replaced = dict(replacement.routes) if replacement is not None else {}
                substitute = replaced.get(item, item)
                chosen += [substitute] if substitute is not None else []
        ports = inputs.get(gateway_api.rejected_ports_key(GATEWAY), ())
        virtual = tuple(http.VirtualHost(name, tuple(items)) for name, items in hosts.items())
        listeners = () if 80 in ports else (ir.Listener(80, "HTTP", virtual),)
        return ir.GatewayConfiguration("ns/gw", listeners=listeners)

    def publish(self) -> None:
        """Publish until the quarantine is content with what was published."""
        for _ in range(50):
            compiled = self.compile()
            self.content = to_publish(self.quarantine, compiled)
            self.newest = repr(self.content)
            if not self.quarantine.published(self.newest, self.content, compiled):
                return
        raise AssertionError("the quarantine does not settle")

    def test(self) -> str:
        """Let the agent test the newest version. Return it."""
        content = served(self.content)
        self.tests.append(content)
        accepted = not self.rejects(content)
        self.answered[self.newest] = accepted
        if accepted:
            self.configurations.append(self.content)
        if accepted and self.serving != content:
            self.serving = content
            self.history.append(content)
        return self.newest

    def deliver(self, version: str) -> None:
        """Deliver the report about a version. It is delivered again after a publication."""
        if self.answered[version]:
            changed = self.quarantine.confirmed([version])
        else:
            changed = self.quarantine.rejected(version, "bad", "nginx/1")
        if changed:
            self.publish()
            if self.newest == version:
                self.deliver(version)

    def settle(self, orders: random.Random | None = None) -> int:
        """Run until nothing is on its way. Return the number of tests.

        ``orders``: deliver each report twice or more, late and in any order.
        """
        before, waiting = len(self.tests), list[str]()
        self.publish()
        reported = ""
        for _ in range(20_000):
            if self.newest != reported and (not waiting or orders is None or orders.random() < 0.5):
                reported = self.test()
                waiting += [reported] if orders is None else [reported, reported]
            elif waiting:
                index = orders.randrange(len(waiting)) if orders is not None else 0
                self.deliver(waiting.pop(index))
            elif orders is not None and self.tests and orders.random() < 0.9:
                # The report of an instance that answered long ago.
                self.deliver(orders.choice(sorted(self.answered)))
            elif self.newest == reported:
                return len(self.tests) - before
        raise AssertionError("the search does not end")


def lying(
    model: Model, orders: random.Random, names: list[str]
) -> Callable[[Served], Iterable[Suspect]]:
    """Return messages that name anything: nothing, good and bad objects, the port."""

    def named(_: Served) -> Iterable[Suspect]:
        for name in orders.sample(names, orders.randrange(3)):
            yield from (Suspect(item.origin) for item in model.routes.get(name, ()))

    return named


def honest(model: Model, bad: set[str]) -> Callable[[Served], Iterable[Suspect]]:
    """Return messages that name the first bad route."""

    def named(content: Served) -> Iterable[Suspect]:
        for name in sorted({entry.rpartition("/")[0] for entry, _ in content} & bad)[:1]:
            yield Suspect(model.routes[name][0].origin)

    return named
