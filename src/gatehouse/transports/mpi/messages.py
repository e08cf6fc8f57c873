"""Requests and responses of NGINX Agent v3 as wire messages."""

from __future__ import annotations

import posixpath
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence

from google.protobuf import struct_pb2

from gatehouse.dataplane import endpoints, features
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.transports.agents import main_file
from gatehouse.transports.agents.call_auth import OWNER_LABEL
from gatehouse.transports.agents.rejection import quotes_nginx
from gatehouse.transports.agents.session import HasFiles, Health, Register
from gatehouse.transports.agents.stream import Apply
from gatehouse.wire.mpi.v1 import command_pb2, common_pb2, files_pb2

CHUNK_BYTES = 64 << 10
"""Chunk size of a streamed file in bytes. A slow connection carries it in a few seconds."""

OWN_DIRECTORY = "gatehouse"
"""Directory of Gatehouse's files in NGINX's configuration directory."""

_OWN_AGENT = frozenset({"connectors", "endpoints"})
"""Features that only Gatehouse's agent has. It has its own main file and starts its NGINX."""

_FILE_PATH = re.compile(r"/.{0,4094}[^/]", re.DOTALL)

_HEALTH = command_pb2.InstanceHealth.InstanceHealthStatus
_STATUS = common_pb2.CommandResponse.CommandStatus
_NGINX_TYPES = (
    command_pb2.InstanceMeta.InstanceType.INSTANCE_TYPE_NGINX,
    command_pb2.InstanceMeta.InstanceType.INSTANCE_TYPE_NGINX_PLUS,
)


def _meta(correlation: str) -> common_pb2.MessageMeta:
    """Build message metadata with the current time."""
    head = common_pb2.MessageMeta(message_id=str(uuid.uuid4()), correlation_id=correlation)
    head.timestamp.GetCurrentTime()
    return head


def file_metas(files: Iterable[File], config_dir: str) -> list[files_pb2.FileMeta]:
    """Build the metadata of files."""
    return [
        files_pb2.FileMeta(
            name=f"{config_dir}/{file.path}",
            hash=file.digest,
            permissions="0600" if file.secret else "0644",
            size=len(file.content),
        )
        for file in files
    ]


def overview(files: Iterable[File], config_dir: str) -> bytes:
    """Serialise the part of a file overview that is the same for all instances: its files.

    The concatenation of several results is the overview of all their files.
    """
    entries = [files_pb2.File(file_meta=meta) for meta in file_metas(files, config_dir)]
    return files_pb2.FileOverview(files=entries).SerializeToString()


def main_file_of(apply: Apply) -> File | None:
    """Build the main NGINX configuration file, or return None if the agent has its own.

    NGINX Agent reloads NGINX only if a file on disk changes. After a failed request, equal files do
    not prove that NGINX has read them, so each attempt writes a different main file.
    """
    path = apply.about.main_file
    if not path:
        return None
    again = f"# attempt {apply.attempt}\n" if apply.attempt else ""
    about = apply.about
    text = main_file.render_main_file(about.proxy, apply.files.files.keys(), about.loadable_modules)
    return File.make(posixpath.basename(path), again + text)


def config_dir_of(about: Register, default: str) -> str:
    """Return the directory that paths in the configuration are relative to."""
    return posixpath.dirname(about.main_file) or default


def apply_request(shared: bytes, apply: Apply) -> bytes:
    """Serialise the request to apply a file set around the bytes of :func:`overview`.

    The overview of 5,000 files has about 600 kB and is the same for all instances. It is built
    once; only the few bytes around it are built per instance.
    """
    about = apply.about
    version = files_pb2.ConfigVersion(instance_id=about.nginx_id, version=apply.files.version)
    own = files_pb2.FileOverview(config_version=version)
    main = main_file_of(apply)
    if main is not None:
        shared += overview((main,), posixpath.dirname(about.main_file))
        for path in sorted(apply.unmanaged):
            unmanaged = files_pb2.FileMeta(name=path, permissions="0644")
            own.files.add(file_meta=unmanaged, unmanaged=True)
    head = command_pb2.ManagementPlaneRequest(message_meta=_meta(apply.correlation))
    # Fields may come in any order, so concatenated overviews are one overview.
    body = _embedded(1, shared + own.SerializeToString())
    return head.SerializeToString() + _embedded(5, body)


def overview_response(shared: bytes, version: files_pb2.ConfigVersion) -> bytes:
    """Serialise an overview response around the bytes of :func:`overview`."""
    own = files_pb2.FileOverview(config_version=version)
    return _embedded(1, shared + own.SerializeToString())


def file_response(file: File) -> bytes:
    """Serialise a file response with a single copy, because a thousand instances fetch the file."""
    return _embedded(1, _embedded(1, file.content))


def servers_request(file_set: FileSet, upstream: str, nginx_id: str, correlation: str) -> bytes:
    """Serialise the request to set an NGINX Plus upstream to the servers in a file set."""
    servers_in_file = endpoints.parse_endpoints(
        file_set.files[endpoints.endpoints_path(upstream)].content
    )
    servers = []
    for endpoint in servers_in_file:
        server = struct_pb2.Struct()
        # Readiness decides whether an endpoint is used, so failed requests do not disable it.
        server.update({"server": endpoint.encoded, "weight": endpoint.weight, "max_fails": 0})
        servers.append(server)
    action = command_pb2.NGINXPlusAction()
    if endpoints.stream_endpoints_file(upstream) in file_set.files:
        action.update_stream_servers.upstream_stream_name = upstream
        action.update_stream_servers.servers.extend(servers)
    else:
        action.update_http_upstream_servers.http_upstream_name = upstream
        action.update_http_upstream_servers.servers.extend(servers)
    return command_pb2.ManagementPlaneRequest(
        message_meta=_meta(correlation),
        action_request=command_pb2.APIActionRequest(instance_id=nginx_id, nginx_plus_action=action),
    ).SerializeToString()


