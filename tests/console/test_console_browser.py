"""The console in a real browser: views, keyboard, hostile values, and 5,000 routes."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.chromium import CHROMIUM, Page, open_page
from fakes.console import HOSTILE, apply_estates, estate, log_in, reader_of, running_console, show
from fakes.inprocess import Server
from gatehouse.apis import resources
from gatehouse.console import object_feed
from gatehouse.console.server import RunningConsole
from gatehouse.inspection.object_set import ObjectSet
from gatehouse.kube import client as kube
from gatehouse.standalone.state_directory import State

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not CHROMIUM, reason="needs Debian's package chromium"),
]

MANY_ROUTES = 5000

APP_ROUTE = "route?kind=HTTPRoute&namespace=shop&name=app"

VIEWS = (
    *("topology", "route?choose", APP_ROUTE, "kube-apiservers", "load-balancers"),
    *("problems", "traffic", "explain"),
)

ROWS = "[...document.querySelectorAll('[role=treeitem]')].map((row) => row.innerText)"
AXE = Path(__file__).parents[2] / ".cache" / "axe" / "axe_core_python" / "axe.min.js"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    result = Server(State(tmp_path / "state"))
    async with result.running():
        yield result


@pytest.fixture
async def client(server: Server) -> AsyncIterator[kube.Client]:
    async with server.client() as result:
        await apply_estates(result, "shop")
        yield result


@pytest.fixture
async def console(client: kube.Client) -> AsyncIterator[RunningConsole]:
    async with running_console(client) as result:
        yield result


async def test_views_show_objects_safely(client: kube.Client, console: RunningConsole) -> None:
    """One start of the browser for all views: it is the slow part."""
    route = await client.get(resources.HTTP_ROUTES, "lost", "shop")
    condition = {
        "type": "Accepted", "status": "False", "reason": "NoMatchingParent", "message": HOSTILE,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    parent = {"parentRef": {"name": "x"}, "controllerName": "a.b/c", "conditions": [condition]}
    await client.update_status(resources.HTTP_ROUTES, {**route, "status": {"parents": [parent]}})
    async with open_page() as page:
        await log_in(page, console)
        await page.until("document.getElementById('connection')?.textContent === 'live'")
        await page.until(f"{ROWS}.some((row) => row.includes('HTTPRoute shop/lost'))")
        await check_keyboard(page)
        await check_changes(page, client)
        await show(page, "problems")
        await page.until("document.body.innerText.includes('<img src=x onerror=')")
        await page.until("document.body.innerText.includes('Correct parentRefs')")
        await page.until("document.body.innerText.includes('\\\\u{202e}')")
        assert await page.evaluate("[document.images.length, typeof window.hacked]") == [
            0,
            "undefined",
        ]
        await check_document(page, console)
        await check_explanation(page)
        await check_route(page, client)
        await check_kube_apiservers(page, client)
        await check_load_balancers(page, client)
        await show(page, "traffic")
        await page.until("document.querySelector('caption')?.textContent.includes('0 data planes')")
        await check_accessibility(page)


async def check_document(page: Page, console: RunningConsole) -> None:
    """Follow the link of a problem to its section, and return."""
    link = "document.querySelector('.problem a[href$=\"conditions.md\"]')"
    await page.click(link)
    await page.until("document.querySelector('main.document h1')?.innerText.length > 0")
    await page.until("document.querySelectorAll('table').length > 1")
    await check_axe(page, "document")
    await page.click("document.querySelector('header a')")
    await page.until("document.getElementById('connection')?.textContent === 'live'")


async def check_keyboard(page: Page) -> None:
    """Move and collapse by keys alone."""
    await page.evaluate("document.querySelector('[role=tree]').focus()")
    await page.press("Home", "ArrowDown")
    for selected in ("[aria-selected=true]", "h2"):
        text = f"document.querySelector('{selected}')?.innerText"
        await page.until(f"{text}?.includes('Gateway shop/web')")
    rows = len(await page.evaluate(ROWS))
    await page.press("ArrowLeft")
    await page.until(f"{ROWS}.length < {rows}")
    await page.press("ArrowRight", "End")
    await page.until(f"{ROWS}.length === {rows}")
    active = "document.querySelector('[role=tree]').getAttribute('aria-activedescendant')"
    await page.until(f"document.getElementById({active}) !== null")


async def check_changes(page: Page, client: kube.Client) -> None:
    """Show a new object without a reload."""
    service = next(item for item in estate("shop") if item["kind"] == "HTTPRoute")
    late = copy.deepcopy(service)
    late["metadata"]["name"] = "late"
    await client.create(resources.HTTP_ROUTES, late)
    await page.until(f"{ROWS}.some((row) => row.includes('HTTPRoute shop/late'))")


async def check_explanation(page: Page) -> None:
    await show(page, "explain?url=http%3A%2F%2Fshop.example%2F")
    await page.evaluate("document.querySelector('form button').click()")
    await page.until("document.querySelector('.answer') !== null")
    await page.until("document.body.innerText.includes('HTTPRoute shop/app: spec.rules')")


async def check_route(page: Page, client: kube.Client) -> None:
    """Choose a route, follow a change that no status shows, and show what is hostile as text."""
    await show(page, "route?choose")
    await page.evaluate("document.querySelector('input[type=search]').focus()")
    await page.evaluate(
        "{ const e = document.activeElement; e.value = 'shop/app'; "
        "e.dispatchEvent(new Event('input')); }"
    )
    link = "[...document.querySelectorAll('main li a')].filter((a) => a.innerText.includes('app'))"
    await page.until(f"{link}.length === 1")
    await page.evaluate(f"{link}[0].click()")
    text = "document.getElementById('view').innerText"
    await page.until(f"{text}.includes('Matches of shop.example at Gateway shop/web')")
    await page.until(f"{text}.includes('1 of 2')")
    await page.until(f"{text}.includes('Service shop/app has 0 of 0 ready endpoints')")
    route = await client.get(resources.HTTP_ROUTES, "app", "shop")
    header = {"name": "x-hostile", "value": HOSTILE[:28]}
    route["spec"]["rules"][0]["matches"] = [{"headers": [header]}]
    await client.update(resources.HTTP_ROUTES, route)
    await page.until(f"{text}.includes('header x-hostile: <img src=x onerror=')")
    assert await page.evaluate("[document.images.length, typeof window.hacked]") == [0, "undefined"]
    await show(page, "route?kind=HTTPRoute&namespace=shop&name=none")
    await page.until("document.querySelector('[role=alert]')?.innerText.includes('not found')")


async def check_kube_apiservers(page: Page, client: kube.Client) -> None:
    """Show servers, limits and their users of a new cluster, with hostile names as text."""
    await show(page, "kube-apiservers")
    text = "document.getElementById('view').innerText"
    await page.until(f"{text}.includes('There are no UpstreamClusters.')")
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "users": [HOSTILE]}
    policy = {"rules": [rule], "flowControlSchemaName": "all"}
    schema = {"name": "all", "maxRequestsInflight": {"max": 400}}
    created = await client.create(
        resources.UPSTREAM_CLUSTERS,
        {
            "metadata": {"name": "prod.example"},
            "spec": {
                "servers": [{"endpoint": "https://10.0.0.1:6443"}],
                "clientConfig": {"bearerToken": "aGlkZGVu", "insecure": True},
                "flowControl": {"flowControlSchemas": [schema]},
                "dispatchPolicies": [policy],
            },
        },
    )
    unready = {
        "type": "ServersReady", "status": "False", "reason": "ServersNotReady",
        "message": f"10.0.0.1:6443: {HOSTILE}", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    gateway = {
        "gatewayRef": {"kind": "Gateway", "namespace": "shop", "name": "web"},
        "controllerName": "gatehouse.dev/envoy", "hosts": ["prod.example"], "conditions": [unready],
    }  # fmt: skip
    status = {"hosts": ["prod.example"], "gateways": [gateway], "conditions": [unready]}
    await client.update_status(resources.UPSTREAM_CLUSTERS, {**created, "status": status})
    await page.until(f"{text}.includes('not ready: <img src=x onerror=')")
    rows = await page.evaluate("[...document.querySelectorAll('tr')].map((row) => row.innerText)")
    limit = next(row for row in rows if row.startswith("all"))
    assert "400 requests at a time at each data plane" in limit
    assert 'policy 0: users <img src=x onerror="' in limit
    await page.until(f"{text}.includes('Check the servers that the message names')")
    await show(page, "topology")
    row = "[...document.querySelectorAll('[role=treeitem]')].find("
    row += "(row) => row.innerText.includes('UpstreamCluster prod.example'))"
    await page.until(f"{row} !== undefined")
    await page.evaluate(f"{row}.querySelector('[data-toggle]').click()")
    await page.until(f"{ROWS}.some((row) => row.includes('kube-apiserver https://10.0.0.1:6443'))")
    assert not await page.evaluate("document.documentElement.innerHTML.includes('aGlkZGVu')")
    assert await page.evaluate("[document.images.length, typeof window.hacked]") == [0, "undefined"]


async def check_load_balancers(page: Page, client: kube.Client) -> None:
    """Show the hosts of a new load balancer, and what differs on them."""
    await show(page, "load-balancers")
    text = "document.getElementById('view').innerText"
    await page.until(f"{text}.includes('There are no ExternalLoadBalancers.')")
    created = await client.create(
        resources.EXTERNAL_LOAD_BALANCERS,
        {
            "metadata": {"name": "edge", "namespace": "shop"},
            "spec": {"hosts": [{"url": "https://192.0.2.1/api"}]},
        },
    )
    await page.until(f"{text}.includes('no status yet')")
    status = {
        "version": "2", "hosts": [
            {"url": "https://192.0.2.1/api", "version": "2", "server": "nginx/1.29"},
            {"url": "https://192.0.2.2/api", "version": "1"},
            {"url": "https://192.0.2.3/api", "version": "1", "failing": [
                {"upstream": "shop", "error": HOSTILE},
            ]},
        ],
        "upstreams": [{"context": "http", "name": "shop", "service": "shop/app"}],
        "conditions": [{
            "type": "Programmed", "status": "False", "reason": "HostSyncFailed",
            "message": "1 of 3 hosts", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    }  # fmt: skip
    await client.update_status(resources.EXTERNAL_LOAD_BALANCERS, {**created, "status": status})
    await page.until(f"{text}.includes('shop: <img src=x onerror=')")
    rows = await page.evaluate("[...document.querySelectorAll('tr')].map((row) => row.innerText)")
    assert [row.split("\t")[4] for row in rows[1:4]] == ["synchronized", "behind", "differs"]
    assert rows[5].split("\t") == ["shop", "http", "shop/app"]
    await page.until(f"{text}.includes('Check the hosts that the message names')")
    assert await page.evaluate("[document.images.length, typeof window.hacked]") == [0, "undefined"]


async def check_accessibility(page: Page) -> None:
    """Check all views."""
    for view in VIEWS:
        await show(page, view)
        await check_axe(page, view)


async def check_axe(page: Page, place: str) -> None:
    """Check a page in both colour schemes by axe-core, if it is in the cache."""
    if not AXE.exists():
        return
    await page.call("Page.setBypassCSP", enabled=True)
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await page.call("Emulation.setEmulatedMedia", features=[feature])
        await page.evaluate(f"{AXE.read_text()}; undefined")
        violations = await page.evaluate(
            "axe.run().then((r) => r.violations.map((v) => [v.id, v.nodes[0].html]))"
        )
        assert violations == [], (scheme, place)
    await page.call("Page.setBypassCSP", enabled=False)


async def test_views_name_the_permission_that_the_user_lacks(
    server: Server, client: kube.Client
) -> None:
    text = "document.getElementById('view').innerText"
    async with (
        await reader_of(server, "shop") as reader,
        running_console(reader, fallback="shop") as console,
        open_page() as page,
    ):
        await log_in(page, console)
        await show(page, "kube-apiservers")
        await page.until(f"{text}.includes('You have no permission to list UpstreamCluster.')")
        await show(page, "load-balancers")
        missing = "You have no permission to list ExternalLoadBalancer in shop."
        await page.until(f"{text}.includes({json.dumps(missing)})")
        await show(page, APP_ROUTE)
        await page.until(f"{text}.includes('no permission to list GatewayClass')")
        await page.until(f"{text}.includes('Service shop/app:80')")


@pytest.mark.long
async def test_topology_of_many_routes_draws_only_the_visible_rows(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests = estate("shop")
    route = next(item for item in manifests if item["kind"] == "HTTPRoute")

    def numbered(number: int) -> dict[str, Any]:
        item = copy.deepcopy(route)
        item["metadata"]["name"] = f"route-{number:04}"
        return item

    objects = [*manifests, *(numbered(number) for number in range(MANY_ROUTES))]
    monkeypatch.setattr(object_feed.ObjectFeed, "object_set", lambda _: ObjectSet(objects, [], ()))
    async with open_page() as page:
        await log_in(page, console)
        await page.until(f"{ROWS}.some((row) => row.includes('route-0000'))")
        frames = await page.evaluate(
            """new Promise((done) => {
              const list = document.querySelector('[role=tree]');
              const times = [];
              let last = performance.now();
              function step(now) {
                times.push(now - last);
                last = now;
                list.scrollTop += 1000;
                const end = list.scrollTop + list.clientHeight >= list.scrollHeight;
                if (end) done(times);
                else requestAnimationFrame(step);
              }
              requestAnimationFrame(step);
            })"""
        )
        nodes = await page.evaluate("document.querySelectorAll('[role=treeitem]').length")
        update = await page.evaluate(
            "Math.max(...performance.getEntriesByName('topology').map((m) => m.duration))"
        )
    print(
        f"frames {len(frames)}, longest {max(frames):.0f} ms, rows {nodes}, update {update:.0f} ms"
    )
    assert len(frames) > MANY_ROUTES * 28 / 1000 / 2
    assert nodes < 100
