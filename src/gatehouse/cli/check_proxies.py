"""Validation of generated configuration by real proxies, without serving it."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec
from envoy.config.listener.v3 import listener_pb2

from gatehouse.agent.envoy import binary as envoy_binary
from gatehouse.agent.envoy import paths as envoy_paths
from gatehouse.agent.envoy.bootstrap import bootstrap_config
from gatehouse.agent.envoy.downstream import Downstream
from gatehouse.agent.envoy.relay import DeltaRequest
from gatehouse.agent.envoy.supervisor import EnvoySupervisor
from gatehouse.agent.nginx import binary as nginx_binary
from gatehouse.agent.nginx import paths as nginx_paths
from gatehouse.agent.nginx.apply_errors import ApplyError
from gatehouse.agent.nginx.manifests import Manifest, ManifestEntry
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.agent.nginx.staging import Stager
from gatehouse.agent.options import ProxyMissingError
from gatehouse.cli.errors import CLIError
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.compiler.ir.http import Endpoint
from gatehouse.controller.held_back import held_back_key, without_held_back
from gatehouse.controller.input_set import InputSet
from gatehouse.controller.offline import compile_pass
from gatehouse.controller.quarantine import Quarantine
from gatehouse.dataplane.file_set import FileSet
from gatehouse.dataplane.origin import Origin, object_of
from gatehouse.dataplane.xds import delta
from gatehouse.dataplane.xds.resources import LISTENER_TYPE_URL, ResourceSet, XdsResource
from gatehouse.dataplane.xds.snapshot_cache import SnapshotCache
from gatehouse.incremental.query import Engine, Key

_ENVOY_SECONDS = 60.0
"""Maximum time in seconds for an Envoy to start and to answer to all resources."""

_POLL_SECONDS = 0.05

_MAX_TESTS = 200
"""Maximum number of tests of a Gateway's configuration."""

_NAMESERVER = 53
"""Port of the agent's name server in the tested configuration. Nothing connects to it."""

_ASSUMED_ENDPOINT = Endpoint("127.0.0.1", 9)
"""Endpoint of clusters without any. Nothing connects to it."""

_PRIVILEGED, _SUBSTITUTES = 1024, 40000


class ProxyRejection(msgspec.Struct, frozen=True):
    """A part of an object that a proxy rejects."""

    origin: Origin
    message: str


class NginxTest:
    """Test of file sets by one NGINX."""

    def __init__(self, named: str | None) -> None:
        """Find NGINX. Raises NginxMissingError."""
        self._binary = nginx_binary.probe_nginx(nginx_binary.find_nginx_binary(named))
        self.name = f"nginx/{self._binary.version_and_release}"
        self._capabilities = nginx.NginxCapabilities.parse(
            self._binary.version_and_release,
            self._binary.modules,
            named_endpoints=True,
            connectors=True,
            authenticators=True,
            pickers=True,
            access_log=True,
            failure_causes=True,
        )

    def rejections(self, engine: Engine, gateway: Key) -> Iterator[ProxyRejection]:
        """Yield what NGINX rejects of a Gateway.

        The quarantine finds it by tests, as for a Gateway that is served.
        """
        quarantine = Quarantine(
            gateway,
            lambda configuration, message: nginx.suspects(
                configuration, self._capabilities, message
            ),
            lambda key: getattr(engine.snapshot.get(key), "spec", None),
            engine.reads,
        )
        inputs = InputSet(lambda key, value: bool(engine.commit({key: value})))
        message, changed = "", True
        for number in range(1, _MAX_TESTS + 1):
            with compile_pass(engine) as ask:
                configuration = ask(combined.compile_combined_gateway, gateway)
            if configuration is None:
                return
            compiled = as_tested(configuration)
            held = quarantine.inputs.get(held_back_key(gateway))
            tested = compiled if held is None else without_held_back(held, compiled)
            changed = quarantine.published(str(number), tested, compiled)
            message = self.error(tested)
            if message:
                changed |= quarantine.rejected(str(number), message, self.name)
            else:
                changed |= quarantine.confirmed([str(number)])
            inputs.update(gateway, quarantine.inputs)
            if not changed:
                break
        for origin, reason in quarantine.verdicts.reasons.items():
            yield ProxyRejection(origin, reason)
        if message:
            yield ProxyRejection(object_of(gateway), f"rejected by {self.name}: {message}")

    def error(self, gateway: GatewayConfiguration) -> str:
        """Return why NGINX rejects the files of a Gateway; empty if it accepts them."""
        files = nginx.NginxGenerator(self._capabilities).generate(gateway).file_set
        with tempfile.TemporaryDirectory(prefix="ghc-") as directory:
            paths = nginx_paths.nginx_paths(Path(directory) / "root", Path(directory) / "run")
            paths.prepare()
            if self._binary.plus:
                paths.prepare_plus()
            revisions = RevisionStore(paths.root)
            revisions.prepare()
            manifest = _store(revisions, files)
            stager = Stager(self._binary, paths, revisions, "1", 10)
            try:
                stager.test(stager.stage(manifest, {}, _NAMESERVER))
            except ApplyError as error:
                return str(error)
            except OSError as error:
                raise CLIError(f"NGINX cannot be run: {error}") from error
        return ""


