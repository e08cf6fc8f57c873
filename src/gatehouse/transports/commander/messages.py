"""Commands and responses of agent v2 as wire messages."""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Iterator, Sequence

import msgspec

from gatehouse.dataplane.agent_limits import MAX_TEXT_CHARACTERS
from gatehouse.transports.agents.rejection import quotes_nginx
from gatehouse.transports.agents.session import (
    ApplyResponse,
    Health,
    Register,
)
from gatehouse.wire.agent_sdk import commander_pb2

STILL_VALIDATING = "config apply request successfully processed"
"""Message of agent v2, sent with status OK, if NGINX tests a configuration for more than a
minute."""

RELOAD_FAILED = (
    "Config apply failed. Errors found during NGINX reload after applying a new configuration: "
)
"""Words of agent v2 before the line of the error log that a reload ended with."""

_STATUS = commander_pb2.CommandStatusResponse.CommandStatus
_OUTCOME = commander_pb2.NginxConfigStatus.Status
_DEGRADED = commander_pb2.NginxHealth.NginxStatus.DEGRADED
_WITHOUT_REASON = "the agent gave no reason"


def build_meta(message_id: str) -> commander_pb2.Metadata:
    """Build message metadata with the current time."""
    head = commander_pb2.Metadata(message_id=message_id[:MAX_TEXT_CHARACTERS])
    head.timestamp.GetCurrentTime()
    return head


def registration_response(message_id: str) -> bytes:
    """Build the response to a registration. It names no configurations, so that none is
    uploaded."""
    return _connect_response(message_id, commander_pb2.ConfigReport())


def request_upload(system_id: str, nginx_id: str) -> bytes:
    """Build a request to upload the configuration of ``nginx_id``.

    An agent uploads each configuration that the response to its registration names, and accepts
    such a response at any time.
    """
    named = commander_pb2.ConfigDescriptor(
        system_id=system_id[:MAX_TEXT_CHARACTERS], nginx_id=nginx_id[:MAX_TEXT_CHARACTERS]
    )
    return _connect_response(str(uuid.uuid4()), commander_pb2.ConfigReport(configs=[named]))


def _connect_response(message_id: str, configs: commander_pb2.ConfigReport) -> bytes:
    ok = commander_pb2.AgentConnectStatus.StatusCode.CONNECT_OK
    return commander_pb2.Command(
        meta=build_meta(message_id),
        agent_connect_response=commander_pb2.AgentConnectResponse(
            agent_config=commander_pb2.AgentConfig(configs=configs),
            status=commander_pb2.AgentConnectStatus(statusCode=ok, message="connected"),
        ),
    ).SerializeToString()


def config_apply_request(correlation: str, nginx_id: str, version: str) -> bytes:
    """Build a request to fetch and apply the configuration under ``correlation``."""
    return commander_pb2.Command(
        meta=build_meta(correlation),
        type=commander_pb2.Command.CommandType.DOWNLOAD,
        nginx_config=commander_pb2.NginxConfig(
            action=commander_pb2.NginxConfigAction.APPLY,
            config_data=commander_pb2.ConfigDescriptor(nginx_id=nginx_id, checksum=version),
        ),
    ).SerializeToString()


def nginx_of_request(details: commander_pb2.NginxDetails) -> Register:
    """Parse an agent's description of its NGINX."""
    # Third-party modules appear only in the build arguments, by their directory.
    added = (
        argument.partition("=")[2].removesuffix("/nginx").rpartition("/")[2]
        for argument in details.configure_args
        if argument.removeprefix("--").startswith("add-module=")
    )
    # NGINX rejects a file that loads a module which is built in.
    dynamic = "with-stream=dynamic" in {text.removeprefix("--") for text in details.configure_args}
    return Register(
        # Without a path of the main file nothing can be sent, so this NGINX counts as not found.
        details.nginx_id if posixpath.basename(details.conf_path) else "",
        f"nginx/{details.version}",
        (*details.runtime_modules, *added),
        main_file=details.conf_path,
        loadable_modules=tuple(details.loadable_modules) if dynamic else (),
    )


def registered(request: commander_pb2.AgentConnectRequest) -> Register:
    """Parse a registration: the agent's first NGINX, or an empty description with the problem."""
    if not request.details:
        return Register("", "", problem=_unhealthy("its agent finds no process"))
    problem = _problem_of_processes(request.details)
    return msgspec.structs.replace(nginx_of_request(request.details[0]), problem=problem)


def status_events(
    about: Register, status: commander_pb2.DataplaneStatus
) -> Iterator[Register | Health | ApplyResponse]:
    """Yield the events in an agent's regular report: the description of its NGINX, the health of
    the NGINX ``about``, and results of requests."""
    problem = _problem_of_processes(status.details)
    # A described NGINX is new to the agent: its workers may start just now, and the next report
    # comes 30 s later.
    starting = bool(status.details) and not problem
    if starting:
        about = nginx_of_request(status.details[0])
        yield about
    yield Health(problem or _problem_of_health(about, status.healths, starting=starting))
    for activity in status.agent_activity_status:
        outcome = activity.nginx_config_status
        if outcome.status == _OUTCOME.OK:
            yield ApplyResponse(outcome.correlation_id)
        elif outcome.status == _OUTCOME.ERROR:
            yield apply_response(outcome.correlation_id, outcome.message or _WITHOUT_REASON)


def _problem_of_processes(details: Sequence[commander_pb2.NginxDetails]) -> str:
    """Return why the first described NGINX serves nothing, or ""."""
    # An agent describes each process without an NGINX as parent: one master, or all workers that a
    # killed master left. These ignore a reload, which the agent reports as a success.
    processes = [detail for detail in details if detail.nginx_id == details[0].nginx_id]
    return _unhealthy("it has no master process") if len(processes) > 1 else ""


def _problem_of_health(
    about: Register, healths: Sequence[commander_pb2.NginxHealth], *, starting: bool
) -> str:
    """Return why the NGINX ``about`` serves nothing according to its agent, or "". A ``starting``
    one may lack workers."""
    for health in healths:
        if health.nginx_id == about.nginx_id or not about.nginx_id:
            degraded = health.nginx_status == _DEGRADED and not starting
            return _unhealthy(health.degraded_reason or _WITHOUT_REASON) if degraded else ""
    return _unhealthy("its agent finds no process")


def _unhealthy(reason: str) -> str:
    return f"NGINX is not healthy: {reason}"


def apply_response(correlation: str, error: str) -> ApplyResponse:
    """Return the event of a result with a reason, empty for success.

    A reason about a reload is NGINX's line alone: only its start tells what NGINX rejected.
    """
    return ApplyResponse(
        correlation, error.removeprefix(RELOAD_FAILED) or error, quotes_nginx(error)
    )


def commander_error(status: commander_pb2.CommandStatusResponse) -> str | None:
    """Return the error of a failed command, "" for success, or None if it is not final."""
    if status.status == _STATUS.CMD_ERROR:
        return status.error or status.message or _WITHOUT_REASON
    if status.status != _STATUS.CMD_OK or status.message == STILL_VALIDATING:
        return None
    return ""
