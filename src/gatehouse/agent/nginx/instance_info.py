"""Description of the agent and its NGINX in the messages to the control plane, with stable IDs."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import sys
import uuid
from pathlib import Path

from gatehouse.agent.liveness import LivenessMonitor
from gatehouse.agent.nginx.binary import NginxBinary
from gatehouse.agent.nginx.manifests import Manifest
from gatehouse.agent.nginx.plus.client import LOCATION
from gatehouse.agent.nginx.revision_store import MAIN
from gatehouse.agent.nginx.supervisor import NginxSupervisor
from gatehouse.agent.options import CONFIG_DIR, AgentOptions
from gatehouse.dataplane import features
from gatehouse.wire.mpi.v1 import command_pb2, common_pb2, files_pb2
from kube_base.runtime import private_files

AGENT_VERSION = "3.0.0"
"""Version of NGINX Agent whose behaviour this agent implements."""

_TYPES = command_pb2.InstanceMeta.InstanceType
_HEALTH = command_pb2.InstanceHealth.InstanceHealthStatus


def message_metadata(correlation: str = "") -> common_pb2.MessageMeta:
    """Return the metadata of a message. An empty `correlation` starts a new workflow."""
    head = common_pb2.MessageMeta(
        message_id=str(uuid.uuid4()), correlation_id=correlation or str(uuid.uuid4())
    )
    head.timestamp.GetCurrentTime()
    return head


def derived_id(text: str) -> str:
    """Return the ID that NGINX Agent derives from `text`."""
    return str(uuid.uuid3(uuid.UUID(int=0), hashlib.sha256(text.encode()).hexdigest()))


def resource_id(options: AgentOptions) -> str:
    """Return the ID of this Pod, derived from its UID or name.

    Without both it is a random ID that is stored under the root directory.
    """
    for known in (options.pod_uid, options.pod_name):
        if known:
            return str(uuid.uuid3(uuid.NAMESPACE_DNS, known))
    path = options.root / "resource-id"
    try:
        return str(uuid.UUID(path.read_text(encoding="ascii").strip()))
    except (OSError, ValueError):
        random_id = str(uuid.uuid4())
        private_files.replace_private_file(path, random_id.encode())
        return random_id


class InstanceInfo:
    """Builds the messages that describe this agent. Changing values are read at each call."""

    def __init__(
        self,
        options: AgentOptions,
        binary: NginxBinary,
        supervisor: NginxSupervisor,
        liveness: LivenessMonitor,
        api_socket: Path,
        *,
        endpoints: bool,
    ) -> None:
        self.resource_id = resource_id(options)
        prefix = binary.argument("prefix", "/usr/local/nginx")
        # Main file path as the control plane names it, so that equal images have equal IDs.
        conf = f"{CONFIG_DIR}/{MAIN}"
        self.nginx_id = derived_id(f"{binary.path}_{conf}_{prefix}")
        self._options = options
        # This agent runs sidecars, and updates endpoints in NGINX apart from the configuration.
        own = [features.CONNECTORS, features.AUTHENTICATORS, features.PICKERS, features.TRIALS]
        own += [features.LOG_FORWARDING, features.FAILURE_CAUSES]
        own += [features.TRACE_MODULE] if binary.trace_module is not None else []
        own += [features.ENDPOINTS] if endpoints else []
        own += [features.API_ACTION] if binary.plus else []
        self._features = ["configuration", *own]
        self._binary, self._api_socket = binary, api_socket
        self._supervisor, self._liveness = supervisor, liveness

    def resource(self) -> command_pb2.Resource:
        """Return the description of the Pod with its agent and its NGINX."""
        hostname = self._options.pod_name or socket.gethostname()
        container = command_pb2.ContainerInfo(container_id=self.resource_id, hostname=hostname)
        return command_pb2.Resource(
            resource_id=self.resource_id,
            container_info=container,
            instances=[self._agent(), self._nginx()],
        )

    def _agent(self) -> command_pb2.Instance:
        options = self._options
        config = command_pb2.AgentConfig(
            command=command_pb2.CommandServer(
                server=common_pb2.ServerSettings(
                    host=options.server_host,
                    port=options.server_port,
                    type=common_pb2.ServerSettings.ServerType.SERVER_SETTINGS_TYPE_GRPC,
                )
            ),
            features=self._features,
        )
        for key, value in options.labels.items():
            config.labels.add().update({key: value})
        return command_pb2.Instance(
            instance_meta=command_pb2.InstanceMeta(
                instance_id=derived_id(f"agent_{self.resource_id}"),
                instance_type=_TYPES.INSTANCE_TYPE_AGENT,
                version=AGENT_VERSION,
            ),
            instance_config=command_pb2.InstanceConfig(agent_config=config),
            instance_runtime=command_pb2.InstanceRuntime(
                process_id=os.getpid(), binary_path=str(Path(sys.executable).absolute())
            ),
        )

    def _nginx(self) -> command_pb2.Instance:
        master = self._supervisor.process
        runtime = command_pb2.InstanceRuntime(
            process_id=master.pid if master else 0,
            binary_path=str(self._binary.path),
            config_path=f"{CONFIG_DIR}/{MAIN}",
        )
        if self._binary.plus:
            details = runtime.nginx_plus_runtime_info
            details.plus_api.location = LOCATION
            details.plus_api.listen = f"unix:{self._api_socket}"
            details.dynamic_modules.extend(self._binary.modules)
        else:
            runtime.nginx_runtime_info.dynamic_modules.extend(self._binary.modules)
        for pid in sorted(master.children() if master else ()):
            runtime.instance_children.add(process_id=pid)
        return command_pb2.Instance(
            instance_meta=command_pb2.InstanceMeta(
                instance_id=self.nginx_id,
                instance_type=_TYPES.INSTANCE_TYPE_NGINX_PLUS
                if self._binary.plus
                else _TYPES.INSTANCE_TYPE_NGINX,
                version=self._binary.version_and_release,
            ),
            instance_runtime=runtime,
        )

    def health(self) -> command_pb2.InstanceHealth:
        """Return the health of NGINX."""
        master = self._supervisor.process
        status, description = _HEALTH.INSTANCE_HEALTH_STATUS_HEALTHY, ""
        if master is None:
            status = _HEALTH.INSTANCE_HEALTH_STATUS_UNHEALTHY
            description = "NGINX is not running"
        elif self._liveness.unhealthy:
            status = _HEALTH.INSTANCE_HEALTH_STATUS_UNHEALTHY
            description = self._liveness.unhealthy
        elif not master.children():
            status = _HEALTH.INSTANCE_HEALTH_STATUS_DEGRADED
            description = "NGINX has no workers"
        return command_pb2.InstanceHealth(
            instance_id=self.nginx_id, instance_health_status=status, description=description
        )

    def overview(self, manifest: Manifest) -> files_pb2.FileOverview:
        """Return the overview of the served files with their version."""
        files = (
            files_pb2.File(
                file_meta=files_pb2.FileMeta(
                    name=f"{CONFIG_DIR}/{entry.path}",
                    hash=base64.b64encode(bytes.fromhex(entry.digest)).decode(),
                    permissions="0600" if entry.secret else "0644",
                    size=entry.size,
                )
            )
            for entry in manifest.entries
        )
        version = files_pb2.ConfigVersion(instance_id=self.nginx_id, version=manifest.version)
        return files_pb2.FileOverview(files=files, config_version=version)
