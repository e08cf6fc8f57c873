"""Desired objects of a Gateway's data plane, as a pure function of Gateway, plan and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gatehouse.apis.data_plane_workload import NetworkOptions, Workload
from gatehouse.apis.gateway import is_allowed_key
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
)
from gatehouse.controller.provisioner import autoscaling, names, service
from gatehouse.controller.provisioner import network_policy as network
from gatehouse.controller.provisioner.copied_secrets import CopiedSecret
from gatehouse.controller.provisioner.patches import patched
from gatehouse.controller.provisioner.pod import (
    HEALTH_PORT,
    AgentChannel,
    PodShape,
    ProxyKind,
    free_health_port,
    pod_spec,
    scrape_annotations,
)
from gatehouse.controller.provisioner.pod_security import Level, check_pod_security
from gatehouse.controller.provisioner.service import Ports
from kube_base.types.objects import Object
from kube_base.types.resource import Resource

_SERVICE_ANNOTATION = "gatehouse.dev/service-name"
"""Annotation of a data plane's Pod template, on one machine only: Service whose address the Pod
uses itself.
"""


class ProvisioningPlan(msgspec.Struct, frozen=True):
    """Provisioning plan: input of the provisioner besides the Gateway itself."""

    ports: Ports
    """Ports of all its listeners, including ListenerSets."""
    proxy: ProxyKind = "nginx"
    workload: Workload = Workload()
    ip_family: str = ""
    """``dual``, ``ipv4`` or ``ipv6``; empty for the cluster's default."""
    log_level: str = ""
    """Log level of agents; empty for their default."""
    metrics_port: int = 0
    """Port of the metrics and health checks; 0 for the default."""
    waiting: str = ""
    """Why nothing is created or changed for now; empty if it is."""


class ProvisionerSettings(msgspec.Struct, frozen=True):
    """Settings common to all Gateways of one control plane."""

    images: Mapping[ProxyKind, str]
    agent_host: str
    """Host that agents connect to."""
    agent_port: int
    server_name: str
    """Server name in the control plane's certificate."""
    ca_bundle: str
    """PEM certificates that agents trust."""
    audience: str
    """Audience of the agents' tokens."""
    image_pull_policy: str = "IfNotPresent"
    client_secret: str = ""
    """Secret of type kubernetes.io/tls with the agents' client certificate, or empty."""
    copies: tuple[CopiedSecret, ...] = ()
    """Secrets copied beside data planes."""
    network_policy: NetworkOptions = NetworkOptions()
    """Default of data planes whose parameters do not override it."""
    servers: tuple[network.ReachableServer, ...] = ()
    """Servers that data planes must reach under any NetworkPolicy."""
    on_service_address: bool = False
    """Pods use their Service's address themselves, without a load balancer in front of them."""
    metadata_domains: tuple[str, ...] = ()
    """Domains of the labels and annotations that Gateways may set."""
    pod_security: Level = "restricted"
    """Pod Security Standard that every Pod must meet."""
    time_factor: float = 1.0
    """See :mod:`kube_base.runtime.time_limits`."""


def desired(
    gateway: Mapping[str, Any], settings: ProvisionerSettings, plan: ProvisioningPlan
) -> tuple[tuple[Resource, Object], ...]:
    """Return the desired objects of a Gateway, in the order of creation.

    A Gateway without ports gets no Service, since a Service needs ports. Raises PatchError or
    ForbiddenPodError.
    """
    builder = _ObjectBuilder.of(gateway, settings, plan)
    objects = [(SERVICE_ACCOUNTS, builder.service_account())]
    objects += [(SECRETS, builder.secret(copy)) for copy in builder.copies]
    objects.append((CONFIG_MAPS, builder.config_map()))
    if plan.ports:
        objects.append((SERVICES, builder.service()))
    if builder.networking.enable:
        # Before the Pods, which must never run without it.
        objects.append((NETWORK_POLICIES, builder.network_policy(settings.servers)))
    return (*objects, *builder.workload())


