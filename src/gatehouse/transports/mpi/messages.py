"""Bundles and answers as wire messages."""

from __future__ import annotations

import posixpath
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence

from google.protobuf import struct_pb2

from gatehouse.dataplane import endpoints
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.transports.agents import main_file
from gatehouse.transports.agents.call_auth import OWNER_LABEL
from gatehouse.transports.agents.session import ERROR_MAX, HasFiles, Health, Register
from gatehouse.transports.agents.stream import Apply
from gatehouse.wire.mpi.v1 import command_pb2, common_pb2, files_pb2

CHUNK_BYTES = 64 << 10
"""Size of the pieces of a streamed file: what a slow line carries in some seconds."""

OWN_DIRECTORY = "gatehouse"
"""Directory of a bundle's files, in that of NGINX's configuration."""

_OWN_AGENT = frozenset({"connectors", "endpoints"})
"""Features that only Gatehouse's agent has: it has a main file of its own, and starts its NGINX."""

_FILE_PATH = re.compile(r"/.{0,4094}[^/]", re.DOTALL)

_HEALTH = command_pb2.InstanceHealth.InstanceHealthStatus
_STATUS = common_pb2.CommandResponse.CommandStatus
_NGINX_TYPES = (
    command_pb2.InstanceMeta.InstanceType.INSTANCE_TYPE_NGINX,
    command_pb2.InstanceMeta.InstanceType.INSTANCE_TYPE_NGINX_PLUS,
)


def meta(correlation: str) -> common_pb2.MessageMeta:
    """Give the head of a message, stamped with the present time."""
    head = common_pb2.MessageMeta(message_id=str(uuid.uuid4()), correlation_id=correlation)
    head.timestamp.GetCurrentTime()
    return head


def file_meta(file: File, config_dir: str) -> files_pb2.FileMeta:
    """Describe one file as an agent is to write it."""
    return files_pb2.FileMeta(
        name=f"{config_dir}/{file.path}",
        hash=file.digest,
        permissions="0600" if file.secret else "0644",
        size=len(file.content),
    )


def overview(files: Iterable[File], config_dir: str) -> bytes:
    """Serialise the part of an overview that is the same for every instance: its files.

    Those of some files, one after the other, are that of all of them.
    """
    told = [files_pb2.File(file_meta=file_meta(file, config_dir)) for file in files]
    return files_pb2.FileOverview(files=told).SerializeToString()


def main_file_of(asked: Apply) -> File | None:
    """Make the file that NGINX begins with; None: the agent has one of its own.

    The field's agent reloads NGINX only if a file differs from that on its disk. After a request
    that did not succeed, equal files do not prove that NGINX has read them, so this one differs.
    """
    path = asked.about.main_file
    if not path:
        return None
    again = f"# attempt {asked.attempt}\n" if asked.attempt else ""
    text = main_file.render(asked.about.proxy, asked.files.files.keys())
    return File.make(posixpath.basename(path), again + text)


def config_dir_of(about: Register, default: str) -> str:
    """Give the directory that paths in the configuration are relative to."""
    return posixpath.dirname(about.main_file) or default


def apply_request(shared: bytes, asked: Apply) -> bytes:
    """Serialise the request to apply a bundle, around the bytes of :func:`overview`.

    The overview of 5,000 files is some 600 kB and the same for every instance, so it is built
    once, and only the few bytes around it per instance.
    """
    about = asked.about
    version = files_pb2.ConfigVersion(instance_id=about.nginx_id, version=asked.files.version)
    own = files_pb2.FileOverview(config_version=version)
    main = main_file_of(asked)
    if main is not None:
        own.files.add(file_meta=file_meta(main, posixpath.dirname(about.main_file)))
        for path in sorted(asked.unmanaged):
            left_alone = files_pb2.FileMeta(name=path, permissions="0644")
            own.files.add(file_meta=left_alone, unmanaged=True)
    head = command_pb2.ManagementPlaneRequest(message_meta=meta(asked.correlation))
    # Fields may come in any order, so two serialised overviews, one after the other, are one.
    body = _embedded(1, shared + own.SerializeToString())
    return head.SerializeToString() + _embedded(5, body)


def overview_response(shared: bytes, version: files_pb2.ConfigVersion) -> bytes:
    """Serialise the reply that is an overview, around the bytes of :func:`overview`."""
    own = files_pb2.FileOverview(config_version=version)
    return _embedded(1, shared + own.SerializeToString())


def file_response(file: File) -> bytes:
    """Serialise the reply that is a file. A thousand instances fetch it: it is copied, no more."""
    return _embedded(1, _embedded(1, file.content))


