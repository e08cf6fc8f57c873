"""Clients of the agents' channel, through every protocol, with credentials that prove too little.

The API server, the controller and its gRPC server are real. Whatever the credential is: a call of
NGINX Agent v2, of NGINX Agent v3 and of an Envoy is denied unless the token is valid now, is meant
for this channel and belongs to a data plane. A valid token gets the configuration of its own
Gateway only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import jwt
import pytest
from envoy.service.discovery.v3 import discovery_pb2

from fakes import patience
from fakes.agent_v2 import AgentV2, Config, channel, unzip
from fakes.agent_v3 import Claimant
from fakes.cluster_without_pods import Cluster, client, cluster, give_address, token
from fakes.installation import apply, hello
from fakes.loopback import free_port
from fakes.patience import limit, until
from gatehouse.apis import resources
from gatehouse.controller.options import SERVER_NAME
from gatehouse.kube import client as kube
from gatehouse.transports.agents.token_auth import Identity, TokenReviews
from gatehouse.transports.xds.services import ADS_SERVICE
from kube_api_server.identity import signing_keys

__all__ = ["client", "cluster"]

pytestmark = pytest.mark.process

Code = grpc.StatusCode
Credential = Callable[[kube.Client], Awaitable[str]]


async def valid(client: kube.Client) -> str:
    return await token(client, "web", "pod-valid")


async def no_token(client: kube.Client) -> str:
    return ""


async def words(client: kube.Client) -> str:
    return "not a token"


async def of_other_audience(client: kube.Client) -> str:
    return await token(client, "web", "pod-audience", "other.example")


async def of_the_api_server(client: kube.Client) -> str:
    result, _ = await client.create_token("default", "web-gatehouse-nginx", [], 3600)
    return result


async def of_no_data_plane(client: kube.Client) -> str:
    await client.create(
        resources.SERVICE_ACCOUNTS, {"metadata": {"name": "x", "namespace": "default"}}
    )
    result, _ = await client.create_token("default", "x", [SERVER_NAME], 3600)
    return result


async def of_a_deleted_pod(client: kube.Client) -> str:
    result = await token(client, "web", "pod-deleted")
    await client.delete(resources.PODS, "pod-deleted", "default")
    return result


async def expired(client: kube.Client) -> str:
    return await _signed(client, exp=int(time.time()) - 60)


async def not_valid_yet(client: kube.Client) -> str:
    return await _signed(client, nbf=int(time.time()) + 600)


async def unsigned(client: kube.Client) -> str:
    return jwt.encode(await _claims(client), "", algorithm="none")


async def _claims(client: kube.Client) -> dict[str, Any]:
    good, _ = await client.create_token("default", "web-gatehouse-nginx", [SERVER_NAME], 3600)
    return dict(jwt.decode(good, options={"verify_signature": False}))


async def _signed(client: kube.Client, **changed: int) -> str:
    """Return a token of a data plane with other times, signed by the API server's key."""
    ring = signing_keys.Keys()
    ring.load(dict(await client.get(resources.SECRETS, "gatehouse-token-keys", "kube-system")))
    headers = {"kid": ring.signing.id}
    claims = await _claims(client) | changed
    return jwt.encode(claims, ring.signing.private, algorithm="ES256", headers=headers)


DENIED: dict[Credential, Code] = {
    no_token: Code.UNAUTHENTICATED,
    words: Code.UNAUTHENTICATED,
    of_other_audience: Code.UNAUTHENTICATED,
    of_the_api_server: Code.UNAUTHENTICATED,
    # The Gateway may be new, so that the agent tries again.
    of_no_data_plane: Code.UNAVAILABLE,
    of_a_deleted_pod: Code.UNAUTHENTICATED,
    expired: Code.UNAUTHENTICATED,
    not_valid_yet: Code.UNAUTHENTICATED,
    unsigned: Code.UNAUTHENTICATED,
}


@pytest.fixture
async def ports(cluster: Cluster, client: kube.Client) -> AsyncIterator[dict[str, int]]:
    """Yield the ports of two Gateways, whose configurations are published."""
    result = {"web": free_port(), "other": free_port()}
    async with cluster.controller():
        for name, port in result.items():
            gateway = hello()[0]
            gateway["metadata"]["name"] = name
            gateway["spec"]["listeners"][0]["port"] = port
            await apply(client, [gateway])
            await give_address(client, name)
        yield result


