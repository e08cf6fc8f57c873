"""Operation: health, metrics, audit log, limits."""

from __future__ import annotations

import asyncio
import io
import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fakes import patience
from fakes.inprocess import Server
from gatehouse.standalone.state_directory import State
from kube_api_server.fairness import seats
from kube_api_server.http import watches
from kube_api_server.http.handler import Limits
from kube_api_server.storage import store as stores
from kube_api_server.storage.store import ObjectStore

MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


async def sample(http: aiohttp.ClientSession, name: str, **labels: str) -> float:
    async with http.get("/metrics") as response:
        assert response.content_type == "text/plain"
        text = await response.text()
    return sum(
        metric_sample.value
        for family in text_string_to_metric_families(text)
        for metric_sample in family.samples
        if metric_sample.name == name and labels.items() <= metric_sample.labels.items()
    )


async def test_health_endpoints_list_their_checks(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server.raw(Authorization="none") as http:
        async with http.get("/readyz?verbose") as response:
            assert (await response.text()).splitlines() == [
                "[+]ping ok", "[+]storage ok", "[+]bootstrap ok", "readyz check passed",
            ]  # fmt: skip
        async with http.get("/livez") as response:
            assert await response.text() == "ok"
        async with http.get("/readyz/storage") as response:
            assert response.status == 200
        async with http.get("/readyz/nothing") as response:
            assert response.status == 404
        async with http.get("/version") as response:
            document = await response.json()
            assert (document["major"], "+gatehouse." in document["gitVersion"]) == ("1", True)


async def test_failing_storage_fails_readyz_but_not_livez(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: ObjectStore) -> None:
        raise RuntimeError("disk full")

    from kube_api_server.storage.sqlite.store import SqliteStore

    monkeypatch.setattr(SqliteStore, "check", fails)
    server = Server(State(tmp_path / "s"))
    async with server.running(), server.raw() as http:
        async with http.get("/readyz") as response:
            assert response.status == 500
            assert "[-]storage failed: disk full" in await response.text()
        async with http.get("/readyz?exclude=storage") as response:
            assert response.status == 200
        async with http.get("/livez") as response:
            assert response.status == 200


async def test_request_metrics_have_names_of_kubernetes(server: Server) -> None:
    async with server.raw() as http:
        async with http.post(MAPS, json=config_map("a")) as response:
            assert response.status == 201
        async with http.get(f"{MAPS}/none") as response:
            assert response.status == 404
        labels = {"resource": "configmaps", "version": "v1", "scope": "resource"}
        assert await sample(http, "apiserver_request_total", verb="GET", code="404", **labels) == 1
        seconds = "apiserver_request_duration_seconds_count"
        assert await sample(http, seconds, verb="POST", resource="configmaps") == 1
        assert await sample(http, "apiserver_storage_objects", resource="configmaps") == 1
        revision = await sample(http, "gatehouse_apiserver_storage_revision")
        async with http.get(MAPS, params={"watch": "1"}) as stream:
            await stream.content.readline()
            assert await sample(http, "apiserver_longrunning_requests", verb="WATCH") == 1
        assert revision > 0


async def test_audit_log_records_user_request_and_result(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    server = Server(State(tmp_path / "s"), audit_log=log)
    async with server.running():
        async with server.raw() as http:
            async with http.post(MAPS, json=config_map("a", secret="never logged")) as response:
                assert response.status == 201
            async with http.get(MAPS) as response:
                assert response.status == 200
            headers = {"Impersonate-User": "mallory", "User-Agent": "probe/1"}
            async with http.delete(f"{MAPS}/a", headers=headers) as response:
                assert response.status == 403
        async with server.raw(Authorization="Bearer wrong") as http, http.get(MAPS) as response:
            assert response.status == 401
    assert log.stat().st_mode & 0o777 == 0o600
    assert "never logged" not in log.read_text()
    created, refused = [json.loads(line) for line in log.read_text().splitlines()]
    assert created["user"]["username"] == "gatehouse-admin"
    assert created["verb"] == "create"
    assert created["objectRef"] == {
        "resource": "configmaps", "namespace": "default", "apiVersion": "v1",
    }  # fmt: skip
    assert created["responseStatus"]["code"] == 201
    assert created["stage"] == "ResponseComplete"
    assert re.fullmatch(r"\d{4}-.*\.\d{6}Z", created["requestReceivedTimestamp"])
    assert refused["impersonatedUser"]["username"] == "mallory"
    assert refused["userAgent"] == "probe/1"
    assert refused["objectRef"]["name"] == "a"
    assert refused["responseStatus"]["code"] == 403
    assert refused["sourceIPs"] == ["127.0.0.1"]


async def test_too_many_requests_get_429_with_retry_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, let_go = asyncio.Event(), asyncio.Event()

    async def fresh(self: ObjectStore) -> None:
        held.set()
        await let_go.wait()

    tokens = tmp_path / "tokens.csv"
    tokens.write_text("token,reader,1,readers\n")
    server = Server(State(tmp_path / "s"), limits=Limits(1, 1), token_file=tokens)
    group = "rbac.authorization.k8s.io"
    bound = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "reader"}],
    }
    async with server.running(), server.raw() as admin:
        async with admin.post(f"/apis/{group}/v1/clusterrolebindings", json=bound) as response:
            assert response.status == 201
        async with server.raw(Authorization="Bearer token") as http:

            async def get() -> int:
                async with http.get(MAPS) as response:
                    return response.status

            # A new binding takes a moment to become effective.
            while await get() == 403:
                await patience.pause()
            monkeypatch.setattr(stores.ObjectStore, "read_fresh", fresh)
            monkeypatch.setattr(seats, "QUEUE_WAIT_SECONDS", 0.2)
            first = asyncio.create_task(get())
            await held.wait()
            async with http.get(MAPS) as response:
                assert response.status == 429
                assert response.headers["Retry-After"] == "1"
                status = await response.json()
                assert status["reason"] == "TooManyRequests"
                assert status["details"]["retryAfterSeconds"] == 1
            # Administrators are not locked out.
            let_go.set()
            async with admin.get(MAPS) as response:
                assert response.status == 200
            assert await first == 200
            assert await sample(admin, "apiserver_request_terminations_total", code="429") == 1