class _ObjectBuilder(msgspec.Struct, frozen=True):
    """Builds the objects of one Gateway; holds their common parts."""

    shape: PodShape
    plan: ProvisioningPlan
    addresses: tuple[Mapping[str, Any], ...]
    """Entries of ``spec.addresses``."""
    ca_bundle: str
    labels: dict[str, str]
    annotations: dict[str, str]
    selector: dict[str, str]
    owner: Object
    networking: NetworkOptions
    pod_security: Level

    @classmethod
    def of(
        cls, gateway: Mapping[str, Any], settings: ProvisionerSettings, plan: ProvisioningPlan
    ) -> _ObjectBuilder:
        metadata, spec = gateway["metadata"], gateway["spec"]
        gateway_name, class_name = metadata["name"], spec["gatewayClassName"]
        infrastructure = spec.get("infrastructure") or {}
        return cls(
            shape=_shape(gateway, settings, plan),
            plan=plan,
            addresses=tuple(spec.get("addresses") or ()),
            ca_bundle=settings.ca_bundle,
            # Own labels last: users must not be able to hide objects from the controller, or
            # to make another Gateway's Service select these Pods.
            labels={
                **_allowed(infrastructure.get("labels"), settings),
                **names.owned_labels(gateway_name, class_name),
            },
            annotations=_allowed(infrastructure.get("annotations"), settings),
            selector=names.selector(gateway_name, class_name),
            owner={
                "apiVersion": GATEWAYS.api_version,
                "kind": GATEWAYS.kind,
                "name": gateway_name,
                "uid": metadata["uid"],
                "controller": True,
            },
            networking=plan.workload.network_policy.over(settings.network_policy),
            pod_security=settings.pod_security,
        )

    @property
    def copies(self) -> tuple[CopiedSecret, ...]:
        return self.shape.copies

    def service_account(self) -> Object:
        return self._object(SERVICE_ACCOUNTS, automountServiceAccountToken=False)

    def secret(self, copied: CopiedSecret) -> Object:
        secret = self._object(SECRETS, type=copied.type, data=dict(copied.data))
        secret["metadata"]["name"] = copied.named(self.shape.name)
        return secret

    def config_map(self) -> Object:
        return self._object(CONFIG_MAPS, suffix="-agent", data={"ca.crt": self.ca_bundle})

    def service(self) -> Object:
        plan, options = self.plan, self.plan.workload.service
        spec = service.service_spec(
            plan.ports, self.selector, options, self.addresses, plan.ip_family
        )
        obj = self._object(SERVICES, spec=spec)
        return patched(SERVICES, obj, options.patches, "spec.kubernetes.service.patches")

    def network_policy(self, servers: tuple[network.ReachableServer, ...]) -> Object:
        options = self.networking
        health = self.shape.health_port
        spec = network.network_policy_spec(self.plan.ports, health, self.selector, options, servers)
        obj = self._object(NETWORK_POLICIES, spec=spec)
        field = "spec.kubernetes.networkPolicy.patches"
        return patched(NETWORK_POLICIES, obj, options.patches or (), field)

    def workload(self) -> list[tuple[Resource, Object]]:
        """Return the Deployment with autoscaler and disruption budget, or the DaemonSet."""
        options = self.plan.workload
        spec: Object = {
            "selector": {"matchLabels": self.selector},
            "template": self._template(),
        }
        if options.daemon_set is not None:
            obj = self._object(DAEMON_SETS, spec=spec)
            field = "spec.kubernetes.daemonSet.patches"
            final = patched(DAEMON_SETS, obj, options.daemon_set.patches, field)
            return [(DAEMON_SETS, self._checked(final))]
        deployment = options.deployment
        spec["replicas"] = autoscaling.initial_replicas(deployment.replicas, deployment.autoscaling)
        obj = self._object(DEPLOYMENTS, spec=spec)
        field = "spec.kubernetes.deployment.patches"
        final = patched(DEPLOYMENTS, obj, deployment.patches, field)
        objects = [(DEPLOYMENTS, self._checked(final))]
        if deployment.autoscaling.enable:
            object_spec = autoscaling.autoscaler_spec(self.shape.name, deployment.autoscaling)
            objects.append((AUTOSCALERS, self._object(AUTOSCALERS, spec=object_spec)))
        if deployment.pod_disruption_budget is not None:
            object_spec = autoscaling.budget(self.selector, deployment.pod_disruption_budget)
            objects.append((DISRUPTION_BUDGETS, self._object(DISRUPTION_BUDGETS, spec=object_spec)))
        return objects

    def _checked(self, workload: Object) -> Object:
        """Return a workload whose Pods meet the Pod Security Standard. Raises ForbiddenPodError."""
        check_pod_security(workload, self.pod_security)
        return workload

    def _template(self) -> Object:
        return {
            "metadata": {
                "labels": self.labels,
                "annotations": {
                    # First, so that annotations of the Gateway override them.
                    **scrape_annotations(self.shape.health_port),
                    **self.annotations,
                    **(
                        {_SERVICE_ANNOTATION: self.shape.name}
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


def _allowed(metadata: Mapping[str, str] | None, settings: ProvisionerSettings) -> dict[str, str]:
    """Return the labels or annotations that a Gateway may set."""
    domains = settings.metadata_domains
    return {key: value for key, value in (metadata or {}).items() if is_allowed_key(key, domains)}


def _shape(
    gateway: Mapping[str, Any], settings: ProvisionerSettings, plan: ProvisioningPlan
) -> PodShape:
    metadata, class_name = gateway["metadata"], gateway["spec"]["gatewayClassName"]
    options = plan.workload.daemon_set or plan.workload.deployment
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
        health_port=free_health_port(
            plan.metrics_port or HEALTH_PORT, tuple(port for port, _ in plan.ports)
        ),
        pod=options.pod,
        container=options.container,
        copies=tuple(
            copy for copy in settings.copies if copy.use == "pull" or plan.proxy == "nginx"
        ),
        on_service_address=settings.on_service_address,
        time_factor=settings.time_factor,
    )
