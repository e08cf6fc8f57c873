"""UpstreamClusters, Gateways in front of them, and what the front end makes of them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from fakes.authority import Authority
from gatehouse.compiler.frontends import combined, gateway_api, upstream_cluster
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.kube_apiserver import ApiCluster
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.controller.deadlines import Deadlines
from gatehouse.controller.outputs import by_subject
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Engine, Key, Snapshot

Object = dict[str, Any]

CREATED = "2026-01-01T00:00:00Z"
LISTENER = {"name": "api", "port": 6443, "protocol": "gatehouse.dev/KubeAPIServer"}
EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
GATEWAY: Key = ("Gateway", "ns", "gw")


@cache
def authority() -> Authority:
    return Authority(Path(mkdtemp(prefix="gatehouse-upstreams-")))


@cache
def pair(name: str) -> tuple[str, str]:
    """Return a certificate and its key, base64 of PEM."""
    chain, key = (base64.b64encode(file.read_bytes()).decode() for file in authority().issue(name))
    return chain, key


def ca() -> str:
    return b64(authority().pem)


def b64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def spec(**more: Any) -> Object:
    """Return the spec of a cluster in plain text, which needs no credentials."""
    return {
        "servers": [{"endpoint": "http://10.0.0.1:8080"}],
        "dispatchPolicies": [{"rules": [EVERYTHING]}],
        **more,
    }


class World:
    """A compilation with the objects of an API server."""

    def __init__(self, settings: gateway_api.ControllerSettings | None = None) -> None:
        self.engine = Engine(Snapshot(combined.INDEXES))
        self.allocated: dict[Key, upstream_cluster.Allocation] = {}
        """Shared limits that the last pass reported, by cluster."""
        chosen = settings or gateway_api.ControllerSettings(bind="any")
        self.engine.commit({gateway_api.SETTINGS_KEY: chosen})
        self.put("GatewayClass", "c", spec={"controllerName": gateway_api.ENVOY})

    def put(self, kind: str, name: str, namespace: str = "", **raw: Any) -> Key:
        """Put an object; keywords are its fields, ``metadata`` more of that."""
        more = raw.pop("metadata", {})
        meta = {"name": name, "namespace": namespace, "generation": 1, "creationTimestamp": CREATED}
        key = (kind, namespace, name)
        value = combined.decode_object(kind, {"kind": kind, "metadata": {**meta, **more}, **raw})
        self.engine.commit({key: value})
        return key

    def delete(self, key: Key) -> None:
        self.engine.commit({key: None})

    def unsupported(self, name: str, reason: str, *, served: bool = False) -> None:
        """Store that Gateway ``ns/gw`` does not support a part of the UpstreamCluster ``name``."""
        unsupported = Unsupported(Origin("UpstreamCluster", "", name), reason, served)
        self.engine.commit(by_subject(("Gateway", "ns", "gw"), [unsupported]))

    def gateway(self, name: str = "gw", *, programmed: bool = True, **more: Any) -> Key:
        plane = gateway_api.ProgrammedInput(programmed=programmed)
        self.engine.commit({("Programming", "ns", name): plane})
        listeners = more.pop("listeners", [LISTENER])
        gateway_spec = {"gatewayClassName": "c", "listeners": listeners, **more}
        return self.put("Gateway", name, "ns", spec=gateway_spec)

    def cluster(
        self, name: str, *, created: str = CREATED, annotations: Object | None = None, **more: Any
    ) -> Key:
        metadata = {"creationTimestamp": created, "annotations": annotations or {}}
        return self.put("UpstreamCluster", name, metadata=metadata, spec=spec(**more))

    def at(self, now: float) -> None:
        """Let it be ``now`` (seconds since 1970), of which the controller tells what matters."""
        with self.engine.compile() as ask:
            named = ask.map(combined.deadlines, ask.read(upstream_cluster.CLUSTERS))
        deadlines = Deadlines(
            lambda key, value: bool(self.engine.commit({key: value})), lambda: now
        )
        deadlines.update(named)

    def secret(self, name: str, **data: str) -> Key:
        values = {key.replace("_", "."): value for key, value in data.items()}
        return self.put("Secret", name, "ns", data=values)

    def run(self) -> tuple[dict[Key, ir.GatewayConfiguration | None], dict[Key, combined.Status]]:
        """Make a whole pass, as the controller does: what a pass does not ask is forgotten."""
        with self.engine.compile() as ask:
            keys = ask(gateway_api.gateways)
            gateways = {key: ask(combined.compile_combined_gateway, key) for key in keys}
            result = {
                key: ask(combined.desired_status, key) for key in ask(combined.status_subjects)
            }
            clusters = ask.read(upstream_cluster.CLUSTERS)
            self.allocated = dict(ask.map(upstream_cluster.allocation, clusters).items())
        return gateways, {key: status for key, status in result.items() if status is not None}

    def compiled(self, key: Key = GATEWAY) -> ir.GatewayConfiguration:
        result = self.run()[0][key]
        assert result is not None
        return result

    def served(self, key: Key = GATEWAY) -> dict[str, ApiCluster]:
        """Return the clusters of the only listener of a Gateway, by name."""
        (listener,) = self.compiled(key).api_listeners
        return {cluster.name: cluster for cluster in listener.clusters}

    def gateway_status(self, key: Key) -> combined.Status:
        return self.run()[1][key]

    def status(self, key: Key) -> Object:
        return combined.merge_combined_status(key[0], None, self.gateway_status(key), CREATED) or {}

    def condition(self, key: Key, kind: str) -> tuple[str, str, str]:
        """Return status, reason and message of a condition; empty strings if it is missing."""
        return condition(self.status(key), kind)


def condition(holder: Mapping[str, Any], kind: str) -> tuple[str, str, str]:
    for entry in holder["conditions"]:
        if entry["type"] == kind:
            return entry["status"], entry["reason"], entry["message"]
    return "", "", ""


def gateway(class_name: str) -> Object:
    """Return a Gateway with a listener of kube-apiservers."""
    listener = {"name": "api", "port": 6443, "protocol": "gatehouse.dev/KubeAPIServer"}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": class_name, "namespace": "default"},
        "spec": {"gatewayClassName": f"gatehouse-{class_name}", "listeners": [listener]},
    }


def cluster(name: str = "prod.example", **spec: Any) -> Object:
    """Return an UpstreamCluster with one server."""
    servers_spec = {
        "servers": [{"endpoint": "https://127.0.0.1:6443"}],
        "clientConfig": {"secretRef": {"namespace": "default", "name": "credentials"}},
        "dispatchPolicies": [{"rules": [EVERYTHING]}],
    }
    return {
        "apiVersion": "proxy.kubegateway.io/v1alpha1",
        "kind": "UpstreamCluster",
        "metadata": {"name": name},
        "spec": {**servers_spec, **spec},
    }


def secret(authority: str) -> Object:
    """Return the Secret with the credentials of :func:`cluster`."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "credentials", "namespace": "default"},
        "data": {"ca.crt": authority, "token": b64(b"word")},
    }
