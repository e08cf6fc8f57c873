"""Objects for the front end of external load balancers, and its results."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.compiler.ir.load_balancing import LoadBalancer
from gatehouse.dataplane.upstream_name import UpstreamName
from gatehouse.incremental import query

Object = dict[str, Any]

EDGE = ("ExternalLoadBalancer", "nlk", "edge")


def balancer(name: str = "edge", **spec: Any) -> Object:
    spec_fields = {"hosts": [{"url": "http://10.1.1.4:9000/api"}], **spec}
    spec_fields.setdefault("services", {"namespaces": ["*"]})
    return _object("ExternalLoadBalancer", "nlk", name, spec=spec_fields)


def nlk(**data: str) -> Object:
    named = {key.replace("_", "-"): value for key, value in data.items()}
    return _object("ConfigMap", "nlk", "nlk-config", data=named)


def nlk_file(text: str, name: str = "nlk-config") -> Object:
    """Return the ConfigMap of nlk 1.x with a configuration file."""
    return _object("ConfigMap", "nlk", name, data={"config.yaml": text})


def service(
    name: str = "ingress",
    *ports: Object,
    namespace: str = "nginx-ingress",
    created: str = "2026-01-01T00:00:00Z",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    ingress: Iterable[Object] = (),
    **spec: Any,
) -> Object:
    obj = _object("Service", namespace, name)
    more = {"annotations": annotations or {}, "labels": labels or {}, "creationTimestamp": created}
    obj["metadata"] |= more
    obj["spec"] = {"type": "NodePort", "ports": list(ports) or [port()], **spec}
    obj["status"] = {"loadBalancer": {"ingress": list(ingress)}}
    return obj


def port(name: str = "nlk-web", node_port: int = 30080, **more: Any) -> Object:
    return {"name": name, "port": 80, "nodePort": node_port, "protocol": "TCP", **more}


def node(
    name: str,
    *addresses: str,
    ready: str | None = "True",
    cordoned: bool = False,
    **labels: str,
) -> Object:
    obj = _object("Node", "", name)
    obj["metadata"]["labels"] = labels
    obj["spec"] = {"unschedulable": cordoned}
    conditions = [{"type": "Ready", "status": ready, "lastHeartbeatTime": "x"}] if ready else []
    result = [{"type": "Hostname", "address": name}]
    result += [{"type": "InternalIP", "address": address} for address in addresses]
    result += [{"type": "ExternalIP", "address": "203.0.113.9"}]
    obj["status"] = {"conditions": conditions, "addresses": result}
    return obj


def endpoints(
    of: str, *items: Object, ports: Any = (("nlk-web", 8080),), name: str = "", kind: str = "IPv4"
) -> Object:
    obj = _object("EndpointSlice", "nginx-ingress", name or f"{of}-1")
    obj["metadata"]["labels"] = {"kubernetes.io/service-name": of}
    obj["ports"] = [{"name": name, "port": number} for name, number in ports]
    return obj | {"addressType": kind, "endpoints": list(items)}


def endpoint(address: str, node: str = "", **conditions: bool) -> Object:
    return {"addresses": [address], "nodeName": node, "conditions": conditions}


def secret(name: str, **data: bytes) -> Object:
    encoded = {
        key.replace("_", "."): base64.b64encode(value).decode() for key, value in data.items()
    }
    return _object("Secret", "nlk", name, data=encoded)


def _object(kind: str, namespace: str, name: str, **more: Any) -> Object:
    return {"kind": kind, "metadata": {"name": name, "namespace": namespace}, **more}


def key_of(raw: Object) -> query.Key:
    return (raw["kind"], raw["metadata"]["namespace"], raw["metadata"]["name"])


class World:
    """The front end over a set of objects."""

    def __init__(self, *objects: Object) -> None:
        self.engine = query.Engine(query.Snapshot(front.LOAD_BALANCER_INDEXES))
        self.put(*objects)

    def put(self, *objects: Object) -> None:
        self.engine.commit(
            {key_of(raw): front.decode_balancer_object(raw["kind"], raw) for raw in objects}
        )

    def remove(self, *objects: Object) -> None:
        self.engine.commit(dict.fromkeys(map(key_of, objects)))

    def own(self, *names: str, source: query.Key = EDGE, of: str = "ingress") -> None:
        """Set the owned upstreams, such as ``http/web``, with a Service."""
        split = (name.split("/") for name in names)
        owned = {
            UpstreamName("http" if context == "http" else "stream", name): (
                "Service",
                "nginx-ingress",
                of,
            )
            for context, name in split
        }
        self.engine.commit({front.owned(source): owned})

    def compiled(self, source: query.Key = EDGE) -> front.CompiledLoadBalancer:
        with self.engine.compile() as ask:
            return ask(front.compile_balancer, source)

    def plus(self, source: query.Key = EDGE) -> LoadBalancer:
        """Return the compiled load balancer of type NGINX Plus."""
        result = self.compiled(source).balancer
        assert isinstance(result, LoadBalancer)
        return result

    def upstreams(self, source: query.Key = EDGE) -> dict[str, list[str]]:
        """Return the servers of each upstream; a draining one ends in ``-``."""
        result = self.compiled(source).balancer
        assert result is not None
        return {
            str(upstream.name): [s.address + ("-" if s.draining else "") for s in upstream.servers]
            for upstream in result.upstreams
        }

    def released(self, source: query.Key = EDGE) -> list[str]:
        result = self.compiled(source).balancer
        assert result is not None
        return [str(name) for name in result.released_upstreams]

    def finding_messages(self, source: query.Key = EDGE) -> dict[str, list[str]]:
        """Return the messages about Services and the source, by reason."""
        compiled = self.compiled(source)
        words: dict[str, list[str]] = {}
        for finding in (*compiled.findings, *(note.finding for note in compiled.notes)):
            words.setdefault(finding.reason.value, []).append(finding.message)
        return words