def _store(revisions: RevisionStore, files: FileSet) -> Manifest:
    entries = []
    for file in files.files.values():
        digest = hashlib.sha256(file.content).hexdigest()
        entries.append(ManifestEntry(file.path, digest, len(file.content), file.secret))
        revisions.put(entries[-1], file.content)
    return Manifest(files.version, tuple(entries))


def as_tested(gateway: GatewayConfiguration) -> GatewayConfiguration:
    """Return a Gateway whose ports need no privileges, since `nginx -t` opens them.

    Each cluster has an endpoint. Without any, requests are answered 503, and most of the
    configuration would not be tested. Manifests usually contain no EndpointSlices.
    """
    clusters = tuple(
        cluster
        if cluster.endpoints
        else msgspec.structs.replace(cluster, endpoints=(_ASSUMED_ENDPOINT,))
        for cluster in gateway.clusters
    )
    groups = {
        name: getattr(gateway, name)
        for name in (
            "listeners",
            "l4_listeners",
            "proxy_protocol_listeners",
            "http_connect_listeners",
            "api_listeners",
        )
    }
    taken = {entry.port for entries in groups.values() for entry in entries}
    free = (port for port in range(_SUBSTITUTES, 1 << 16) if port not in taken)
    ports = {port: next(free) if port < _PRIVILEGED else port for port in sorted(taken)}
    return msgspec.structs.replace(
        gateway,
        clusters=clusters,
        **{
            name: tuple(msgspec.structs.replace(entry, port=ports[entry.port]) for entry in entries)
            for name, entries in groups.items()
        },
    )


class _StaticSource:
    """Resources for one Envoy, which never change."""

    def __init__(self, resources: ResourceSet) -> None:
        self._publication = SnapshotCache()
        self._publication.publish(resources)
        self.stream: delta.DeltaStream | None = None

    def opened(self) -> delta.DeltaStream:
        self.stream = delta.DeltaStream(self._publication)
        return self.stream

    def closed(self, stream: delta.DeltaStream) -> None:
        """Keep the stream, which has the result."""

    def receive(self, message: DeltaRequest) -> None:
        if self.stream is not None:
            self.stream.receive(message)

    def next(self) -> bytes | None:
        return self.stream.next() if self.stream is not None else None

    def on_deadline(self) -> None:
        if self.stream is not None:
            self.stream.conversation.on_deadline()

    @property
    def settled(self) -> bool:
        """True if Envoy has answered to all resources."""
        return self.stream is not None and self.stream.conversation.is_idle


