"""The objects a Gateway needs, as a pure function of the Gateway and the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gatehouse.apis.data_plane_workload import NetworkOptions, Workload
from gatehouse.apis.resources import (
    AUTOSCALERS,
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    GATEWAYS,
    NETWORK_POLICIES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from gatehouse.controller.provisioner import autoscaling, names, service
from gatehouse.controller.provisioner import network_policy as network
from gatehouse.controller.provisioner.copied_secrets import CopiedSecret
from gatehouse.controller.provisioner.patches import patched
from gatehouse.controller.provisioner.pod import (
    AgentChannel,
    Object,
    PodShape,
    Proxy,
    health_port,
    pod_spec,
    scrape_annotations,
)
from gatehouse.controller.provisioner.service import Ports

SERVICE_ANNOTATION = "gatehouse.dev/service-name"
"""On the Pod template: which Service's address the Pod has as its own, on one machine."""


class Plan(msgspec.Struct, frozen=True):
    """What is to be provisioned for a Gateway, beside what it says itself."""

    ports: Ports
    """Of all its listeners, also of ListenerSets."""
    proxy: Proxy = "nginx"
    workload: Workload = Workload()
    ip_family: str = ""
    """``dual``, ``ipv4`` or ``ipv6``; empty: as the cluster has it."""
    log_level: str = ""
    """Of the agents; empty: their default."""
    waiting: str = ""
    """Why nothing is made or changed for now; empty: it is."""


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
    copies: tuple[CopiedSecret, ...] = ()
    """Secrets that data planes need beside them."""
    network_policy: NetworkOptions = NetworkOptions()
    """Of data planes whose parameters do not say otherwise."""
    servers: tuple[network.Server, ...] = ()
    """What data planes must reach, whatever else they may."""
    on_service_address: bool = False
    """Pods have their Service's address as their own: nothing stands before them."""


def desired(
    gateway: Mapping[str, Any], settings: ProvisionerSettings, plan: Plan
) -> tuple[tuple[Resource, Object], ...]:
    """Give everything to make for a Gateway, in the order in which to make it.

    A Gateway without ports gets no Service, since one without ports is invalid. Raises PatchError.
    """
    made = _ObjectBuilder.of(gateway, settings, plan)
    objects = [(SERVICE_ACCOUNTS, made.service_account())]
    objects += [(SECRETS, made.secret(each)) for each in made.copies]
    objects.append((CONFIG_MAPS, made.config_map()))
    if plan.ports:
        objects.append((SERVICES, made.service()))
    if made.networking.enable:
        # Before the Pods, which are never to be without it.
        objects.append((NETWORK_POLICIES, made.network_policy(settings.servers)))
    return (*objects, *made.workload())


