"""The recorded responses of the kube-apiserver that other tests compare with."""

from __future__ import annotations

import ssl

import aiohttp
import pytest

from fakes import peers
from fakes.kube_apiserver import KubeApiserver
from fakes.kube_parity import comparison

RECORDED = "v1.34.3"

pytestmark = [pytest.mark.long, pytest.mark.process, pytest.mark.peers]


async def test_recorded_responses_are_those_of_a_kube_apiserver(
    kube_apiserver: KubeApiserver, request: pytest.FixtureRequest
) -> None:
    if peers.KUBERNETES != RECORDED:
        pytest.skip(f"the recorded responses are those of Kubernetes {RECORDED}")
    context = ssl.create_default_context(cafile=str(kube_apiserver.authority))
    context.load_cert_chain(*kube_apiserver.administrator)
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(kube_apiserver.url, connector=connector) as session:
        await comparison.prepare(session)
        observed = await comparison.collect(session)
    if request.config.getoption("--peers-report"):
        comparison.write_record(observed)
    differences = comparison.differences(comparison.read_record(), observed)
    assert not differences, "\n".join(map(str, differences))
