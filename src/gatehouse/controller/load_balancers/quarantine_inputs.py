"""Removal of rejected parts from the configuration of external machines.

The configuration of machines is small and has no policies, so that the result of the quarantine is
applied to the IR instead of being an input of compile passes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Route, VirtualHost
from gatehouse.controller.held_back import HeldBack, held_back_key, without_held_back
from gatehouse.incremental.query import Key


class QuarantineInputs:
    """The results of the quarantines of all machines."""

    def __init__(self) -> None:
        self._values: dict[Key, Any] = {}

    def put_input(self, key: Key, value: Any) -> bool:
        """Store a result; None removes it. Return whether it changed."""
        before = self._values.pop(key, None)
        if value is not None:
            self._values[key] = value
        return bool(before != value)

    def spec_of(self, _: Key) -> Any:
        """Return None: the configuration of machines has no policies."""
        return None

    def reads(self, _: Key) -> bool:
        """Return True: every result is used."""
        return True

    def without_rejected(
        self, key: Key, gateway: ir.GatewayConfiguration
    ) -> ir.GatewayConfiguration:
        """Return the configuration of a load balancer without what was rejected."""
        if not self._values:
            return gateway
        ports = self._values.get(gateway_api.rejected_ports_key(key), frozenset())
        return msgspec.structs.replace(
            gateway,
            listeners=tuple(
                msgspec.structs.replace(
                    listener,
                    virtual_hosts=tuple(self._host(key, host) for host in listener.virtual_hosts),
                )
                for listener in gateway.listeners
                if listener.port not in ports
            ),
            l4_listeners=tuple(
                l4_listener for l4_listener in gateway.l4_listeners if l4_listener.port not in ports
            ),
        )

    def without_held_back(
        self, key: Key, gateway: ir.GatewayConfiguration
    ) -> ir.GatewayConfiguration:
        """Return the configuration of a load balancer without what a search holds back."""
        held: HeldBack | None = self._values.get(held_back_key(key))
        return gateway if held is None else without_held_back(held, gateway)

    def is_trial(self, key: Key) -> bool:
        """Return whether no machine that serves may serve the configuration."""
        held: HeldBack | None = self._values.get(held_back_key(key))
        return held is not None and held.trial

    def _host(self, key: Key, host: VirtualHost) -> VirtualHost:
        routes = (self._route(key, route) for route in host.routes)
        return msgspec.structs.replace(
            host, routes=tuple(http_route for http_route in routes if http_route)
        )

    def _route(self, key: Key, route: Route) -> Route | None:
        replacement = self._values.get(gateway_api.replacement_key(key, route.origin))
        return dict(replacement.routes).get(route, route) if replacement is not None else route
