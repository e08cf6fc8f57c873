"""Rejection of writes that claim a name or address of another object.

An index by claim makes the cost of a check independent of the number of objects. Two writes at the
same time can still conflict: then the controller decides, and reports it by a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from gatehouse.apis import hosted_api_servers, upstream_clusters
from kube_api_server import errors
from kube_api_server.causes import invalid_cause
from kube_api_server.errors import Cause
from kube_api_server.extension import ExtendedServer
from kube_api_server.objects.write_request import WriteRequest
from kube_api_server.storage.entries import StoreEvent
from kube_api_server.storage.store import ObjectStore
from kube_base.types import ip_addresses
from kube_base.types.objects import Object


class NameClaim(msgspec.Struct, frozen=True):
    """A value that only one object may have."""

    value: tuple[str, ...]
    """Kind of the claim, and normalized value."""
    field: str
    """Field path of the value."""
    text: str
    """Value as written in the object."""
    gateways: frozenset[str] | None = None
    """Gateways at which the object claims it, as `namespace/name`; None for all."""

    def overlaps(self, gateways: frozenset[str] | None) -> bool:
        """Return whether the claim and another one are about a common Gateway."""
        if self.gateways is None or gateways is None:
            return self.gateways != frozenset() != gateways
        return bool(self.gateways & gateways)


Claims = Callable[[Mapping[str, Any]], Iterator[NameClaim]]


def upstream_cluster_claims(obj: Mapping[str, Any]) -> Iterator[NameClaim]:
    """Yield the hostnames of an UpstreamCluster."""
    metadata = obj["metadata"]
    text = (metadata.get("annotations") or {}).get(upstream_clusters.GATEWAYS_ANNOTATION)
    gateways = None if text is None else frozenset(filter(None, map(str.strip, text.split(","))))
    names = ((obj.get("spec") or {}).get("secureServing") or {}).get("serverNames") or ()
    fields = [("metadata.name", metadata["name"])]
    fields += [(f"spec.secureServing.serverNames[{i}]", name) for i, name in enumerate(names)]
    for field, name in fields:
        yield NameClaim(("host", name.lower()), field, name, gateways)


def hosted_server_claims(obj: Mapping[str, Any]) -> Iterator[NameClaim]:
    """Yield the hostnames, the address and the Service port of a HostedAPIServer."""
    spec = obj.get("spec") or {}
    for index, host in enumerate(spec.get("hosts") or ()):
        name = host.lower().removesuffix(".")
        yield NameClaim(("host", name), f"spec.hosts[{index}]", host)
    address = spec.get("advertiseAddress")
    if address:
        yield NameClaim(("address", _canonical(address)), "spec.advertiseAddress", address)
    service = spec.get("service") or {}
    port = f"{service.get('name', '')}:{service.get('port', 443)}"
    value = ("service", obj["metadata"].get("namespace", ""), port)
    yield NameClaim(value, "spec.service", port)


def _canonical(address: str) -> str:
    try:
        return str(ip_addresses.ip_address(address))
    except ValueError:
        return address


class ClaimIndex:
    """The claims of all stored objects of a kind."""

    def __init__(self, prefix: str, kind: str, claims: Claims, store: ObjectStore) -> None:
        self._prefix, self._kind, self._claims = prefix, kind, claims
        self._claimants: dict[tuple[str, ...], dict[str, NameClaim]] = {}
        """Claims by value and store key of the object."""
        store.listen(prefix, self._on_change)
        for key, entry in store.list(prefix):
            self._on_change(StoreEvent(entry.revision, key, None, entry))

    def _on_change(self, event: StoreEvent) -> None:
        for claim in self._claims(event.before.value) if event.before else ():
            claimants = self._claimants.get(claim.value, {})
            claimants.pop(event.key, None)
            if not claimants:
                self._claimants.pop(claim.value, None)
        for claim in self._claims(event.now.value) if event.now else ():
            self._claimants.setdefault(claim.value, {})[event.key] = claim

    def check(self, call: WriteRequest, obj: Object, old: Object | None) -> None:
        """Raise ApiError 422 if the write adds a claim of another object."""
        resource = call.served.resource
        if call.subresource or call.served.prefix != self._prefix:
            return
        before = {claim.value: claim for claim in self._claims(old)} if old is not None else {}
        # A conflict that exists already must not prevent other changes.
        new = [
            claim
            for claim in self._claims(obj)
            if claim.value not in before or before[claim.value].gateways != claim.gateways
        ]
        key = call.served.key(call.namespace, obj["metadata"]["name"])
        causes = [cause for claim in new for cause in self._conflicts(key, claim)]
        if causes:
            name = obj["metadata"]["name"]
            raise errors.invalid_error(resource.kind, resource.group, name, causes)

    def _conflicts(self, key: str, claim: NameClaim) -> Iterator[Cause]:
        for other, claimed in self._claimants.get(claim.value, {}).items():
            if other != key and claim.overlaps(claimed.gateways):
                owner = f"{self._kind} {other.removeprefix(self._prefix)}"
                yield invalid_cause(claim.field, claim.text, f"already used by {owner}")
                return


def register_name_checks(server: ExtendedServer) -> None:
    """Check every write of the kinds with exclusive names."""
    hosted, upstream = hosted_api_servers._GROUP, upstream_clusters._GROUP
    for group, kind, claims in (
        (upstream, "UpstreamCluster", upstream_cluster_claims),
        (hosted, "HostedAPIServer", hosted_server_claims),
    ):
        plural = f"{kind.lower()}s"
        index = ClaimIndex(f"/{group}/{plural}/", kind, claims, server.store)
        server.check_writes(plural, index.check)
