"""Requests of the control plane that read or change upstreams of NGINX Plus directly.

Gatehouse's control plane sends endpoints as files instead; other control planes send these.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from google.protobuf import json_format, struct_pb2

from gatehouse.agent.nginx.apply_steps import ApplyResult
from gatehouse.agent.nginx.plus.client import Api, PlusApiError
from gatehouse.agent.nginx.plus.upstreams import synchronise_servers
from gatehouse.wire.mpi.v1 import command_pb2

_INTEGERS = ("weight", "max_conns", "max_fails")


async def act(socket: Path, action: command_pb2.NGINXPlusAction) -> ApplyResult:
    """Execute an action. The response is that of NGINX Agent."""
    try:
        return ApplyResult(await _act(Api(socket), action))
    except PlusApiError as error:
        return ApplyResult("", str(error))


async def _act(api: Api, action: command_pb2.NGINXPlusAction) -> str:
    match action.WhichOneof("action"):
        case "update_http_upstream_servers":
            http = action.update_http_upstream_servers
            await synchronise_servers(api, "http", http.http_upstream_name, _servers(http.servers))
            return "Successfully updated HTTP Upstreams"
        case "update_stream_servers":
            stream = action.update_stream_servers
            await synchronise_servers(
                api, "stream", stream.upstream_stream_name, _servers(stream.servers)
            )
            return "Successfully updated stream upstream servers"
        case "get_http_upstream_servers":
            name = action.get_http_upstream_servers.http_upstream_name
            return _text(await api.get("http", "upstreams", name, "servers"))
        case "get_upstreams":
            return _text(await api.get("http", "upstreams"))
        case "get_stream_upstreams":
            return _text(await api.get("stream", "upstreams"))
        case other:
            raise PlusApiError(f"{other} is not supported by this agent")


def _servers(structs: Iterable[struct_pb2.Struct]) -> list[dict[str, Any]]:
    """Return the servers of an action. Integers replace the floating point numbers of a Struct."""
    servers = []
    for struct in structs:
        server = json_format.MessageToDict(struct)
        if not isinstance(server.get("server"), str):
            raise PlusApiError(f'"server" missing in {server}')
        server |= {key: int(server[key]) for key in _INTEGERS if key in server}
        servers.append(server)
    return servers


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
