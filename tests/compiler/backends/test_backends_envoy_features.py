"""Features of routes in Envoy: one list, which holds for every kind of answer."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from envoy.config.core.v3 import extension_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from msgspec.structs import replace

from fakes import envoy_serving
from fakes.kinds_of_answers import HOST, KINDS_OF_ANSWERS, gateway_of_kinds
from gatehouse.compiler.backends.envoy import EnvoyCapabilities, features, route_filters
from gatehouse.compiler.backends.envoy.protobufs import packed
from gatehouse.compiler.backends.envoy.route_context import (
    EnvoyFeature,
    EnvoyPiece,
    EnvoyRouteContext,
)
from gatehouse.compiler.backends.envoy.routes import envoy_routes
from gatehouse.compiler.backends.route_features import Phase, RouteFeatures
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import ExternalAuth
from gatehouse.compiler.ir.unsupported import Unsupported

REJECTED = 418
PAGE = "http://page.example"
EDIT = ir.HeaderEdit(set=(ir.HeaderValue("x-edit", "set"),))
ROUTES: dict[str, dict[str, Any]] = {
    "plain": {},
    "edited": {"request_headers": EDIT, "response_headers": EDIT},
    "shared": {"cors": ir.Cors((PAGE,), methods=("GET",))},
}
"""Fields of the routes of all kinds."""

CHECKS = (Phase.LIMITS, Phase.AUTHORIZATION, Phase.AUTHENTICATION)


def rejecting_filter() -> extension_pb2.TypedExtensionConfig:
    proto = fault_pb2.HTTPFault()
    proto.abort.http_status = REJECTED
    proto.abort.percentage.numerator = 100
    return extension_pb2.TypedExtensionConfig(
        name="envoy.filters.http.fault", typed_config=packed(proto)
    )


def reject_everything(phase: Phase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a feature that rejects every request, as the last one of a phase."""
    rejecting = EnvoyFeature(
        "rejection", phase, lambda _context, _route: EnvoyPiece(filters=[rejecting_filter()])
    )
    known = features.ENVOY_ROUTE_FEATURES.records
    listed = sorted((*known, rejecting), key=lambda feature: feature.phase)
    monkeypatch.setattr(features, "ENVOY_ROUTE_FEATURES", RouteFeatures(listed))


def envoy_routes_of(route: ir.Route) -> tuple[list[components.Route], list[Unsupported]]:
    """Return the Envoy routes of a route, and the findings about it."""
    clusters = {name: ir.Cluster(name, ()) for name in route.clusters}
    unsupported: list[Unsupported] = []
    context = EnvoyRouteContext(clusters, {}, EnvoyCapabilities())
    return envoy_routes(context, route, unsupported), unsupported


def places_of(proto: components.Route) -> bytes:
    """Return the filters of a route, in their order."""
    places = (route_filters.AUTHORIZATION_FILTER, route_filters.GUARD_FILTER)
    return b"".join(proto.typed_per_filter_config[place].value for place in places)


async def statuses(served: envoy_serving.Served) -> dict[str, set[int]]:
    """Return the statuses of several requests of each kind."""
    result: dict[str, set[int]] = {}
    for name in KINDS_OF_ANSWERS:
        answers = [
            await served.ask(HOST, f"/{name}", method=method, headers={"Origin": PAGE})
            for method in ("GET", "GET", "POST", "HEAD")
        ]
        result[name] = {status for status, _, _ in answers}
    return result


def test_features_are_in_the_order_of_their_phases() -> None:
    phases = [feature.phase for feature in features.ENVOY_ROUTE_FEATURES.records]
    assert phases == sorted(phases)
    listed = [feature.name for feature in features.ENVOY_ROUTE_FEATURES.records]
    assert len(set(listed)) == len(listed)


@contextlib.asynccontextmanager
async def answering(fields: dict[str, Any]) -> AsyncIterator[envoy_serving.Served]:
    """Serve a route of each kind with these fields."""
    async with envoy_serving.backend("open") as open_backend:
        gateway = gateway_of_kinds(open_backend, functools.partial(replace, **fields))
        async with envoy_serving.serving(gateway) as served:
            yield served


@pytest.mark.process
@pytest.mark.parametrize("variant", ROUTES)
async def test_kinds_of_answers_have_their_own_statuses(variant: str) -> None:
    """Without a feature that rejects them, so that the test below can fail for each."""
    async with answering(ROUTES[variant]) as served:
        for name, answered in (await statuses(served)).items():
            assert answered <= {*KINDS_OF_ANSWERS[name].statuses}, name


@pytest.mark.process
@pytest.mark.parametrize("phase", CHECKS)
@pytest.mark.parametrize("variant", ROUTES)
async def test_feature_that_rejects_everything_rejects_every_kind_of_answer(
    variant: str, phase: Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    reject_everything(phase, monkeypatch)
    async with answering(ROUTES[variant]) as served:
        assert await statuses(served) == {name: {REJECTED} for name in KINDS_OF_ANSWERS}
        for name in KINDS_OF_ANSWERS:
            call = {"Content-Type": "application/grpc"}
            _, headers, _ = await served.ask(HOST, f"/{name}", method="POST", headers=call)
            assert headers["grpc-status"] == "2", name


@pytest.mark.parametrize("phase", CHECKS)
@pytest.mark.parametrize("name", KINDS_OF_ANSWERS)
def test_preflight_requests_alone_pass_a_feature_that_rejects_everything(
    name: str, phase: Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Browsers send preflight requests without credentials, so that no check may reject them."""
    reject_everything(phase, monkeypatch)
    action = KINDS_OF_ANSWERS[name].action
    generated, unsupported = envoy_routes_of(
        ir.Route("ns/r/0/0", ir.Match(), action, **ROUTES["shared"])
    )
    assert not unsupported
    rejecting = packed(rejecting_filter()).value
    passing = [proto for proto in generated if rejecting not in places_of(proto)]
    assert [proto.direct_response.status for proto in passing] == [204, 204]
    assert len(generated) > len(passing)


def test_filter_that_envoy_would_skip_is_a_defect_and_its_route_is_not_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Envoy skips the filters of a place after one that waits for a response."""
    auth = ExternalAuth(cluster="server", protocol="http")
    route = ir.Route("ns/r/0/0", ir.Match(), ir.Respond(404), external_auth=auth)
    reject_everything(Phase.AUTHORIZATION, monkeypatch)
    (failed,), (finding,) = envoy_routes_of(route)
    assert failed.direct_response.status == 500
    assert "skip" in finding.reason


@pytest.mark.parametrize(("first", "second"), [*itertools.pairwise(CHECKS)])
def test_places_of_filters_are_in_the_order_of_their_phases(first: Phase, second: Phase) -> None:
    """The first place of every chain has the filters up to authorization, if a route has any."""
    proto = components.Route()
    route_filters.place_filters(
        proto,
        [
            (first, EnvoyPiece(filters=[extension_pb2.TypedExtensionConfig(name="first")])),
            (second, EnvoyPiece(filters=[extension_pb2.TypedExtensionConfig(name="second")])),
        ],
    )
    written = places_of(proto)
    assert written.index(b"first") < written.index(b"second")