class EnvoyTest:
    """Test of resource sets by one Envoy."""

    def __init__(self, named: str | None) -> None:
        """Find Envoy. Raises EnvoyMissingError."""
        self._binary = envoy_binary.probe_envoy(envoy_binary.find_envoy_binary(named))
        self.name = f"envoy/{self._binary.version}"

    def rejections(self, engine: Engine, gateway: Key) -> Iterator[ProxyRejection]:
        """Yield what Envoy rejects of a Gateway. It names all rejected resources at once."""
        with compile_pass(engine) as ask:
            configuration = ask(combined.compile_combined_gateway, gateway)
        if configuration is None:
            return
        capabilities = envoy.EnvoyCapabilities(
            "system.pem", authenticators=True, runtime_limits=True
        )
        generated = envoy.EnvoyGenerator(capabilities).generate(as_tested(configuration))
        for resource, reason in asyncio.run(self.rejected_resources(generated.resources)):
            message = f"rejected by {self.name}: {reason}"
            for origin in resource.origins or (object_of(gateway),):
                yield ProxyRejection(origin, message)

    async def rejected_resources(self, resources: ResourceSet) -> list[tuple[XdsResource, str]]:
        """Return the resources that Envoy rejects, with its reasons. Raises CLIError."""
        with tempfile.TemporaryDirectory(prefix="ghc-") as directory:
            paths = envoy_paths.envoy_paths(Path(directory) / "root", Path(directory) / "run")
            paths.prepare()
            paths.bootstrap.write_text(
                bootstrap_config("check", "check", paths.relay, paths.admin, paths.probe, 1024)
            )
            source = _StaticSource(_without_ports(resources))
            downstream = Downstream(source, lambda: None)
            await downstream.start(paths.relay)
            process = EnvoySupervisor(self._binary, paths, "1", 1).start()
            try:
                async with asyncio.timeout(_ENVOY_SECONDS):
                    while not source.settled:
                        if process.exited.is_set():
                            raise CLIError(f"Envoy exited: {paths.log.read_text()[-1000:]}")
                        await asyncio.sleep(_POLL_SECONDS)
            except TimeoutError as error:
                raise CLIError(f"Envoy did not answer within {_ENVOY_SECONDS:g} s") from error
            finally:
                await process.end(signal.SIGTERM, 5.0)
                await process.kill()
                await downstream.stop()
            assert source.stream is not None
            rejected = source.stream.conversation.rejected_resources()
            return [(entry.resource, entry.reason) for entry in rejected]


def _without_ports(resources: ResourceSet) -> ResourceSet:
    """Return resources whose listeners open no port.

    Envoy always opens the ports of UDP listeners. They are replaced by free loopback ports.
    """
    result = []
    for name, resource in resources.by_type.get(LISTENER_TYPE_URL, {}).items():
        listener = listener_pb2.Listener.FromString(resource.body)
        if listener.HasField("udp_listener_config"):
            socket = listener.address.socket_address
            socket.address, socket.port_value, socket.ipv4_compat = "127.0.0.1", 0, False
        else:
            listener.bind_to_port.value = False
        body = listener.SerializeToString(deterministic=True)
        result.append(XdsResource.make(LISTENER_TYPE_URL, name, body, origins=resource.origins))
    return resources.changed(result)


ProxyTests = dict[str, "NginxTest | EnvoyTest"]


def proxy_tests(
    needed: Collection[str], nginx_named: str | None, envoy_named: str | None
) -> tuple[ProxyTests, list[str]]:
    """Return the needed tests by controller name, and the reasons why others are not possible."""
    result: ProxyTests = {}
    missing: list[str] = []
    for controller, create, named in (
        (gateway_api.NGINX, NginxTest, nginx_named),
        (gateway_api.ENVOY, EnvoyTest, envoy_named),
    ):
        if controller in needed:
            try:
                result[controller] = create(named)
            except ProxyMissingError as error:
                missing.append(str(error))
    return result, missing