def servers_request(bundle: FileSet, upstream: str, nginx_id: str, correlation: str) -> bytes:
    """Serialise the request that an upstream of NGINX Plus have the servers that a bundle says."""
    found = endpoints.decode(bundle.files[endpoints.path_of(upstream)].content)
    servers = []
    for each in found:
        server = struct_pb2.Struct()
        # Whether one is fit is for its readiness to say, so failures count for nothing.
        server.update({"server": each.encoded, "weight": each.weight, "max_fails": 0})
        servers.append(server)
    action = command_pb2.NGINXPlusAction()
    if endpoints.stream_file(upstream) in bundle.files:
        action.update_stream_servers.upstream_stream_name = upstream
        action.update_stream_servers.servers.extend(servers)
    else:
        action.update_http_upstream_servers.http_upstream_name = upstream
        action.update_http_upstream_servers.servers.extend(servers)
    return command_pb2.ManagementPlaneRequest(
        message_meta=meta(correlation),
        action_request=command_pb2.APIActionRequest(instance_id=nginx_id, nginx_plus_action=action),
    ).SerializeToString()


def _embedded(field: int, message: bytes) -> bytes:
    length, rest = bytearray(), len(message)
    while rest > 0x7F:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    length.append(rest)
    return bytes([field << 3 | 2]) + bytes(length) + message


def chunks(file: File, config_dir: str) -> Iterator[files_pb2.FileDataChunk]:
    """Give a file as a stream. An empty one is a header that announces one empty piece."""
    pieces = range(0, len(file.content), CHUNK_BYTES) or range(1)
    header = files_pb2.FileDataChunkHeader(
        file_meta=file_meta(file, config_dir), chunks=len(pieces), chunk_size=CHUNK_BYTES
    )
    head = meta(str(uuid.uuid4()))
    yield files_pb2.FileDataChunk(meta=head, header=header)
    for number, offset in enumerate(pieces):
        data = file.content[offset : offset + CHUNK_BYTES]
        content = files_pb2.FileDataChunkContent(chunk_id=number, data=data)
        yield files_pb2.FileDataChunk(meta=head, content=content)


def nginx_of(instances: Sequence[command_pb2.Instance]) -> Register:
    """Give what is said of the NGINX among ``instances``, and of its agent."""
    features = frozenset(
        feature
        for instance in instances
        for feature in instance.instance_config.agent_config.features
    )
    field = _is_of_the_field(instances, features)
    for instance in instances:
        about = instance.instance_meta
        if about.instance_type in _NGINX_TYPES:
            runtime = instance.instance_runtime
            modules = (
                *runtime.nginx_runtime_info.dynamic_modules,
                *runtime.nginx_plus_runtime_info.dynamic_modules,
            )
            stopped = field and not runtime.process_id
            # Without a place for the main file nothing can be sent, so it counts as not found.
            usable = not field or _FILE_PATH.fullmatch(runtime.config_path)
            return Register(
                about.instance_id if usable else "",
                f"nginx/{about.version}",
                modules,
                features,
                main_file=runtime.config_path if field else "",
                problem="NGINX is not healthy: it has no master process" if stopped else "",
                reports_files=field,
            )
    problem = "NGINX is not healthy: its agent finds no process" if field else ""
    return Register("", "", features=features, problem=problem, reports_files=field)


def _is_of_the_field(instances: Sequence[command_pb2.Instance], features: frozenset[str]) -> bool:
    """Tell NGINX's own agent, which names its configuration, from Gatehouse's, of any version."""
    agent = command_pb2.InstanceMeta.InstanceType.INSTANCE_TYPE_AGENT
    configured = any(
        instance.instance_meta.instance_type == agent and instance.instance_runtime.config_path
        for instance in instances
    )
    return configured and not features & _OWN_AGENT


def health_of(about: Register, healths: Iterable[command_pb2.InstanceHealth]) -> Health | None:
    """Give what is said of the health of the NGINX ``about``; None: nothing that counts."""
    for health in healths:
        if not about.reports_files or health.instance_id != about.nginx_id:
            continue
        match health.instance_health_status:
            case _HEALTH.INSTANCE_HEALTH_STATUS_UNHEALTHY:
                why = health.description or "the agent gave no reason"
                return Health(f"NGINX is not healthy: {why}"[:ERROR_MAX])
            case _HEALTH.INSTANCE_HEALTH_STATUS_HEALTHY | _HEALTH.INSTANCE_HEALTH_STATUS_DEGRADED:
                return Health("")
    return None


def files_of(about: Register, reported: files_pb2.FileOverview) -> HasFiles | None:
    """Give which files of those that NGINX reads are not Gatehouse's; None: nobody asks."""
    # It may report the files of an NGINX before the NGINX.
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


def owners(instances: Sequence[command_pb2.Instance]) -> list[str]:
    """Give the Deployments that agents among ``instances`` claim in their labels to be part of."""
    return [
        labels.fields[OWNER_LABEL].string_value
        for instance in instances
        for labels in instance.instance_config.agent_config.labels
        if OWNER_LABEL in labels.fields
    ]


def refusal(response: common_pb2.CommandResponse) -> str | None:
    """Give why a command failed; empty: it succeeded; None: this is not yet its final answer."""
    if response.status == _STATUS.COMMAND_STATUS_OK:
        return ""
    if response.status != _STATUS.COMMAND_STATUS_FAILURE:
        return None
    return response.error or response.message or "the agent gave no reason"
