"""Feature story: objects in, bundles out, reports back, statuses written, in the order promised."""

from __future__ import annotations

import base64
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from fakes.authority import Authority
from fakes.loop_story import BASE, GATEWAY, HTTP_ROUTE, ROUTE, Story, story
from gatehouse.apis import resources
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.compiler.frontends.inputs import replicas_key
from gatehouse.controller import loop
from gatehouse.controller.programmed_condition import ProvisioningError
from gatehouse.controller.provisioner.manifests import ProvisioningPlan
from gatehouse.dataplane.delivery import DataPlaneReport
from gatehouse.incremental.query import Key
from gatehouse.kube.store import Change

__all__ = ["story"]


PARAMETERS = """
apiVersion: gateway.nginx.org/v1alpha2
kind: NginxProxy
metadata: {{name: p, namespace: ns, generation: {replicas}}}
spec: {{kubernetes: {{deployment: {{replicas: {replicas}}}}}}}
"""


async def test_nothing_is_published_before_an_instance_reports_its_nginx(
    story: Story,
) -> None:
    story.apply(BASE)
    await story.until(lambda: story.provisioned)
    [plans] = story.provisioned
    assert plans == {GATEWAY: ProvisioningPlan(((8080, "TCP"),), proxy="nginx")}
    await story.quiet()
    assert not story.fleet.bundles
    assert story.written.condition(GATEWAY, "Accepted")["status"] == "True"
    programmed = story.written.condition(GATEWAY, "Programmed")
    assert (programmed["status"], programmed["reason"]) == ("False", "Pending")
    story.fleet.say()
    await story.until(lambda: story.fleet.bundles)


async def test_route_status_is_deferred_and_programmed_stays_true(
    story: Story,
) -> None:
    story.fleet.say()
    story.apply(BASE)
    await story.until(lambda: story.fleet.bundles)
    story.fleet.say(confirmed=True)
    await story.until(lambda: story.written.condition(GATEWAY, "Programmed")["status"] == "True")
    story.apply(ROUTE)
    await story.until(lambda: len(story.fleet.bundles) == 2)
    await story.quiet()
    assert HTTP_ROUTE not in story.written.now
    assert story.written.condition(GATEWAY, "Programmed")["status"] == "True"
    story.fleet.say(confirmed=True)
    await story.until(lambda: HTTP_ROUTE in story.written.now)
    assert story.written.condition(HTTP_ROUTE, "Accepted")["status"] == "True"


async def test_expired_certificate_sets_condition_without_object_change(
    story: Story, tmp_path: Path
) -> None:
    ends = timedelta(seconds=3)
    names = x509.DNSName("a.example")
    files = Authority(tmp_path).issue("a", names, ends=ends)
    chain, private = (base64.b64encode(file.read_bytes()).decode() for file in files)
    key: Key = ("UpstreamCluster", "", "a.example")
    spec = {
        "servers": [{"endpoint": "http://10.0.0.1:8080"}],
        "dispatchPolicies": [{"rules": [{"verbs": ["*"]}]}],
        "secureServing": {"certData": chain, "keyData": private},
    }
    raw = {"kind": "UpstreamCluster", "metadata": {"name": key[2], "generation": 1}, "spec": spec}
    story.loop.on_changes(resources.UPSTREAM_CLUSTERS, {("", key[2]): Change(None, raw)})

    def reasons() -> dict[str, str]:
        desired: Any = story.written.now[key]
        return {condition.type: condition.reason for condition in desired.conditions}

    await story.until(lambda: key in story.written.now)
    await story.until(lambda: reasons().get("CertificateValid") == "ExpiresSoon")
    await story.until(lambda: reasons().get("CertificateValid") == "Expired")


