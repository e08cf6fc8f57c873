"""The recorded responses of the kube-apiserver that other tests compare with."""

from __future__ import annotations

import asyncio
import ssl

import aiohttp
import pytest

from fakes import peers
from fakes.kube_apiserver import KubeApiserver
from fakes.kube_parity import comparison
from fakes.kube_parity.comparison import Record
from fakes.kube_protobuf import samples
from fakes.kube_protobuf.samples import ProtobufSample

RECORDED = "v1.34.3"

pytestmark = [pytest.mark.long, pytest.mark.process, pytest.mark.peers]


@pytest.fixture(scope="module")
def observed(kube_apiserver: KubeApiserver) -> tuple[Record, list[ProtobufSample]]:
    """Responses to all requests of the table, and then samples of protobuf."""
    if peers.KUBERNETES != RECORDED:
        pytest.skip(f"the recorded responses are those of Kubernetes {RECORDED}")
    return asyncio.run(observe(kube_apiserver))


async def observe(server: KubeApiserver) -> tuple[Record, list[ProtobufSample]]:
    context = ssl.create_default_context(cafile=str(server.authority))
    context.load_cert_chain(*server.administrator)
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(server.url, connector=connector) as session:
        await comparison.prepare(session)
        record = await comparison.collect(session)
        return record, await samples.observe(session)


def test_recorded_responses_are_those_of_a_kube_apiserver(
    observed: tuple[Record, list[ProtobufSample]], request: pytest.FixtureRequest
) -> None:
    record, _ = observed
    if request.config.getoption("--peers-report"):
        comparison.write_record(record)
    differences = comparison.differences(comparison.read_record(), record)
    assert not differences, "\n".join(map(str, differences))


def test_protobuf_has_the_bytes_of_a_kube_apiserver(
    observed: tuple[Record, list[ProtobufSample]], request: pytest.FixtureRequest
) -> None:
    _, observed_samples = observed
    if request.config.getoption("--peers-report"):
        samples.write(samples.representative(observed_samples))
    different = [sample.name for sample in observed_samples if sample.encoded() != sample.protobuf]
    assert not different
    assert len(observed_samples) > 250
