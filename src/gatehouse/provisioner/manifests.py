"""The objects a Gateway needs, as a pure function of the Gateway and the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gatehouse.apis.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    GATEWAYS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from gatehouse.provisioner import names
from gatehouse.provisioner.pod import AgentChannel, Object, PodShape, Proxy, pod_spec, scraped

SERVICE_ANNOTATION = "gatehouse.dev/service"
"""On the Pod template: which Service's address the Pod gets where Gatehouse runs it itself."""

Ports = tuple[tuple[int, str], ...]
"""Ports to serve, ascending, each with TCP or UDP."""


class Plan(msgspec.Struct, frozen=True):
    """What is to be provisioned for a Gateway, beside what it says itself."""

    ports: Ports
    """Of all its listeners, also of ListenerSets."""
    proxy: Proxy = "nginx"


class ProvisionerSettings(msgspec.Struct, frozen=True):
    """What is the same for all Gateways of one control plane."""

    images: Mapping[Proxy, str]
    agent_host: str
    """Host under which agents reach the control plane."""
    agent_port: int
    server_name: str
    """The name in the control plane's certificate."""
    ca_bundle: str
    """PEM certificates that agents trust."""
    audience: str
    """For whom agents' tokens are made."""
    image_pull_policy: str = "IfNotPresent"
    client_secret: str = ""
    """Secret of type kubernetes.io/tls beside a Gateway, with what its agents show; empty: none."""


def desired(
    gateway: Mapping[str, Any], settings: ProvisionerSettings, plan: Plan
) -> tuple[tuple[Resource, Object], ...]:
    """Give everything to make for a Gateway, in the order in which to make it.

    A Gateway without ports gets no Service, since one without ports is invalid.
    """
    made = _Made.of(gateway, settings, plan)
    objects = [
        (SERVICE_ACCOUNTS, made.service_account()),
        (CONFIG_MAPS, made.config_map()),
        (SERVICES, made.service()),
        (DEPLOYMENTS, made.deployment()),
    ]
    if not plan.ports:
        objects = [pair for pair in objects if pair[0] is not SERVICES]
    return tuple(objects)


class _Made(msgspec.Struct, frozen=True):
    """The parts that the objects of one Gateway share."""

    shape: PodShape
    ports: Ports
    address: str
    """The address asked for; empty for any."""
    ca_bundle: str
    labels: dict[str, str]
    annotations: dict[str, str]
    selector: dict[str, str]
    owner: Object

    @classmethod
    def of(cls, gateway: Mapping[str, Any], settings: ProvisionerSettings, plan: Plan) -> _Made:
        metadata, spec = gateway["metadata"], gateway["spec"]
        gateway_name, class_name = metadata["name"], spec["gatewayClassName"]
        infrastructure = spec.get("infrastructure") or {}
        asked_labels = infrastructure.get("labels") or {}
        asked_annotations = infrastructure.get("annotations") or {}
        return cls(
            shape=PodShape(
                name=names.resource_name(gateway_name, class_name),
                namespace=metadata["namespace"],
                ports=tuple(port for port, _ in plan.ports),
                proxy=plan.proxy,
                image=settings.images[plan.proxy],
                image_pull_policy=settings.image_pull_policy,
                channel=AgentChannel(
                    host=settings.agent_host,
                    port=settings.agent_port,
                    server_name=settings.server_name,
                    audience=settings.audience,
                    client_secret=settings.client_secret,
                ),
                gateway=gateway_name,
            ),
            ports=plan.ports,
            address=next((a["value"] for a in spec.get("addresses") or () if a.get("value")), ""),
            ca_bundle=settings.ca_bundle,
            # Ours last: a Gateway's author cannot hide its objects from us, nor have another
            # Gateway's Service select its Pods.
            labels={**asked_labels, **names.labels(gateway_name, class_name)},
            annotations=dict(asked_annotations),
            selector=names.selector(gateway_name, class_name),
            owner={
                "apiVersion": GATEWAYS.api_version,
                "kind": GATEWAYS.kind,
                "name": gateway_name,
                "uid": metadata["uid"],
                "controller": True,
            },
        )

    def service_account(self) -> Object:
        return self._object(SERVICE_ACCOUNTS, automountServiceAccountToken=False)

    def config_map(self) -> Object:
        return self._object(CONFIG_MAPS, suffix="-agent", data={"ca.crt": self.ca_bundle})

    def service(self) -> Object:
        ports = [
            {
                "name": f"port-{port}" if protocol == "TCP" else f"port-{port}-udp",
                "port": port,
                "targetPort": port,
                "protocol": protocol,
            }
            for port, protocol in self.ports
        ]
        spec: Object = {"type": "LoadBalancer", "selector": self.selector, "ports": ports}
        if self.address:
            spec["loadBalancerIP"] = self.address
        return self._object(SERVICES, spec=spec)

    def deployment(self) -> Object:
        template = {
            "metadata": {
                "labels": self.labels,
                "annotations": {
                    # First, since whoever asks for something else is to have it.
                    **scraped(self.shape.ports),
                    **self.annotations,
                    SERVICE_ANNOTATION: self.shape.name,
                },
            },
            "spec": pod_spec(self.shape),
        }
        spec = {
            "replicas": 1,
            "selector": {"matchLabels": self.selector},
            "template": template,
        }
        return self._object(DEPLOYMENTS, spec=spec)

    def _object(self, resource: Resource, *, suffix: str = "", **content: Any) -> Object:
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": self.shape.name + suffix,
                "namespace": self.shape.namespace,
                "labels": dict(self.labels),
                "annotations": dict(self.annotations),
                "ownerReferences": [dict(self.owner)],
            },
            **content,
        }
