"""Ownership of names while the controller is killed.

The API server of this installation does not check names, as that of a cluster without the check. So
only the controller prevents that the owner of an older UpstreamCluster takes a live hostname.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import signal
import ssl
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from fakes import patience
from fakes.authority import Authority
from fakes.durations import pace
from fakes.installation import Installation, apply
from fakes.patience import until
from fakes.upstream_worlds import ca, cluster, gateway, secret
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone import process_records

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

Object = dict[str, Any]
OLD, YOUNG, SHARED = "old.example", "young.example", "api.example"
PORT = 6443
UNCHECKED = """
import sys

if "apiserver" in sys.orig_argv:
    from gatehouse.apiserver_extension import name_conflicts

    name_conflicts.register_name_checks = lambda *_: None
"""


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    start_up = tmp_path_factory.mktemp("start-up")
    (start_up / "sitecustomize.py").write_text(UNCHECKED)
    # Short, for the sake of Unix sockets.
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        result = Installation(Path(directory))
        result.environment = {**os.environ, "PYTHONPATH": str(start_up)}
        result.start()
        yield result
        result.stop()


class Owners:
    """UpstreamClusters with a certificate each."""

    def __init__(self, client: kube.Client, directory: Path) -> None:
        self.certificates: dict[bytes, str] = {}
        """Names of clusters by the certificate that they serve, in DER."""
        self._client, self._authority = client, Authority(directory)
        self._pairs: dict[str, tuple[str, str]] = {}

    def spec(self, name: str, *more: str) -> Object:
        """Return a cluster with its certificate, which covers the shared name, too."""
        if name not in self._pairs:
            names = (x509.DNSName(name), x509.DNSName(SHARED))
            certificate, key = (path.read_bytes() for path in self._authority.issue(name, *names))
            self.certificates[ssl.PEM_cert_to_DER_cert(certificate.decode())] = name
            encoded = (base64.b64encode(part).decode() for part in (certificate, key))
            self._pairs[name] = (next(encoded), next(encoded))
        cert_data, key_data = self._pairs[name]
        serving = {"certData": cert_data, "keyData": key_data, "serverNames": list(more)}
        return cluster(name, secureServing=serving)

    async def owned(self, name: str) -> set[str]:
        """Return the recorded hostnames of a cluster."""
        current = await self._client.get(resources.UPSTREAM_CLUSTERS, name)
        owned = (current.get("status") or {}).get("ownedHosts") or ()
        return {host for entry in owned for host in entry["hosts"]}

    async def conflict(self, name: str) -> str:
        """Return the messages about the shared name in the conditions of a cluster."""
        current = await self._client.get(resources.UPSTREAM_CLUSTERS, name)
        conditions = (current.get("status") or {}).get("conditions") or ()
        return " ".join(one["message"] for one in conditions if SHARED in one["message"])


async def answering_cluster(owners: Owners, address: str, name: str) -> str:
    """Return the cluster that serves a hostname, by its certificate. Raises OSError."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with patience.limit():
        _, writer = await asyncio.open_connection(address, PORT, ssl=context, server_hostname=name)
    try:
        return owners.certificates[writer.get_extra_info("ssl_object").getpeercert(True)]
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def connecting(owners: Owners, address: str) -> AsyncIterator[Counter[str]]:
    """Connect to the shared name all the time, and count who answers."""
    answers: Counter[str] = Counter()

    async def connect() -> None:
        while True:
            try:
                answers[await answering_cluster(owners, address, SHARED)] += 1
            except (OSError, TimeoutError) as error:
                answers[type(error).__name__] += 1
            await pace(0.02)

    task = asyncio.create_task(connect())
    try:
        yield answers
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def without_controller(installation: Installation) -> AsyncIterator[None]:
    """Kill the controller, and let nothing restart it for a while."""
    assert installation.process is not None
    controller = installation.part("controller")
    installation.process.send_signal(signal.SIGSTOP)
    try:
        controller.signal(signal.SIGKILL)
        while controller.alive():
            await patience.pause()
        yield
        assert process_records.recorded(installation.state / "run" / "controller.json") is None
    finally:
        installation.process.send_signal(signal.SIGCONT)


async def test_owner_keeps_live_hostname_when_older_cluster_claims_it_while_controller_is_killed(
    installation: Installation, tmp_path: Path
) -> None:
    async with installation.client() as client:
        owners = Owners(client, tmp_path)
        await apply(client, [gateway("envoy"), secret(ca())])
        old = await client.create(resources.UPSTREAM_CLUSTERS, owners.spec(OLD))
        # Creation times have whole seconds.
        created = datetime.fromisoformat(old["metadata"]["creationTimestamp"])
        await until(lambda: datetime.now(UTC) - created > timedelta(seconds=1))
        await client.create(resources.UPSTREAM_CLUSTERS, owners.spec(YOUNG, SHARED))

        async def address() -> str:
            status = (await client.get(resources.GATEWAYS, "envoy", "default")).get("status") or {}
            return str((status.get("addresses") or [{}])[0].get("value", ""))

        where = await until(address)

        async def is_served() -> bool:
            with contextlib.suppress(OSError):
                return await answering_cluster(owners, where, SHARED) == YOUNG
            return False

        await until(is_served)
        assert SHARED in await owners.owned(YOUNG)
        async with connecting(owners, where) as answers:
            async with without_controller(installation):
                edit = owners.spec(OLD, SHARED)["spec"]
                await client.patch(resources.UPSTREAM_CLUSTERS, OLD, {"spec": edit})
            message = await until(lambda: owners.conflict(OLD))
            assert f"already used by UpstreamCluster {YOUNG}" in message
            # Once more, with the conflict in place.
            async with without_controller(installation):
                pass
            await client.create(resources.UPSTREAM_CLUSTERS, owners.spec("next.example"))

            async def next_is_served() -> bool:
                return "next.example" in await owners.owned("next.example")

            await until(next_is_served)
            before = answers.total()
            await until(lambda: _more(answers, before))
        assert answers.keys() == {YOUNG}
        assert SHARED in await owners.owned(YOUNG)
        assert SHARED not in await owners.owned(OLD)


async def _more(answers: Counter[str], before: int) -> bool:
    return answers.total() > before + 20
