"""Filters of a backendRef, which "should be executed if and only if the request is being forwarded
to the backend" (HTTPBackendRef.filters), on real proxies."""

from __future__ import annotations

from pathlib import Path

import pytest

from differential.proxies import Runner
from fakes.authorized_traffic import RUNNERS, served
from fakes.one_route import BACKEND, Object, conditions, engine

PREFIX = {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/to"}
REWRITE = {"type": "URLRewrite", "urlRewrite": {"hostname": "b.test", "path": PREFIX}}
REDIRECT = {"type": "RequestRedirect", "requestRedirect": {
    "path": {"type": "ReplaceFullPath", "replaceFullPath": "/to"}}}  # fmt: skip
CORS = {"type": "CORS", "cors": {"allowOrigins": ["https://a.test"]}}
HEADER = {"type": "RequestHeaderModifier", "requestHeaderModifier": {
    "set": [{"name": "X-A", "value": "1"}]}}  # fmt: skip


def _rule(path: str, *filters: Object, name: str = "s") -> Object:
    return {
        "matches": [{"path": {"type": "PathPrefix", "value": path}}],
        "backendRefs": [BACKEND | {"name": name, "filters": [*filters]}],
    }


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_filters_of_the_only_backend_apply(runner: Runner, tmp_path: Path) -> None:
    rules = [
        _rule("/rewrite", REWRITE, HEADER),
        _rule("/redirect", REDIRECT),
        _rule("/cors", CORS),
        _rule("/broken", REDIRECT, name="nowhere"),
    ]
    async with served(runner, tmp_path, 0, *rules) as proxy:
        status, _, echo = await proxy.send("/rewrite/x?q=1")
        assert (status, echo["target"]) == (200, "/to/x?q=1")
        assert ["host", "b.test"] in echo["headers"]
        assert ["x-a", "1"] in echo["headers"]
        status, headers, _ = await proxy.send("/redirect/x")
        assert (status, headers["location"].partition("a.example")[2]) == (302, ":8080/to")
        _, headers, _ = await proxy.send("/cors", Origin="https://a.test")
        assert headers["access-control-allow-origin"] == "https://a.test"
        # A request that is not forwarded is not redirected either.
        assert (await proxy.send("/broken"))[0] == 500


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            {"backendRefs": [BACKEND | {"filters": [REWRITE]}, BACKEND]},
            "backendRefs[0].filters: only header modifiers are supported for one of several",
        ),
        (
            {"filters": [REWRITE], "backendRefs": [BACKEND | {"filters": [REWRITE]}]},
            "backendRefs[0].filters: the rule has a filter of the same type",
        ),
    ],
)
def test_filters_that_cannot_be_served_are_named(rule: Object, message: str) -> None:
    with engine("HTTPRoute", [rule]).compile() as ask:
        assert message in conditions(ask, "HTTPRoute")
