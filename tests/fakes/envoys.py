"""A real Envoy that gets all resources from :mod:`ads`."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
from envoy.config.listener.v3 import listener_pb2

from fakes import ads
from gatehouse.dataplane.xds.resources import LISTENER_TYPE_URL, ResourceSet, XdsResource
from gatehouse.dataplane.xds.runtime_limits import runtime_layers

ENVOY = Path(__file__).parents[2] / ".venv/bin/envoy"

_HTTP = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


class Envoy(msgspec.Struct, frozen=True):
    """A process, who tells it what to do, and what it says."""

    process: asyncio.subprocess.Process
    ads: ads.Ads
    log: Path
    admin: Path


def bootstrap(port: int, admin: Path) -> dict[str, Any]:
    """Return the bootstrap configuration of an Envoy with ADS on ``port``."""
    source = {"ads": {}, "resource_api_version": "V3"}
    where = {"address": "127.0.0.1", "port_value": port}
    hosts = [{"endpoint": {"address": {"socket_address": where}}}]
    options = {
        "@type": f"type.googleapis.com/{_HTTP}",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    cluster = {
        "name": "ads",
        "type": "STATIC",
        "typed_extension_protocol_options": {_HTTP: options},
        "load_assignment": {"cluster_name": "ads", "endpoints": [{"lb_endpoints": hosts}]},
    }
    stream = {
        "api_type": "DELTA_GRPC",
        "transport_api_version": "V3",
        "grpc_services": [{"envoy_grpc": {"cluster_name": "ads"}}],
    }
    return {
        "node": {"id": "envoy", "cluster": "tests"},
        "admin": {"address": {"pipe": {"path": str(admin)}}},
        "dynamic_resources": {
            "lds_config": source,
            "cds_config": source,
            "ads_config": stream,
        },
        "static_resources": {"clusters": [cluster]},
        "deferred_stat_options": {"enable_deferred_creation_stats": True},
        "layered_runtime": runtime_layers(),
    }


def on_free_ports(resources: ResourceSet) -> ResourceSet:
    """Return resources whose listeners use ports that the kernel chooses."""
    result: list[XdsResource] = []
    for kind, named in resources.by_type.items():
        for resource in named.values():
            if kind == LISTENER_TYPE_URL:
                listener = listener_pb2.Listener.FromString(resource.body)
                if listener.address.HasField("socket_address"):
                    listener.address.socket_address.port_value = 0
                resource = XdsResource.make(kind, resource.name, listener.SerializeToString())
            result.append(resource)
    return ResourceSet(result)


@contextlib.asynccontextmanager
async def running(
    directory: Path,
    level: str = "warning",
    *,
    workers: int = 1,
    output: Path | None = None,
    drain: int = 600,
) -> AsyncIterator[Envoy]:
    """Run an Envoy for a while; ``directory`` must have a short name, for a socket is in it.

    ``output``: the file of its standard output, such as access logs.
    ``drain``: seconds after which it closes connections of removed listeners.
    """
    async with ads.serving() as (service, port):
        admin, log = directory / "admin.sock", directory / "envoy.log"
        (directory / "envoy.json").write_text(json.dumps(bootstrap(port, admin)))
        written = output.open("wb") if output is not None else None
        process = await asyncio.create_subprocess_exec(
            str(ENVOY), "-c", str(directory / "envoy.json"), "--disable-hot-restart",
            "--concurrency", str(workers), "--file-flush-interval-msec", "50",
            "--drain-time-s", str(drain), "--drain-strategy", "immediate",
            "--log-level", level, "--log-path", str(log),
            cwd=directory, stdout=written,
        )  # fmt: skip
        try:
            yield Envoy(process, service, log, admin)
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
            if written is not None:
                written.close()
