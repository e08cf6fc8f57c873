"""Record of an UpstreamCluster: decisions that stay until the object itself changes them.

The controller writes the record to the status, and reads it from there after a restart. So edits of
other objects and restarts change neither the owner of a hostname nor a feature gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gatehouse.apis import gateway as gateway_types
from gatehouse.apis import upstream_clusters as api
from gatehouse.apis.feature_gates import KNOWN
from gatehouse.apis.gateway import CONTROLLERS
from gatehouse.apis.meta import View
from gatehouse.compiler.frontends.inputs import record_key
from gatehouse.compiler.frontends.kinds import Record
from gatehouse.compiler.frontends.upstream_cluster import feature_gates
from gatehouse.incremental.query import Ask, Key

MAX_RECORDED_GATEWAYS = 32
"""Maximum number of Gateways in the record of a status. At others, a hostname belongs to the object
that owns it at any Gateway."""


class ClusterRecord(Record, frozen=True):
    """Record of an UpstreamCluster."""

    hosts: frozenset[tuple[Key, str]] = frozenset()
    """Owned hostnames in lower case, each with the Gateway."""
    gates: tuple[str, ...] = ()
    """Names of the feature gates that are on, sorted."""

    def gateways_with(self, host: str) -> frozenset[Key]:
        """Return the Gateways at which the object owns a hostname."""
        return frozenset(gateway for gateway, name in self.hosts if name == host)

    def merged_into(self, status: Mapping[str, Any]) -> dict[str, Any]:
        """Return a status of the object with this record instead of an earlier one."""
        by_gateway: dict[Key, list[str]] = {}
        for gateway, host in sorted(self.hosts):
            by_gateway.setdefault(gateway, []).append(host)
        entries = [
            {"gateway": f"{gateway[1]}/{gateway[2]}", "hosts": hosts}
            for gateway, hosts in by_gateway.items()
        ]
        merged = {name: value for name, value in status.items() if name != "featureGates"}
        merged["ownedHosts"] = entries[:MAX_RECORDED_GATEWAYS]
        if self.gates:
            merged["featureGates"] = list(self.gates)
        return merged


class _OwnedHosts(View, frozen=True):
    gateway: str = ""
    hosts: tuple[str, ...] = ()


class _GatewayRef(View, frozen=True):
    namespace: str = ""
    name: str = ""


class _GatewayEntry(View, frozen=True):
    gateway_ref: _GatewayRef = _GatewayRef()
    controller_name: str = ""
    hosts: tuple[str, ...] = ()


class _RecordedStatus(View, frozen=True):
    owned_hosts: tuple[_OwnedHosts, ...] | None = None
    """None: an earlier version of the controller wrote the status."""
    feature_gates: tuple[str, ...] = ()
    gateways: tuple[_GatewayEntry, ...] = ()


def parse_cluster_record(raw: Mapping[str, Any]) -> ClusterRecord:
    """Return the record in the status of an object; an empty one if the status is malformed."""
    try:
        status = msgspec.convert(raw.get("status") or {}, _RecordedStatus)
    except msgspec.ValidationError:
        return ClusterRecord()
    if status.owned_hosts is not None:
        hosts = [
            (_gateway_key(*owned_host.gateway.partition("/")[::2]), host)
            for owned_host in status.owned_hosts
            for host in owned_host.hosts
        ]
    else:
        hosts = [
            (_gateway_key(gateway.gateway_ref.namespace, gateway.gateway_ref.name), host)
            for gateway in status.gateways
            if gateway.controller_name in CONTROLLERS
            for host in gateway.hosts
        ]
    gates = sorted(set(status.feature_gates) & set(KNOWN))
    return ClusterRecord(frozenset(hosts), tuple(gates))


def _gateway_key(namespace: str, name: str) -> Key:
    return (gateway_types.Gateway.__name__, namespace, name)


def cluster_record(ask: Ask, key: Key) -> ClusterRecord:
    """Return the record of an object before this pass. Plain function."""
    record = ask.read(record_key(key))
    return record if isinstance(record, ClusterRecord) else ClusterRecord()


def effective_gates(ask: Ask, key: Key) -> feature_gates.Gates:
    """Return the feature gates of an object. Invalid values leave the recorded ones in effect.

    Plain function.
    """
    cluster = ask.read(key)
    if not isinstance(cluster, api.UpstreamCluster):
        return feature_gates.Gates()
    return feature_gates.parse_feature_gates(
        cluster.metadata.annotations, cluster_record(ask, key).gates
    )
