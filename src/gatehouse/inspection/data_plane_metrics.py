"""Metrics pages of controllers and data planes: read from the Pod, or through the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import aiohttp
import msgspec

from gatehouse.kube import client as kube
from kube_base.runtime.time_limits import scaled
from kube_base.types.ip_addresses import bracketed
from kube_base.types.objects import Object

_PORT_ANNOTATION = "prometheus.io/port"
_TIMEOUT_SECONDS = scaled(2.0)


class MetricsPage(msgspec.Struct, frozen=True):
    """The metrics of one process."""

    pod: str
    """``namespace/name``, or the URL if there is no Pod."""
    text: str = ""
    problem: str = ""
    """Reason why there is no text."""


class MetricsReader:
    """Reads the pages of Pods. A page that is not reachable directly is read through the API server
    from then on."""

    def __init__(self, client: kube.Client) -> None:
        self._client = client
        self._unreachable: set[str] = set()

    async def read(self, pods: Iterable[Object]) -> list[MetricsPage]:
        """Return the pages of Pods, in their order."""
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            return await asyncio.gather(*(self._page(session, pod) for pod in pods))

    async def read_url(self, url: str) -> MetricsPage:
        """Return the page of a process that runs in no Pod."""
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as page:
                return MetricsPage(url, await page.text())
        except (aiohttp.ClientError, TimeoutError, UnicodeDecodeError):
            return MetricsPage(url, problem=f"{url} is not reachable")

    async def _page(self, session: aiohttp.ClientSession, pod: Object) -> MetricsPage:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        full_name, url = f"{namespace}/{name}", metrics_url(pod)
        if not url:
            return MetricsPage(full_name, problem="has no address yet")
        if url not in self._unreachable:
            try:
                async with session.get(url) as response:
                    return MetricsPage(full_name, await response.text())
            except (aiohttp.ClientError, TimeoutError, UnicodeDecodeError):
                self._unreachable.add(url)
        try:
            text = await self._client.get_from_pod(namespace, name, _port(pod), "metrics")
        except kube.ApiError as error:
            return MetricsPage(full_name, problem=f"{url} is not reachable, {error}")
        return MetricsPage(full_name, text)


async def read_pages(kubeconfig: Path, pods: Iterable[Object]) -> list[MetricsPage]:
    """Return the pages of Pods, in their order. Raises ConfigError."""
    async with kube.Client.from_kubeconfig(kubeconfig) as client:
        return await MetricsReader(client).read(pods)


def metrics_url(pod: Object) -> str:
    """Return the URL of the metrics of a Pod; empty if it has no address or port yet."""
    address = (pod.get("status") or {}).get("podIP", "")
    return f"http://{bracketed(address)}:{_port(pod)}/metrics" if _port(pod) and address else ""


def _port(pod: Object) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(_PORT_ANNOTATION, ""))