async def test_first_change_after_idle_compiles_at_once_and_later_changes_debounce(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.fleet.say()
    story.apply(BASE)
    await story.until(lambda: story.fleet.bundles)
    await story.quiet()
    # Long enough that only what is not held off at all is seen within the time that `until` gives.
    monkeypatch.setattr(loop, "COMPILE_DEBOUNCE_SECONDS", 60.0)
    monkeypatch.setattr(loop, "IDLE_SECONDS", 0.0)
    passes, published = story.loop.passes, len(story.fleet.bundles)
    story.apply(ROUTE)
    await story.until(lambda: len(story.fleet.bundles) > published)
    assert story.loop.passes > passes
    monkeypatch.setattr(loop, "IDLE_SECONDS", 60.0)
    passes = story.loop.passes
    story.apply(ROUTE.replace("a.example", "b.example"))
    await story.quiet()
    assert story.loop.passes == passes


async def test_unsupported_value_is_reported_by_the_publishing_pass(story: Story) -> None:
    story.fleet.say()
    story.apply(BASE)
    await story.until(lambda: story.fleet.bundles)
    story.fleet.say(confirmed=True)
    await story.until(lambda: story.written.condition(GATEWAY, "Programmed")["status"] == "True")
    await story.quiet()
    passes = story.loop.passes
    # A token of NGINX's configuration has at most 4,000 bytes.
    edit = f"responseHeaderModifier: {{set: [{{name: x-a, value: {'v' * 4001}}}]}}"
    filters = f"    filters: [{{type: ResponseHeaderModifier, {edit}}}]\n"
    story.apply(ROUTE + filters)
    await story.until(lambda: len(story.fleet.bundles) == 2)
    story.fleet.say(confirmed=True)
    await story.until(lambda: HTTP_ROUTE in story.written.now)
    accepted = story.written.condition(HTTP_ROUTE, "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "UnsupportedValue")
    assert "value is longer than 4000 bytes" in accepted["message"]
    assert story.loop.passes == passes + 1


async def test_gateway_change_is_programmed_when_confirmed(story: Story) -> None:
    story.fleet.say()
    story.apply(BASE)
    await story.until(lambda: story.fleet.bundles)
    story.fleet.say(confirmed=True)
    await story.until(lambda: story.written.condition(GATEWAY, "Programmed")["status"] == "True")
    reports = list[tuple[int, str]]()

    def want(key: Key, status: gateway_api.GatewayApiStatus) -> None:
        story.written.now[key] = status
        if key == GATEWAY:
            programmed = story.written.condition(key, "Programmed")
            reports.append((programmed["observedGeneration"], programmed["status"]))

    story.written.set_desired = want  # type: ignore[method-assign]
    story.apply(
        BASE.replace("port: 8080", "port: 8081").replace(
            "uid: u-gw, generation: 1", "uid: u-gw, generation: 2"
        )
    )
    await story.until(lambda: len(story.fleet.bundles) == 2)
    await story.quiet()
    assert reports[-1] == (2, "False")
    assert (2, "True") not in reports
    # A bundle that comes after does not keep it waiting.
    story.apply(ROUTE)
    await story.until(lambda: len(story.fleet.bundles) == 3)
    story.fleet.say(confirmed=True, bundle=1)
    await story.until(lambda: reports[-1] == (2, "True"))


async def test_route_status_is_written_when_its_version_is_confirmed(story: Story) -> None:
    story.fleet.say()
    story.apply(BASE)
    await story.until(lambda: story.fleet.bundles)
    story.fleet.say(confirmed=True)
    story.apply(ROUTE)
    await story.until(lambda: len(story.fleet.bundles) == 2)
    story.apply(ROUTE.replace("generation: 1", "generation: 2").replace("a.example", "b.example"))
    await story.until(lambda: len(story.fleet.bundles) == 3)
    await story.quiet()
    assert HTTP_ROUTE not in story.written.now

    def generation() -> int:
        if HTTP_ROUTE not in story.written.now:
            return 0
        return int(story.written.condition(HTTP_ROUTE, "Accepted")["observedGeneration"])

    story.fleet.say(confirmed=True, bundle=1)
    await story.until(generation)
    assert generation() == 1
    story.fleet.say(confirmed=True)
    await story.until(lambda: generation() == 2)


async def test_reports_are_debounced_and_do_not_delay_changes(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.fleet.say()
    story.apply(BASE)
    await story.until(lambda: story.fleet.bundles)
    story.fleet.say(confirmed=True)
    await story.until(lambda: story.written.condition(GATEWAY, "Programmed")["status"] == "True")
    await story.quiet()
    # The next turn over reports alone is the last before something else happens.
    monkeypatch.setattr(loop, "REPORT_PAUSE_FACTOR", 1e9)
    monkeypatch.setattr(loop, "MAX_REPORT_PAUSE_SECONDS", 3600.0)
    count = 0
    report = story.fleet.report

    def counted(gateway: str) -> DataPlaneReport:
        nonlocal count
        count += 1
        return report(gateway)

    monkeypatch.setattr(story.fleet, "report", counted)
    story.fleet.say(confirmed=True)
    await story.until(lambda: count)
    story.fleet.say(error="[emerg] unknown directive")
    before = count
    await story.quiet()
    assert count == before
    assert story.written.condition(GATEWAY, "Programmed")["status"] == "True"
    story.apply(ROUTE)
    await story.until(lambda: len(story.fleet.bundles) == 2)
    assert count > before


async def test_changed_parameters_are_provisioned_when_ports_are_unchanged(
    story: Story,
) -> None:
    reference = "{group: gateway.nginx.org, kind: NginxProxy, name: p}"
    infrastructure = f"  infrastructure: {{parametersRef: {reference}}}\n  listeners:\n"
    story.apply(BASE.replace("  listeners:\n", infrastructure))
    await story.until(lambda: story.provisioned)
    for number in (2, 3):
        story.apply(PARAMETERS.format(replicas=number))
        await story.until(
            lambda number=number: any(  # type: ignore[misc]
                provisioning is not None and provisioning.workload.deployment.replicas == number
                for provisioning in story.provisioned[-1].values()
            )
        )


async def test_provisioning_error_is_reported_on_the_gateway(story: Story) -> None:
    story.apply(BASE)
    await story.until(lambda: story.provisioned)
    story.loop.on_provisioned(("ns", "gw"), ProvisioningError("Deployment ns/gw: forbidden"))
    await story.until(
        lambda: "forbidden" in story.written.condition(GATEWAY, "Programmed")["message"]
    )


async def test_status_update_causes_no_compile_pass(story: Story) -> None:
    story.fleet.say()
    story.apply(BASE)
    await story.until(lambda: story.fleet.bundles)
    story.fleet.say(confirmed=True)
    await story.quiet()
    passes = story.loop.passes
    written = next(raw for raw in yaml.safe_load_all(BASE) if raw["kind"] == "Gateway")
    written["metadata"]["resourceVersion"] = "77"
    written["status"] = {"conditions": []}
    story.loop.on_changes(resources.GATEWAYS, {("ns", "gw"): Change(None, written)})
    await story.quiet()
    assert story.loop.passes == passes


async def test_deleted_gateway_is_withdrawn_and_its_status_dropped(story: Story) -> None:
    story.fleet.say()
    story.apply(BASE)
    await story.until(lambda: story.fleet.bundles)
    gateway = next(raw for raw in yaml.safe_load_all(BASE) if raw["kind"] == "Gateway")
    story.apply(yaml.safe_dump(gateway), delete=True)
    await story.until(lambda: story.provisioned[-1] == {GATEWAY: None})
    assert not story.fleet.bundles
    assert GATEWAY not in story.written.now


async def test_failed_status_of_one_object_leaves_others_unaffected(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = combined.desired_status

    def fails_for_one(ask: Any, key: Key) -> Any:
        if key == HTTP_ROUTE:
            raise RuntimeError("unforeseen")
        return status(ask, key)

    monkeypatch.setattr(combined, "desired_status", fails_for_one)
    story.fleet.say()
    story.apply(BASE + "---" + ROUTE)
    await story.until(lambda: story.fleet.bundles)
    story.fleet.say(confirmed=True)
    await story.until(lambda: story.written.condition(GATEWAY, "Programmed")["status"] == "True")
    assert HTTP_ROUTE not in story.written.now


async def test_connected_instances_are_recorded_without_compile_pass(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    records: dict[Key, Any] = {}
    put = story.compilation.put_input

    def listening(key: Key, value: Any) -> bool:
        records[key] = value
        return put(key, value)

    monkeypatch.setattr(story.compilation, "put_input", listening)
    connected = replicas_key(GATEWAY)
    story.apply(BASE)
    await story.until(lambda: records.get(connected) == ())
    story.fleet.say()
    await story.until(lambda: records.get(connected) == ("pod",))
    assert not story.compilation.reads(connected)


@pytest.mark.parametrize("at_once", [True, False], ids=["one batch", "two batches"])
async def test_gateway_with_the_name_of_a_deleted_one_has_its_own_status(
    story: Story, at_once: bool
) -> None:
    """It does not get the status of the other one, and gets its own although that may be equal."""
    story.fleet.say()
    story.apply(BASE)
    await story.until(lambda: story.fleet.bundles)
    story.fleet.say(confirmed=True)
    await story.until(lambda: story.written.condition(GATEWAY, "Programmed")["status"] == "True")
    story.fleet.instance = None
    gateway = next(raw for raw in yaml.safe_load_all(BASE) if raw["kind"] == "Gateway")
    if not at_once:
        story.apply(yaml.safe_dump(gateway), delete=True)
    gateway["metadata"]["uid"] = "another"
    story.apply(yaml.safe_dump(gateway))
    assert GATEWAY not in story.written.now
    await story.until(lambda: GATEWAY in story.written.now)
    assert story.written.condition(GATEWAY, "Programmed")["status"] == "False"


@pytest.mark.parametrize("at_once", [True, False], ids=["one batch", "two batches"])
async def test_new_route_of_a_deleted_one_gets_an_equal_status(story: Story, at_once: bool) -> None:
    story.fleet.say()
    story.apply(BASE)
    story.apply(ROUTE)
    await story.until(lambda: story.fleet.bundles)
    story.fleet.say(confirmed=True)
    await story.until(lambda: HTTP_ROUTE in story.written.now)
    await story.quiet()
    before = story.written.now[HTTP_ROUTE]
    if not at_once:
        story.apply(ROUTE, delete=True)
    story.apply(ROUTE.replace("generation: 1", "generation: 1, uid: another"))
    assert HTTP_ROUTE not in story.written.now
    await story.until(lambda: HTTP_ROUTE in story.written.now)
    assert story.written.now[HTTP_ROUTE] == before