class Caller:
    """Calls the channel by each protocol with one token."""

    def __init__(self, cluster: Cluster, token: str) -> None:
        self._cluster, self.token = cluster, token
        self.applied: asyncio.Queue[Config] = asyncio.Queue()

    async def apply(self, config: Config) -> str:
        self.applied.put_nowait(config)
        return ""

    def channel(self) -> grpc.aio.Channel:
        return channel(self._cluster.port, self._cluster.ca, SERVER_NAME)

    async def codes(self) -> dict[str, Code]:
        """Return the status with which each call ends."""
        result = {}
        async with self.channel() as opened:
            commander = AgentV2(opened, self.token, self.apply)
            async with commander.connected(registers=False):
                result["v2 commands"] = await commander.ended()
            for name, call in {
                "v2 download": commander.download("anything"),
                "v3 connection": Claimant(opened, self.token, {}).connect(),
                "v3 file": Claimant(opened, self.token, {}).file("anything"),
                "xDS": self._discover(opened),
            }.items():
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await call
                result[name] = error.value.code()
        return result

    async def _discover(self, opened: grpc.aio.Channel) -> None:
        method: Any = opened.stream_stream(
            f"/{ADS_SERVICE}/DeltaAggregatedResources",
            request_serializer=discovery_pb2.DeltaDiscoveryRequest.SerializeToString,
            response_deserializer=discovery_pb2.DeltaDiscoveryResponse.FromString,
        )
        call = method(metadata=(("authorization", self.token),), timeout=patience.SECONDS)
        await call.read()


@pytest.mark.parametrize("credential", DENIED, ids=lambda one: one.__name__)
async def test_insufficient_credential_is_denied_by_every_protocol(
    cluster: Cluster, client: kube.Client, ports: dict[str, int], credential: Credential
) -> None:
    await token(client, "web")
    codes = await Caller(cluster, await credential(client)).codes()
    assert codes == dict.fromkeys(codes, DENIED[credential])


async def test_valid_token_gets_the_configuration_of_its_gateway_only(
    cluster: Cluster, client: kube.Client, ports: dict[str, int]
) -> None:
    for name, port in ports.items():
        caller = Caller(cluster, await token(client, name, f"pod-{name}"))
        async with caller.channel() as opened:
            agent = AgentV2(opened, caller.token, caller.apply)
            async with agent.connected(), limit():
                config = await caller.applied.get()
        text = b"".join(content for content, _ in unzip(config["zconfig"]).values())
        foreign = next(other for other in ports.values() if other != port)
        assert f":{port}".encode() in text or f" {port}".encode() in text
        assert str(foreign).encode() not in text


async def test_token_of_a_deleted_pod_is_denied_within_the_lifetime_of_reviews(
    cluster: Cluster, client: kube.Client, ports: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gatehouse.transports.agents.token_auth.REVIEW_TTL_SECONDS", 1.0)
    own = await token(client, "web", "pod-removed")
    async with channel(cluster.port, cluster.ca, SERVER_NAME) as opened:
        claimant = Claimant(opened, own, {})
        await until(lambda: accepted(claimant))
        await client.delete(resources.PODS, "pod-removed", "default")

        async def denied() -> bool:
            return not await accepted(claimant)

        await until(denied)


async def test_open_streams_of_a_deleted_pod_end(
    cluster: Cluster, client: kube.Client, ports: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gatehouse.transports.agents.token_auth.REVIEW_TTL_SECONDS", 0.1)
    monkeypatch.setattr("gatehouse.transports.agents.call_auth.RECHECK_SECONDS", 0.5)
    reviewed: list[str] = []
    review = TokenReviews._review

    async def recorded(self: TokenReviews, key: bytes, token: str) -> Identity:
        identity = await review(self, key, token)
        reviewed.append(identity.instance)
        return identity

    monkeypatch.setattr(TokenReviews, "_review", recorded)
    caller = Caller(cluster, await token(client, "web", "pod-streams"))
    async with caller.channel() as opened:
        agent = AgentV2(opened, caller.token, caller.apply)
        envoy: Any = opened.stream_stream(
            f"/{ADS_SERVICE}/DeltaAggregatedResources",
            request_serializer=discovery_pb2.DeltaDiscoveryRequest.SerializeToString,
            response_deserializer=discovery_pb2.DeltaDiscoveryResponse.FromString,
        )
        async with agent.connected(), limit():
            await caller.applied.get()
            discovery = envoy(metadata=(("authorization", caller.token),))
            await discovery.initial_metadata()
            several = len(reviewed) + 4
            await until(lambda: len(reviewed) >= several)
            assert not discovery.done()
            await client.delete(resources.PODS, "pod-streams", "default")
            assert await agent.ended() is Code.UNAVAILABLE
            assert await discovery.code() is Code.UNAVAILABLE


async def accepted(claimant: Claimant) -> bool:
    """Return whether a connection is accepted."""
    try:
        await claimant.connect()
    except grpc.aio.AioRpcError as error:
        if error.code() in (Code.UNAVAILABLE, Code.UNAUTHENTICATED):
            return False
        raise
    return True
