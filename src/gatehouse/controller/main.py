"""The controller process: builds all parts, connects them and runs them until stopped."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

import gatehouse
from gatehouse.apis import resources
from gatehouse.apis.event_reasons import EventReason
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.controller.access_violations import record_unauthorized_request
from gatehouse.controller.agent_identity import Identities
from gatehouse.controller.certificate_events import CertificateEvents
from gatehouse.controller.compilation import Compilation, CompileResult
from gatehouse.controller.condition_events import ConditionEvents
from gatehouse.controller.frozen_heap import FrozenHeap
from gatehouse.controller.gateway_classes import create_classes
from gatehouse.controller.gateway_provisioner import GatewayProvisioner
from gatehouse.controller.history_order import last_change
from gatehouse.controller.informers import PROVISIONED, Informers
from gatehouse.controller.instance_events import InstanceEvents
from gatehouse.controller.leader_election import Leadership
from gatehouse.controller.leader_label import LeaderLabel
from gatehouse.controller.load_balancers import LoadBalancers, balancer_of, is_machine
from gatehouse.controller.loop import Loop
from gatehouse.controller.metrics import Metric, collector_registry
from gatehouse.controller.options import (
    SERVER_NAME,
    ControllerOptions,
    frontend_settings,
    provisioner_settings,
    read_ca_certificates,
)
from gatehouse.controller.owned_resources import OwnedResources
from gatehouse.controller.pipelines import AnyPipeline, envoy_pipeline, nginx_pipeline
from gatehouse.controller.programmed_condition import ProvisioningError
from gatehouse.controller.provisioner.copied_secrets import read_all
from gatehouse.controller.provisioner.manifests import ProvisioningPlan
from gatehouse.controller.provisioner.owned_objects import OwnedObjects
from gatehouse.controller.publisher import Publisher
from gatehouse.controller.status_writer import StatusWriter
from gatehouse.controller.url_fetcher import UrlFetcher
from gatehouse.incremental.query import Key
from gatehouse.kube import client as kube
from gatehouse.kube.events import Recorder
from gatehouse.kube.store import Change, Changes
from gatehouse.runtime.health import HealthServer
from gatehouse.runtime.prometheus import page_of
from gatehouse.transports import server as agents
from kube_base.types.resource import Resource

log = structlog.get_logger("gatehouse.controller")

CA_POLL_SECONDS = 5.0
"""Interval in seconds between reads of the CA file."""


class Controller:
    """All parts of a controller and their connections. :func:`run_controller` starts them."""

    def __init__(
        self, client: kube.Client, options: ControllerOptions, heap: FrozenHeap | None = None
    ) -> None:
        self._client = client
        self._copies = options.copies
        self.heap = heap
        self.leadership = Leadership(client, options.lease)
        self.serving = False
        """True if the agent channel accepts connections."""
        self._owned_objects = OwnedObjects()
        self.informers = self._informers()
        identities = Identities(
            client, SERVER_NAME, lambda: self.informers.by_kind["ServiceAccount"].objects
        )
        self.delivery = agents.AgentServer(identities.authenticate)
        self.recorder = Recorder(client, "gatehouse-controller")
        self.delivery.on_trespass = lambda request: record_unauthorized_request(
            self.recorder, self._published_for, request
        )
        self.statuses = StatusWriter(
            client,
            {resource.kind: resource for resource in combined.KINDS.with_status},
            self._current,
            ConditionEvents(self.recorder).status_written,
        )
        self.provisioner = GatewayProvisioner(
            client,
            provisioner_settings(options),
            lambda name: self._current(("Gateway", *name)),
            self._is_retained,
            self._on_provisioned,
            self._owned_objects,
        )
        self.fetcher = UrlFetcher(lambda fetch, fetched: self.loop.on_fetched(fetch, fetched))
        self.load_balancers = LoadBalancers(
            client, self.informers.by_kind, self.delivery, options.nlk_namespace
        )
        self.owned_resources = OwnedResources(
            client, lambda resource: self.informers.by_kind[resource.kind].objects
        )
        self.certificate_events = CertificateEvents(self._current, self.recorder)
        self.loop = self._loop(frontend_settings(options))
        self.leader_label: LeaderLabel | None = None
        """None outside a Pod."""
        if options.pod is not None:
            self.leader_label = LeaderLabel(client, options.pod, self._leads)
        self.instance_events = self._instance_events(client)

    def _instance_events(self, client: kube.Client) -> InstanceEvents:
        result = InstanceEvents(
            lambda namespace, name: client.get(resources.PODS, name, namespace),
            self.delivery.is_connected,
            self._record_instance,
        )
        events = self.delivery.events
        events.on_report, events.on_unhealthy = self._on_report, self._record_unhealthy
        events.on_disconnected = result.on_disconnected
        return result

    def _informers(self) -> Informers:
        return Informers(
            self._client,
            self._on_changes,
            lambda versions: self.loop.on_crd_versions(versions),
            lambda resource, reason: self.loop.on_availability(resource.kind, reason),
        )

    def _loop(self, settings: gateway_api.ControllerSettings) -> Loop:
        pipelines: dict[str, AnyPipeline] = {
            gateway_api.NGINX: nginx_pipeline(self.delivery),
            gateway_api.ENVOY: envoy_pipeline(self.delivery.envoys),
        }
        return Loop(
            Compilation(settings, self.heap),
            Publisher(pipelines),
            self.statuses,
            self._provision,
            self.fetcher.set_desired,
            self._follow,
            functools.partial(self._warn, EventReason.CONFIGURATION_REJECTED),
            functools.partial(self._warn, EventReason.NO_READY_ENDPOINTS),
            self._changed_at,
        )

    def _warn(self, reason: EventReason, key: Key, message: str) -> None:
        """Record an event about an object, unless it is gone."""
        regarding = self._current(key)
        if regarding is not None:
            self.recorder.record(regarding, "Warning", reason, message)

    def _record_unhealthy(self, name: str, instance: str, why: str) -> None:
        self._record_instance(name, EventReason.PROXY_UNHEALTHY, f"{instance}: {why}")

    def _record_instance(self, name: str, reason: EventReason, message: str) -> None:
        regarding = self._published_for(name)
        if regarding is not None:
            self.recorder.record(regarding, "Warning", reason, message)

    def _follow(self, result: CompileResult) -> None:
        self.owned_resources.follow(result)
        self.certificate_events.follow(result)

    def _on_report(self, name: str) -> None:
        if is_machine(name):
            self.load_balancers.on_machine_report()
        else:
            self.loop.on_report(name)

    def _published_for(self, name: str) -> Mapping[str, Any] | None:
        """Return the object whose configuration is delivered under ``name``."""
        if is_machine(name):
            return self.load_balancers.source_object(balancer_of(name))
        namespace, _, bare = name.partition("/")
        return self._current(("Gateway", namespace, bare))

    def _provision(self, plans: Mapping[Key, ProvisioningPlan | None]) -> None:
        self.provisioner.set_gateways({(key[1], key[2]): plan for key, plan in plans.items()})

    def _on_provisioned(self, name: tuple[str, str], error: ProvisioningError | None) -> None:
        self.loop.on_provisioned(name, error)
        if error:
            self._warn(EventReason.PROVISIONING_FAILED, ("Gateway", *name), error.message)

    def copy_secrets(self) -> None:
        """Pass the current content of copied Secrets to the provisioner."""
        copies = read_all(self._copies, lambda name: self._current(("Secret", *name)))
        self.provisioner.set_copied_secrets(copies)

    def _current(self, key: tuple[str, ...]) -> Mapping[str, Any] | None:
        return self.informers.by_kind[key[0]].objects.get((key[1], key[2]))

    def _changed_at(self, key: Key) -> str:
        return last_change(self._current(key)) if key[0] in self.informers.by_kind else ""

    def _is_retained(self, name: tuple[str, str]) -> bool:
        """Return whether a Gateway has no class or one of this controller.

        Then no other controller has taken it over.
        """
        gateway = self._current(("Gateway", *name))
        if gateway is None:
            return False
        class_name = gateway.get("spec", {}).get("gatewayClassName", "")
        gateway_class = self._current(("GatewayClass", "", class_name))
        return gateway_class is None or (
            gateway_class.get("spec", {}).get("controllerName") in gateway_api.CONTROLLERS
        )

    def _on_changes(self, resource: Resource, changes: Changes) -> None:
        self.load_balancers.on_changes(resource, changes)
        if resource in combined.KINDS.resources:
            self.loop.on_changes(resource, changes)
        if resource is resources.SECRETS and any(
            (copy.namespace, copy.name) in changes for copy in self._copies
        ):
            self.copy_secrets()
        self.owned_resources.on_changes(resource, changes)
        if resource is resources.GATEWAYS:
            for name in changes:
                self.provisioner.on_gateway(name)
        elif resource in (*PROVISIONED, resources.SERVICES, resources.SECRETS):
            self._owned_objects.on_changes(resource, changes)
            for (namespace, _), change in changes.items():
                for owner in _owning_gateways(change):
                    self.provisioner.enqueue((namespace, owner))

    def _leads(self) -> bool:
        """Return whether agents must connect to this controller."""
        return self.serving and self.leadership.leading

    def not_ready(self) -> str:
        """Return why this controller can neither lead nor take over; empty if it can."""
        if waiting := self.informers.unsynced():
            return f"waiting for {waiting}"
        if self.leadership.leading and not self.serving:
            return "not listening yet"
        if self.serving and not self.leadership.leading:
            return "another controller may lead now"
        return self.leader_label.not_ready() if self.leader_label else ""

    def metrics(self) -> dict[str, Metric]:
        """Return the current metrics by name, without prefix."""
        gateways, instances = self.loop.reported()
        return {
            "build_info": Metric(
                1,
                "Version of the controller.",
                labels=("version",),
                values={(gatehouse.__version__,): 1},
            ),
            "leader": Metric(
                self.leadership.leading, "1 if this controller is the leader, else 0."
            ),
            "watched_objects": Metric(self.informers.objects(), "Objects in the informer stores."),
            "unavailable_kinds": Metric(
                len(self.informers.unavailable_kinds()), "Kinds that the API server does not serve."
            ),
            "compile_passes": Metric(self.loop.passes, "Compile passes.", total=True),
            "status_writes": Metric(self.statuses.writes, "Status updates written.", total=True),
            "gateways": Metric(gateways, "Gateways managed by this controller."),
            "connected_instances": Metric(instances, "Connected data plane instances."),
            **self.load_balancers.metrics(),
        }

    async def watch_ca(self, file: Path) -> None:
        """Pass the CA certificates to the provisioner when the file changes, until cancelled."""
        while True:
            await asyncio.sleep(CA_POLL_SECONDS)
            try:
                self.provisioner.set_ca(read_ca_certificates(file))
            except (OSError, ValueError) as error:
                log.warning("CA file not read", file=str(file), error=str(error))


def _owning_gateways(change: Change) -> set[str]:
    """Return the names of the Gateways that own an object now or owned it before."""
    return {
        owner.get("name", "")
        for state in change
        if state is not None
        for owner in state["metadata"].get("ownerReferences") or ()
        if owner.get("kind") == resources.GATEWAYS.kind
    }


async def run_controller(
    options: ControllerOptions, stop: asyncio.Event, heap: FrozenHeap | None = None
) -> None:
    """Run a controller until ``stop`` is set. Data planes keep serving when it ends.

    ``heap``: of a process that runs this controller only.
    """
    async with _connect(options) as client:
        controller = Controller(client, options, heap)
        health = HealthServer(
            controller.not_ready,
            page_of(collector_registry(controller.metrics, controller.loop.compile_duration)),
            controller.informers.unavailable_kinds,
        )
        if options.health:
            await health.start(options.health)
        try:
            async with asyncio.TaskGroup() as group:
                leading = group.create_task(controller.leadership.run())
                acting = group.create_task(_act(controller, options, client))
                await stop.wait()
                log.info("stopping")
                acting.cancel()
                await asyncio.wait([acting])
                # Keep the Lease until agents are disconnected, so that no other controller leads.
                await controller.delivery.stop(grace=1.0)
                leading.cancel()
        finally:
            await controller.fetcher.close()
            await controller.delivery.stop(grace=0.0)
            await health.stop()


def _connect(options: ControllerOptions) -> kube.Client:
    if options.kubeconfig is None:
        return kube.Client.from_environment()
    return kube.Client.from_kubeconfig(options.kubeconfig)


async def _act(controller: Controller, options: ControllerOptions, client: kube.Client) -> None:
    async with asyncio.TaskGroup() as group:
        if controller.leader_label:
            group.create_task(controller.leader_label.run())
        with controller.heap.filling() if controller.heap else contextlib.nullcontext():
            await controller.informers.start(group)
        controller.copy_secrets()
        controller.loop.prepare()
        preparing = group.create_task(controller.loop.stay_prepared())
        await controller.leadership.elected()
        preparing.cancel()
        await create_classes(client, options.classes)
        port = await controller.delivery.start(
            options.agent_bind, options.tls_cert, options.tls_key, options.client_ca
        )
        if options.outside_bind and options.outside_ca is not None:
            await controller.delivery.start_outside(
                options.outside_bind,
                options.tls_cert,
                options.tls_key,
                options.outside_ca,
                controller.load_balancers.machines.identify,
            )
        controller.serving = True
        if controller.leader_label:
            controller.leader_label.refresh()
        log.info("ready", agent_port=port)
        group.create_task(controller.recorder.run())
        group.create_task(controller.instance_events.run())
        group.create_task(controller.watch_ca(options.ca))
        group.create_task(controller.statuses.run())
        group.create_task(controller.provisioner.run())
        group.create_task(controller.loop.run())
        group.create_task(controller.load_balancers.run())
        group.create_task(controller.owned_resources.run())
