"""A new controller in small: its quarantine, with an instance that rejects credentials of tenants.

No I/O: each version is tested as soon as it is published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from fakes.instance_reports import instance_report
from fakes.quarantine_loop import GATEWAY, settle
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.authentication import Basic
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.change_log import ChangeLog
from gatehouse.controller.quarantine import Quarantine
from gatehouse.controller.quarantined_routes import configured_routes
from gatehouse.controller.stored_verdicts import StatusHistory
from gatehouse.dataplane.delivery import InstanceReport, Rejection
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Key

KINDS = ("certificate", "backend CA", "client certificate", "passwords", "backend CA of TCP")
"""Uses of the credential of a tenant."""


def secret(tenant: str) -> Origin:
    return Origin("Secret", tenant, "tls")


def credential(tenant: str, content: str = "") -> Suspect:
    return Suspect(secret(tenant), credential=f"cert-{tenant}{content}")


class CredentialWorld:
    """A new controller, and an instance that rejects the credentials of some tenants.

    Each tenant has a hostname, or a port, with a route and a credential.
    """

    def __init__(
        self,
        *tenants: str,
        bad: Iterable[str] = (),
        kinds: Mapping[str, str] | None = None,
        envoy: bool = False,
    ) -> None:
        """``kinds``: use of a tenant's credential; that of a hostname by default."""
        self.tenants, self.bad, self.envoy = list(tenants), frozenset(bad), envoy
        self.kinds = dict(kinds or {})
        self.owners: dict[str, str] = {}
        """The tenant whose credential a tenant uses, if it is not its own."""
        self.contents: dict[str, str] = {}
        """Distinguishes the contents of a tenant's credential."""
        self.rejected_listener: Rejection | None = None
        """An Envoy's rejection of the listener with a rejected certificate; None: of the Secret."""
        self.bad_routes: frozenset[str] = frozenset()
        """Tenants whose routes the instance rejects."""
        self.named: Callable[[frozenset[str]], list[Suspect]] = lambda _: []
        self.serving, self.trials = False, False
        self.served: list[frozenset[str]] = []
        """Tenants in each accepted version that is no trial."""
        self.histories: dict[Key, StatusHistory] = {}
        self.times: dict[Key, str] = {}
        """Time of the last change of each object, as the API server stores it."""
        self.now, self.tests, self.changes = 0.0, 0, ChangeLog()
        self.quarantine = Quarantine(
            GATEWAY,
            lambda gateway, _: self.named(self.tenants_of(gateway)),
            lambda _: "spec",
            lambda _: True,
            self.changes,
            lambda key: self.histories.get(key, StatusHistory.SERVED),
            clock=lambda: self.now,
            changed_at=lambda key: self.times.get(key, ""),
        )

    def renew(self, tenant: str, content: str) -> None:
        """Change the content of a tenant's credential."""
        self.contents[tenant] = content
        self.changes.record(gateway_api.key_of(secret(tenant)))

    def tenants_of(self, gateway: ir.GatewayConfiguration) -> frozenset[str]:
        """Return the tenants whose present credentials a proxy reads."""
        used = set(_used(gateway))
        assert used <= {entry.name for entry in gateway.credentials}, "a file is missing"
        return frozenset(one for one in self.tenants if self._name(one) in used)

    def _name(self, tenant: str) -> str:
        owner = self._owner(tenant)
        return credential(owner, self.contents.get(owner, "")).credential

    def _owner(self, tenant: str) -> str:
        return self.owners.get(tenant, tenant)

    def compile(self) -> ir.GatewayConfiguration:
        """Compile as the front end does: a route fails without its passwords, or the CA of its
        backend. A hostname without its certificate is not served."""
        compiled = ir.GatewayConfiguration("ns/gw")
        for number, tenant in enumerate(self.tenants):
            compiled = self._with_tenant(compiled, tenant, 9000 + number)
        return msgspec.structs.replace(
            compiled, listeners=tuple(sorted(compiled.listeners, key=lambda entry: entry.port))
        )

    def _with_tenant(
        self, gateway: ir.GatewayConfiguration, tenant: str, port: int
    ) -> ir.GatewayConfiguration:
        inputs, name, kind = self.quarantine.inputs, self._name(tenant), self._kind(tenant)
        left_out = gateway_api.rejected_credential_key(GATEWAY, name) in inputs
        if left_out and kind == "certificate":
            return gateway
        part = Origin("HTTPRoute", tenant, "r", "rules[0].matches[0]")
        item = http.Route(f"{tenant}/r", http.Match(), http.Redirect(), origin=part)
        cluster = http.Cluster(tenant, ())
        if kind == "passwords":
            users = Basic("", name, Origin("AuthenticationFilter", tenant, "f", "basic"))
            item = msgspec.structs.replace(item, authentication=users)
        elif kind == "client certificate":
            tls = http.BackendTls("b", "", certificate="" if left_out else name)
            cluster = msgspec.structs.replace(cluster, tls=tls)
        elif kind != "certificate":
            cluster = msgspec.structs.replace(cluster, tls=http.BackendTls("b", name))
        if kind.startswith(("backend", "client")):
            forward = http.Forward((http.Backend(tenant),))
            item = msgspec.structs.replace(item, action=forward)
        if left_out and kind != "client certificate":
            failing = http.Respond(500)
            item = msgspec.structs.replace(item, action=failing, authentication=None)
        replacement = inputs.get(gateway_api.replacement_key(GATEWAY, part))
        replaced = dict(replacement.routes) if replacement is not None else {}
        route = replaced.get(item, item)
        if kind == "backend CA of TCP":
            host = ir.L4Host("", origin=Origin("TCPRoute", tenant, "r"))
            if not left_out and not self._is_rejected("TCPRoute", tenant, "r"):
                host = msgspec.structs.replace(host, backends=(ir.L4Backend(tenant),))
            l4_listener = ir.L4Listener(port, "TCP", (host,))
            gateway = msgspec.structs.replace(
                gateway, l4_listeners=(*gateway.l4_listeners, l4_listener)
            )
            used = host.clusters
        else:
            if self._is_rejected("AuthenticationFilter", tenant, "f"):
                route = http.Route(item.name, item.match, http.Respond(500), origin=part)
            certificates = (name,) if kind == "certificate" else ()
            routes = (route,) if route is not None else ()
            secure = kind == "certificate"
            own_host = http.VirtualHost(tenant, routes, certificates)
            gateway = _with_host(gateway, own_host, 443 if secure else 80)
            used = route.clusters if route is not None else frozenset()
        if used:
            gateway = msgspec.structs.replace(gateway, clusters=(*gateway.clusters, cluster))
        return gateway if left_out else self._with_credential(gateway, tenant)

    def _is_rejected(self, *key: str) -> bool:
        kind, namespace, name = key
        rejected = gateway_api.rejected_object_key(GATEWAY, (kind, namespace, name))
        return rejected in self.quarantine.inputs

    def _kind(self, tenant: str) -> str:
        return self.kinds.get(tenant, "certificate")

    def _with_credential(
        self, gateway: ir.GatewayConfiguration, tenant: str
    ) -> ir.GatewayConfiguration:
        name, kind, content = self._name(tenant), self._kind(tenant), ir.SecretBytes(b"")
        known = {entry.name for entry in gateway.credentials}
        if name in known or name not in _used(gateway):
            return gateway
        origin = secret(self._owner(tenant))
        if kind.startswith("backend"):
            bundle = ir.TrustBundle(name, b"", (origin,))
            return msgspec.structs.replace(gateway, trust_bundles=(*gateway.trust_bundles, bundle))
        if kind == "passwords":
            users = ir.SecretFile(name, content, origin)
            return msgspec.structs.replace(gateway, secrets=(*gateway.secrets, users))
        certificate = ir.Certificate(name, b"", content, origin)
        return msgspec.structs.replace(gateway, certificates=(*gateway.certificates, certificate))

    def report(self, gateway: ir.GatewayConfiguration, version: str) -> InstanceReport:
        rejected = self.tenants_of(gateway) & self.bad | self.bad_routes.intersection(
            _answering(gateway)
        )
        resources: tuple[Rejection, ...] = ()
        if self.envoy:
            resources = tuple(Rejection((secret(one),), "bad") for one in sorted(rejected))
        if resources and self.rejected_listener is not None:
            resources = (self.rejected_listener,)
        return instance_report(
            version,
            rejected=bool(rejected) and not self.envoy,
            resources=resources,
            serving=self.serving,
            trials=self.trials,
        )

    def settle(self) -> bool:
        """Publish until nothing changes. Return whether the last version is accepted."""
        return settle(self.quarantine, self.compile, self._test)

    def _test(self, gateway: ir.GatewayConfiguration, version: str) -> InstanceReport:
        self.tests += 1
        report = self.report(gateway, version)
        rejected = bool(report.rejected_version or report.rejected)
        if not rejected and not self.quarantine.trial:
            self.served.append(frozenset(_answering(gateway)))
            self._check_verified(gateway)
        return report

    def _check_verified(self, gateway: ir.GatewayConfiguration) -> None:
        """Check that passwords are read, and that the backends of CA certificates are verified."""
        verified = {entry.name for entry in gateway.clusters if entry.tls and entry.tls.trust}
        protected = {
            route.name.partition("/")[0]
            for route in configured_routes(gateway)
            if route.authentication is not None
        }
        for tenant in _answering(gateway):
            kind = self._kind(tenant)
            assert tenant in verified or not kind.startswith("backend"), tenant
            assert tenant in protected or kind != "passwords", tenant

    @property
    def good(self) -> frozenset[str]:
        """The tenants that are served without the rejected credentials."""
        return frozenset(
            tenant
            for tenant in self.tenants
            if self._owner(tenant) not in self.bad or self._kind(tenant) == "client certificate"
        )

    @property
    def left_out(self) -> set[str]:
        return {f"{entry.kind} {entry.namespace}" for entry in self.quarantine.left_out}


