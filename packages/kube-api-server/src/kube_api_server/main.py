"""API server process: storage, TLS, server components, graceful shutdown."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog
from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage

from kube_api_server.admission_policies.enforcement import Policies
from kube_api_server.admission_policies.type_checking import register_type_checks
from kube_api_server.builtin.kinds import BUILTIN_KINDS
from kube_api_server.controllers import (
    bootstrap,
    custom_resources,
    device_access,
    initial_phase,
    rbac,
)
from kube_api_server.controllers.context import ControllerContext
from kube_api_server.controllers.disruption_budgets import DisruptionBudgetController
from kube_api_server.controllers.endpoint_slices import EndpointSliceController
from kube_api_server.controllers.endpoints import EndpointsController
from kube_api_server.controllers.endpoints_mirroring import EndpointsMirroringController
from kube_api_server.controllers.garbage_collector import GarbageCollector
from kube_api_server.controllers.kubernetes_service import KubernetesService
from kube_api_server.controllers.leader_election import LeaderElector
from kube_api_server.controllers.namespaces import Namespaces
from kube_api_server.controllers.new_defaults import NewDefaults
from kube_api_server.controllers.reconcile_queue import ReconcileQueue
from kube_api_server.controllers.resource_quotas import (
    QuotaStatusController,
    ResourceQuotas,
)
from kube_api_server.controllers.service_ips import ServiceIPAllocator
from kube_api_server.errors import StatusError
from kube_api_server.extension import NO_EXTENSION, ExtendedServer, Extension
from kube_api_server.http import connections, requests, tls_context
from kube_api_server.http.audit import Audit
from kube_api_server.http.connections import ConnectionLimits, TlsListener
from kube_api_server.http.evictions import Evictions
from kube_api_server.http.handler import Handler, Limits, ServerContext
from kube_api_server.http.metrics import RequestMetrics
from kube_api_server.http.nonresource import NonResourceHandlers
from kube_api_server.http.pod_logs import Find, PodLogs
from kube_api_server.http.resources import Resources
from kube_api_server.identity import static_tokens
from kube_api_server.identity.authentication import Authenticator
from kube_api_server.identity.service_account_tokens import ServiceAccountTokens
from kube_api_server.identity.signing_keys import Keys
from kube_api_server.objects.admission import Admission
from kube_api_server.objects.deletion import Deletion
from kube_api_server.objects.registry import Registry
from kube_api_server.objects.verbs import Verbs
from kube_api_server.rbac.authorizer import Authorizer
from kube_api_server.storage import factory
from kube_api_server.storage.entries import StorageFullError, UnavailableError
from kube_api_server.storage.store import ObjectStore

log = structlog.get_logger("apiserver")


BOOTSTRAP_SECONDS = 5.0
"""Interval in seconds between attempts to create bootstrap objects in a full storage."""


class ApiServerOptions(msgspec.Struct, frozen=True):
    """Settings of the API server."""

    storage: str
    """A directory for SQLite, or `etcd://host:port,…/prefix?ca=…`."""
    bind: str
    """Listen address as `host:port`. Port 0 selects a free port."""
    tls_cert: Path
    tls_key: Path
    client_ca: Path
    """CA that verifies client certificates."""
    token_key: Path | None = None
    """EC P-256 key in PEM, used as the first token signing key."""
    token_file: Path | None = None
    """File of static tokens."""
    encryption_keys: Path | None = None
    """File of keys that encrypt Secrets at rest."""
    audit_log: Path | None = None
    audit_reads: bool = False
    anonymous: bool = False
    service_cidr: str = "10.96.0.0/16"
    limits: Limits = Limits()
    connection_limits: ConnectionLimits = ConnectionLimits()
    pod_logs: Find | None = None
    extension: Extension = NO_EXTENSION


class ApiServer:
    """One API server over one store."""

    def __init__(self, store: ObjectStore, options: ApiServerOptions, stop: asyncio.Event) -> None:
        self.store, self._options = store, options
        self._names = options.extension.names
        registry = self.registry = Registry(BUILTIN_KINDS)
        admission, authorizer = Admission(registry, store), Authorizer()
        custom_resources.serve_crds(store, registry, admission)
        rbac.register_authorizer(store, authorizer, admission)
        for register in options.extension.register_checks:
            register(ExtendedServer(store, authorizer, admission))
        initial_phase.begin(admission)
        admission.policy = Policies(store, registry).validate
        register_type_checks(registry, admission)
        device_access.register_access_checks(store, admission)
        ServiceIPAllocator(store, admission, ipaddress.ip_network(options.service_cidr))
        self._quotas = ResourceQuotas(store, admission)
        verbs, deletion = Verbs(store, admission), Deletion(store, admission)
        self.context = ControllerContext(store, registry, verbs, deletion)
        self.keys = Keys()
        bootstrap.follow_keys(self.context, self.keys, self._names)
        tokens = ServiceAccountTokens(self.keys, store)
        tokens_by_secret = (
            static_tokens.load_tokens(options.token_file) if options.token_file else {}
        )
        self._started = False
        self.service = KubernetesService(self.context, options.service_cidr)
        self._work_queues = self._controllers()
        metrics, build = RequestMetrics(store, self._names.metrics), options.extension.build
        self.audit = _open_audit(options, metrics)
        checks = {"ping": self._ping, "storage": store.check, "bootstrap": self._is_started}
        self.handler = Handler(
            ServerContext(
                store=store,
                registry=registry,
                verbs=verbs,
                resources=Resources(store, verbs, deletion, stop),
                authenticator=Authenticator(
                    tokens, store, tokens_by_secret, anonymous=options.anonymous
                ),
                authorizer=authorizer,
                tokens=tokens,
                nonresource=NonResourceHandlers(registry, self.keys, metrics, checks, build),
                metrics=metrics,
                evictions=Evictions(store, registry, verbs, deletion),
                logs=PodLogs(options.pod_logs, stop),
                audit=self.audit,
                limits=options.limits,
                system_users=options.extension.system_users,
            )
        )

    def _controllers(self) -> list[ReconcileQueue]:
        context = self.context
        return [
            Namespaces(context).queue,
            GarbageCollector(context).queue,
            custom_resources.Cleanup(context).queue,
            NewDefaults(context).queue,
            rbac.Aggregation(context).queue,
            EndpointSliceController(context).queue,
            EndpointsController(context).queue,
            self.service.queue,
            DisruptionBudgetController(context).queue,
            EndpointsMirroringController(context).queue,
            QuotaStatusController(context, self._quotas).queue,
        ]

    async def bootstrap(self) -> None:
        """Create bootstrap objects, rotate token keys, and encrypt Secrets with the newest key.

        If the storage of an existing installation is full, :meth:`work` does it later. Raises
        StorageFullError if a new installation cannot be created.
        """
        try:
            await self._prepare()
        except StorageFullError as error:
            if self.keys.empty:
                raise
            log.warning("bootstrap deferred", error=str(error))

    async def _prepare(self) -> None:
        await bootstrap.prepare(self.context, self._options.extension)
        key = self._options.token_key
        first = await asyncio.to_thread(key.read_bytes) if key else None
        await bootstrap.rotate_keys(self.context, self.keys, self._names, first)
        await factory.reencrypt(self.store)
        self._started = True

    async def work(self) -> None:
        """Run the controllers until cancelled; on the leader only if the storage is shared."""
        while not self._started:
            await asyncio.sleep(BOOTSTRAP_SECONDS)
            await self.bootstrap()
        if self.store.shared:
            await LeaderElector(self.context, self._names.controllers).run(self._control)
        else:
            await self._control()

    async def _control(self) -> None:
        async with asyncio.TaskGroup() as group:
            for queue in self._work_queues:
                group.create_task(queue.run())
            group.create_task(self._rotate())

    async def _rotate(self) -> None:
        while True:
            await asyncio.sleep(bootstrap.ROTATION_SECONDS)
            try:
                await bootstrap.rotate_keys(self.context, self.keys, self._names)
            except (StatusError, UnavailableError) as error:
                log.warning("token key not rotated", error=str(error))

    async def _ping(self) -> None:
        return

    async def _is_started(self) -> None:
        if not self._started:
            raise RuntimeError("not complete")


def _open_audit(options: ApiServerOptions, metrics: RequestMetrics) -> Audit | None:
    if options.audit_log is None:
        return None
    return Audit(options.audit_log, metrics.audit_errors, reads=options.audit_reads)


async def run_api_server(
    options: ApiServerOptions, stop: asyncio.Event, ready: Callable[[int], None] | None = None
) -> None:
    """Serve until `stop` is set; call `ready` with the port. Raises OSError if binding fails."""
    names = options.extension.names
    store = await factory.open_store(options.storage, options.encryption_keys, names.storage)
    server = ApiServer(store, options, stop)
    await server.bootstrap()
    # No router: `Handler` parses paths itself, once.
    runner = web.ServerRunner(
        connections.server(server.handler.handle, request_factory=_build_request),
        shutdown_timeout=2.0,
    )
    await runner.setup()
    listener = TlsListener(runner, _tls_context(options), options.connection_limits)
    host, _, port = options.bind.rpartition(":")
    controllers = asyncio.create_task(server.work())
    try:
        bound_port = await listener.start(host.strip("[]"), int(port))
        server.service.advertise(host, bound_port)
        log.info("serving", bind=f"{host}:{bound_port}", revision=store.revision)
        if ready is not None:
            ready(bound_port)
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({stopped, controllers}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
    finally:
        controllers.cancel()
        await asyncio.gather(controllers, return_exceptions=True)
        await listener.close()
        await runner.cleanup()
        await listener.abort()
        await store.close()
        if server.audit is not None:
            server.audit.close()
        log.info("stopped")


def _build_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    return web.BaseRequest(
        message, payload, protocol, writer, task, asyncio.get_running_loop(),
        client_max_size=requests.MAX_BODY_BYTES,
    )  # fmt: skip


def _tls_context(options: ApiServerOptions) -> ssl.SSLContext:
    context = tls_context.server_context(options.tls_cert, options.tls_key)
    context.load_verify_locations(options.client_ca)
    # A client without a certificate may still have a token.
    context.verify_mode = ssl.CERT_OPTIONAL
    return context