class _ObjectBuilder(msgspec.Struct, frozen=True):
    """The parts that the objects of one Gateway share."""

    shape: PodShape
    plan: Plan
    address: str
    """The address asked for; empty for any."""
    ca_bundle: str
    labels: dict[str, str]
    annotations: dict[str, str]
    selector: dict[str, str]
    owner: Object
    networking: NetworkOptions

    @classmethod
    def of(
        cls, gateway: Mapping[str, Any], settings: ProvisionerSettings, plan: Plan
    ) -> _ObjectBuilder:
        metadata, spec = gateway["metadata"], gateway["spec"]
        gateway_name, class_name = metadata["name"], spec["gatewayClassName"]
        infrastructure = spec.get("infrastructure") or {}
        return cls(
            shape=_shape(gateway, settings, plan),
            plan=plan,
            address=next((a["value"] for a in spec.get("addresses") or () if a.get("value")), ""),
            ca_bundle=settings.ca_bundle,
            # Ours last: a Gateway's author cannot hide its objects from us, nor have another
            # Gateway's Service select its Pods.
            labels={
                **(infrastructure.get("labels") or {}),
                **names.labels(gateway_name, class_name),
            },
            # The node of one machine takes Pods with this annotation for data planes.
            annotations={
                key: value
                for key, value in (infrastructure.get("annotations") or {}).items()
                if key != SERVICE_ANNOTATION
            },
            selector=names.selector(gateway_name, class_name),
            owner={
                "apiVersion": GATEWAYS.api_version,
                "kind": GATEWAYS.kind,
                "name": gateway_name,
                "uid": metadata["uid"],
                "controller": True,
            },
            networking=plan.workload.network_policy.over(settings.network_policy),
        )

    @property
    def copies(self) -> tuple[CopiedSecret, ...]:
        return self.shape.copies

    def service_account(self) -> Object:
        return self._object(SERVICE_ACCOUNTS, automountServiceAccountToken=False)

    def secret(self, copied: CopiedSecret) -> Object:
        found = self._object(SECRETS, type=copied.type, data=dict(copied.data))
        found["metadata"]["name"] = copied.named(self.shape.name)
        return found

    def config_map(self) -> Object:
        return self._object(CONFIG_MAPS, suffix="-agent", data={"ca.crt": self.ca_bundle})

    def service(self) -> Object:
        plan, options = self.plan, self.plan.workload.service
        spec = service.spec(plan.ports, self.selector, options, self.address, plan.ip_family)
        made = self._object(SERVICES, spec=spec)
        return patched(SERVICES, made, options.patches, "spec.kubernetes.service.patches")

    def network_policy(self, servers: tuple[network.Server, ...]) -> Object:
        options = self.networking
        health = health_port(self.shape.ports)
        spec = network.spec(self.plan.ports, health, self.selector, options, servers)
        made = self._object(NETWORK_POLICIES, spec=spec)
        where = "spec.kubernetes.networkPolicy.patches"
        return patched(NETWORK_POLICIES, made, options.patches or (), where)

    def workload(self) -> list[tuple[Resource, Object]]:
        """Give the Deployment with what scales and protects it, or the DaemonSet."""
        options = self.plan.workload
        spec: Object = {
            "selector": {"matchLabels": self.selector},
            "template": self._template(),
        }
        if options.daemon_set is not None:
            made = self._object(DAEMON_SETS, spec=spec)
            where = "spec.kubernetes.daemonSet.patches"
            return [(DAEMON_SETS, patched(DAEMON_SETS, made, options.daemon_set.patches, where))]
        asked = options.deployment
        spec["replicas"] = autoscaling.replicas(asked.replicas, asked.autoscaling)
        made = self._object(DEPLOYMENTS, spec=spec)
        where = "spec.kubernetes.deployment.patches"
        objects = [(DEPLOYMENTS, patched(DEPLOYMENTS, made, asked.patches, where))]
        if asked.autoscaling.enable:
            found = autoscaling.autoscaler(self.shape.name, asked.autoscaling)
            objects.append((AUTOSCALERS, self._object(AUTOSCALERS, spec=found)))
        if asked.pod_disruption_budget is not None:
            found = autoscaling.budget(self.selector, asked.pod_disruption_budget)
            objects.append((DISRUPTION_BUDGETS, self._object(DISRUPTION_BUDGETS, spec=found)))
        return objects

    def _template(self) -> Object:
        return {
            "metadata": {
                "labels": self.labels,
                "annotations": {
                    # First, since whoever asks for something else is to have it.
                    **scrape_annotations(self.shape.ports),
                    **self.annotations,
                    **(
                        {SERVICE_ANNOTATION: self.shape.name}
                        if self.shape.on_service_address
                        else {}
                    ),
                },
            },
            "spec": pod_spec(self.shape),
        }

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


def _shape(gateway: Mapping[str, Any], settings: ProvisionerSettings, plan: Plan) -> PodShape:
    metadata, class_name = gateway["metadata"], gateway["spec"]["gatewayClassName"]
    asked = plan.workload.daemon_set or plan.workload.deployment
    return PodShape(
        name=names.resource_name(metadata["name"], class_name),
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
        gateway=metadata["name"],
        owner_type="DaemonSet" if plan.workload.daemon_set else "Deployment",
        log_level=plan.log_level,
        pod=asked.pod,
        container=asked.container,
        copies=tuple(
            each for each in settings.copies if each.use == "pull" or plan.proxy == "nginx"
        ),
        on_service_address=settings.on_service_address,
    )