def _answering(gateway: ir.GatewayConfiguration) -> Iterator[str]:
    """Yield the tenants whose routes do not fail."""
    for route in configured_routes(gateway):
        if not isinstance(route.action, http.Respond):
            yield route.name.partition("/")[0]
    for listener in gateway.l4_listeners:
        yield from (host.origin.namespace for host in listener.hosts if host.backends)


def _used(gateway: ir.GatewayConfiguration) -> Iterator[str]:
    """Yield the names of the credentials that a proxy reads."""
    for listener in gateway.listeners:
        for host in listener.virtual_hosts:
            yield from host.certificates
    for route in configured_routes(gateway):
        if isinstance(route.authentication, Basic):
            yield route.authentication.users
    for cluster in gateway.clusters:
        if cluster.tls is not None:
            yield from filter(None, (cluster.tls.trust, cluster.tls.certificate))


def _with_host(
    gateway: ir.GatewayConfiguration, host: http.VirtualHost, port: int
) -> ir.GatewayConfiguration:
    others = tuple(entry for entry in gateway.listeners if entry.port != port)
    before = next((entry.virtual_hosts for entry in gateway.listeners if entry.port == port), ())
    listener = ir.Listener(port, "HTTPS" if port == 443 else "HTTP", (*before, host))
    return msgspec.structs.replace(gateway, listeners=(*others, listener))
