"""A program that picks endpoints of one InferencePool, for the suite of the inference extension.

It takes the flags of the suite's own picker, whose version 1.6.0 answers request bodies in an order
that the protocol does not allow. Flags that it does not know are ignored. Tests of the suite choose
endpoints with a header field of the request, and read those that served in one of the response.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path

from cryptography import x509
from envoy.config.core.v3 import base_pb2

from fakes.authority import Authority
from fakes.endpoint_pickers import Exchange, Picker, header_option, picking
from gatehouse.apis import resources
from gatehouse.dataplane.endpoints import WeightedEndpoint
from gatehouse.kube import client as kube
from kube_base.types.objects import Object

SELECTION = "test-epp-endpoint-selection"
"""Field of a request with the addresses, or addresses and ports, that may be picked."""

SERVED = "x-conformance-test-served-endpoint"
"""Field of a response with the endpoint that served."""

NAME = "picker.test"
"""Name in the certificate."""


class PoolPicker(Picker):
    """A picker of the ready endpoints of a pool, which takes one after another."""

    def __init__(self, client: kube.Client, namespace: str, name: str) -> None:
        super().__init__("none")
        self._client, self._namespace, self._name = client, namespace, name
        self._turns = itertools.count()

    async def pick(self, headers: Mapping[str, str]) -> str | int:
        """Return an endpoint, or 503 if the pool has none that the request may get."""
        selection = {part.strip() for part in headers.get(SELECTION, "").split(",")} - {""}
        candidates = [
            endpoint.encoded
            for endpoint in await self._endpoints()
            if not selection or selection & {endpoint.address, endpoint.encoded}
        ]
        return candidates[next(self._turns) % len(candidates)] if candidates else 503

    def response_options(self, exchange: Exchange) -> Iterable[base_pb2.HeaderValueOption]:
        """Return the field with the endpoint that served."""
        return (header_option(SERVED, exchange.served),)

    async def _endpoints(self) -> list[WeightedEndpoint]:
        """Read the pool and its Pods for each request, so that no change is missed."""
        try:
            pool = await self._client.get(resources.INFERENCE_POOLS, self._name, self._namespace)
        except kube.NotFound:
            return []
        labels = pool["spec"]["selector"]["matchLabels"]
        pods = await self._client.list(
            resources.PODS,
            self._namespace,
            label_selector=",".join(f"{key}={value}" for key, value in labels.items()),
        )
        return [
            WeightedEndpoint(pod["status"]["podIP"], port["number"])
            for pod in pods.items
            if _is_ready(pod)
            for port in pool["spec"]["targetPorts"]
        ]


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def _certificate() -> tuple[bytes, bytes]:
    """Return a key and a certificate, which clients cannot verify."""
    with tempfile.TemporaryDirectory() as directory:
        certificate, key = Authority(Path(directory)).issue(NAME, x509.DNSName(NAME))
        return key.read_bytes(), certificate.read_bytes()


@contextlib.asynccontextmanager
async def pool_picker(arguments: Sequence[str], kubeconfig: Path) -> AsyncIterator[int]:
    """Serve as the arguments of the program say; yield the port."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--pool-name", required=True)
    parser.add_argument("--pool-namespace", required=True)
    parser.add_argument("--grpc-port", type=int, default=9002)
    parser.add_argument("--secure-serving", choices=("true", "false"), default="true")
    options, _ = parser.parse_known_args(arguments)
    pair = _certificate() if options.secure_serving == "true" else None
    async with kube.Client.from_kubeconfig(kubeconfig) as client:
        picker = PoolPicker(client, options.pool_namespace, options.pool_name)
        async with picking(picker, "0.0.0.0", pair, options.grpc_port) as port:
            yield port


async def _main(arguments: Sequence[str]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with pool_picker(arguments, Path(os.environ["KUBECONFIG"])):
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1:]))