async def test_too_large_body_is_rejected(server: Server) -> None:
    async with server.raw() as http:
        body = json.dumps(config_map("a", big="x" * 3_200_000))
        async with http.post(MAPS, data=io.BytesIO(body.encode())) as response:
            assert response.status == 413
            assert (await response.json())["reason"] == "RequestEntityTooLarge"
        async with http.get(MAPS) as response:
            assert response.status == 200


async def test_watch_of_client_that_does_not_read_is_closed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "WRITE_TIMEOUT_SECONDS", 0.3)
    context_of = server.raw()
    connector = context_of.connector
    assert isinstance(connector, aiohttp.TCPConnector)
    async with context_of as http:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=connector._ssl, server_hostname="localhost", limit=1024
        )
        writer.write(f"GET {MAPS}?watch=1 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        for number in range(30):
            async with http.post(MAPS, json=config_map(f"m{number}", d="x" * 900_000)) as response:
                assert response.status == 201

        async def cut() -> bool:
            return not await sample(http, "apiserver_longrunning_requests", verb="WATCH")

        async with patience.limit():
            while not await cut():
                await patience.pause()
        writer.close()


async def test_list_continues_after_compaction_of_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "HISTORY", 3)
    server = Server(State(tmp_path / "s"))
    async with server.running(), server.raw() as http:
        for number in range(4):
            async with http.post(MAPS, json=config_map(f"m{number}")) as response:
                assert response.status == 201
        async with http.get(MAPS, params={"limit": "2"}) as response:
            first = await response.json()
        assert first["metadata"]["remainingItemCount"] == 2
        following = {"limit": "2", "continue": first["metadata"]["continue"]}
        for name in ("m2", "n", "o", "p"):
            method = http.delete(f"{MAPS}/{name}") if name == "m2" else http.post(
                MAPS, json=config_map(name))  # fmt: skip
            async with method as response:
                assert response.status in (200, 201)
        async with http.get(MAPS, params=following) as response:
            assert response.status == 410
            status = await response.json()
            assert status["reason"] == "Expired"
        following["continue"] = status["metadata"]["continue"]
        async with http.get(MAPS, params=following) as response:
            # The newest state, starting where the page ended.
            result = [item["metadata"]["name"] for item in (await response.json())["items"]]
            assert result == ["m3", "n"]


async def test_write_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kube_api_server.http import handler
    from kube_api_server.objects.verbs import Verbs

    server = Server(State(tmp_path / "s"))
    async with server.running(), server.raw() as http:

        async def never(*_: Any) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(handler, "REQUEST_SECONDS", 0.2)
        monkeypatch.setattr(Verbs, "create", never)
        async with http.post(MAPS, json=config_map("a")) as response:
            assert response.status == 504
            assert (await response.json())["reason"] == "Timeout"