def _embedded(field: int, message: bytes) -> bytes:
    length, rest = bytearray(), len(message)
    while rest > 0x7F:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    length.append(rest)
    return bytes([field << 3 | 2]) + bytes(length) + message


def file_chunks(file: File, config_dir: str) -> Iterator[files_pb2.FileDataChunk]:
    """Yield a file as a stream. An empty file is a header that announces one empty chunk."""
    offsets = range(0, len(file.content), CHUNK_BYTES) or range(1)
    (about,) = file_metas((file,), config_dir)
    header = files_pb2.FileDataChunkHeader(
        file_meta=about, chunks=len(offsets), chunk_size=CHUNK_BYTES
    )
    head = _meta(str(uuid.uuid4()))
    yield files_pb2.FileDataChunk(meta=head, header=header)
    for number, offset in enumerate(offsets):
        data = file.content[offset : offset + CHUNK_BYTES]
        content = files_pb2.FileDataChunkContent(chunk_id=number, data=data)
        yield files_pb2.FileDataChunk(meta=head, content=content)


def nginx_of_instances(instances: Sequence[command_pb2.Instance]) -> Register:
    """Parse the description of the NGINX among ``instances`` and of its agent."""
    features = frozenset(
        feature
        for instance in instances
        for feature in instance.instance_config.agent_config.features
    )
    nginx_agent = _is_nginx_agent(instances, features)
    for instance in instances:
        about = instance.instance_meta
        if about.instance_type in _NGINX_TYPES:
            runtime = instance.instance_runtime
            modules = (
                *runtime.nginx_runtime_info.dynamic_modules,
                *runtime.nginx_plus_runtime_info.dynamic_modules,
            )
            loadable = (
                *runtime.nginx_runtime_info.loadable_modules,
                *runtime.nginx_plus_runtime_info.loadable_modules,
            )
            stopped = nginx_agent and not runtime.process_id
            # Without a path of the main file nothing can be sent, so this NGINX counts as not
            # found.
            usable = not nginx_agent or _FILE_PATH.fullmatch(runtime.config_path)
            return Register(
                about.instance_id if usable else "",
                f"nginx/{about.version}",
                modules,
                features,
                main_file=runtime.config_path if nginx_agent else "",
                problem="NGINX is not healthy: it has no master process" if stopped else "",
                loadable_modules=loadable,
                reports_files=nginx_agent,
            )
    problem = "NGINX is not healthy: its agent finds no process" if nginx_agent else ""
    return Register("", "", features=features, problem=problem, reports_files=nginx_agent)


def _is_nginx_agent(instances: Sequence[command_pb2.Instance], features: frozenset[str]) -> bool:
    """Return whether the agent is NGINX Agent and not Gatehouse's.

    NGINX Agent reports the path of its own configuration; no version of Gatehouse's agent does.
    """
    agent = command_pb2.InstanceMeta.InstanceType.INSTANCE_TYPE_AGENT
    configured = any(
        instance.instance_meta.instance_type == agent and instance.instance_runtime.config_path
        for instance in instances
    )
    return configured and not features & _OWN_AGENT


def health_of(about: Register, healths: Iterable[command_pb2.InstanceHealth]) -> Health | None:
    """Return the reported health of the NGINX ``about``, or None if there is no relevant report."""
    for health in healths:
        if health.instance_id != about.nginx_id:
            continue
        match health.instance_health_status:
            case _HEALTH.INSTANCE_HEALTH_STATUS_UNHEALTHY:
                why = health.description or "the agent gave no reason"
                return Health(f"NGINX is not healthy: {why}")
            case _HEALTH.INSTANCE_HEALTH_STATUS_HEALTHY | _HEALTH.INSTANCE_HEALTH_STATUS_DEGRADED:
                return Health("")
    return None


def files_of(about: Register, reported: files_pb2.FileOverview) -> HasFiles | None:
    """Return the reported files that are not Gatehouse's, or None if they are not needed."""
    # An agent may report the files of an NGINX before the NGINX.
    main = about.main_file or reported.config_path
    if not about.reports_files or not main:
        return None
    own = f"{posixpath.dirname(main)}/{OWN_DIRECTORY}/"
    names = (file.file_meta.name for file in reported.files)
    return HasFiles(
        tuple(
            name
            for name in names
            if _FILE_PATH.fullmatch(name) and name != main and not name.startswith(own)
        )
    )


def claimed_owners(instances: Sequence[command_pb2.Instance]) -> list[str]:
    """Return the Deployments that agents among ``instances`` claim in their labels."""
    return [
        labels.fields[OWNER_LABEL].string_value
        for instance in instances
        for labels in instance.instance_config.agent_config.labels
        if OWNER_LABEL in labels.fields
    ]


def mpi_error(response: common_pb2.CommandResponse) -> str | None:
    """Return the error of a failed command, "" for success, or None if it is not final."""
    if response.status == _STATUS.COMMAND_STATUS_OK:
        return ""
    if response.status != _STATUS.COMMAND_STATUS_FAILURE:
        return None
    return response.error or response.message or "the agent gave no reason"


def is_rejection(response: common_pb2.CommandResponse) -> bool:
    """Return whether a command failed because NGINX rejected the files."""
    return response.message.startswith(features.NGINX_REJECTED) or quotes_nginx(response.error)
