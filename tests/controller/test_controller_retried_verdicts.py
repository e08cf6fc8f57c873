"""Verdicts that are tried again: their findings stay until what is tried is accepted."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.quarantine_model import Model, Served
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.held_back import held_back_key, without_held_back
from gatehouse.controller.provisioner.names import MANAGED_BY_LABEL
from gatehouse.controller.quarantines import Quarantines
from gatehouse.controller.verdicts import RETRY, Verdicts
from gatehouse.dataplane.delivery import DataPlaneReport, InstanceReport
from gatehouse.dataplane.origin import Origin, port_origin
from gatehouse.incremental.query import Key

REASON = "rejected by nginx/1: bad"
BAD = ("bad0", "bad1", "bad2")


class Retried(Model):
    """A model in which an agent has rejected three objects, and tests them all again."""

    def __init__(self) -> None:
        self.bad = set(BAD)
        super().__init__(self.is_rejected)
        self.put("old", "first")
        self.settle()
        for name in BAD:
            self.put(name, "first")
        self.settle()
        assert self.reported() == set(BAD)
        self.now += RETRY.maximum
        assert self.quarantine.retry()
        self.publish()
        assert not self.quarantine.left_out, "the configuration has them again"

    def is_rejected(self, content: Served) -> bool:
        return any(name.partition("/")[0] in self.bad and text != "good" for name, text in content)

    def reported(self) -> set[str]:
        """Return the objects that findings report as rejected."""
        findings = self.quarantine.findings
        assert all(finding.rejected and finding.reason == REASON for finding in findings)
        return {finding.origin.name for finding in findings}


def test_findings_stay_while_objects_are_tried_again() -> None:
    model = Retried()
    assert model.reported() == set(BAD)
    model.settle()
    assert model.reported() == set(BAD)
    assert {origin.name for origin in model.quarantine.left_out} == set(BAD)


def test_finding_ends_when_its_object_is_accepted_although_others_are_still_tried() -> None:
    model = Retried()
    model.bad = {"bad2"}
    model.deliver(model.test())
    assert model.reported() == set(BAD), "they are rejected together"
    model.deliver(model.test())
    assert model.quarantine.retrying
    accepted = {name.partition("/")[0] for name, _ in model.serving} & set(BAD)
    assert accepted
    assert model.reported() == set(BAD) - accepted
    model.settle()
    assert model.reported() == {"bad2"}


def test_accepted_object_is_not_left_out_again_when_the_retry_of_others_is_aborted() -> None:
    model = Retried()
    model.bad = {"bad2"}
    model.deliver(model.test())
    model.deliver(model.test())
    left_out = model.reported()
    assert left_out < set(BAD)
    assert model.quarantine.abort()
    assert model.reported() == left_out
    assert {origin.name for origin in model.quarantine.left_out} == left_out


def test_finding_ends_when_its_object_is_edited_or_deleted_while_it_is_tried_again() -> None:
    model = Retried()
    model.put("bad0", "good")
    model.publish()
    del model.routes["bad1"]
    assert model.quarantine.forget(("HTTPRoute", "ns", "bad1"))
    assert model.reported() == {"bad2"}
    model.quarantine.abort()
    model.publish()
    assert {origin.name for origin in model.quarantine.left_out} == {"bad2"}


def test_edited_object_is_not_reported_while_another_one_is_tried_again() -> None:
    """It has a verdict, but the time of its next attempt has not come."""
    model = Retried()
    model.settle()
    (first, *_) = model.quarantine.verdicts.known
    model.quarantine.verdicts.hurry(0.0, [first.origin])
    assert model.quarantine.retry()
    model.publish()
    edited = next(name for name in BAD if name != first.origin.name)
    model.put(edited, "good")
    model.publish()
    assert model.reported() == set(BAD) - {edited}
    model.settle()
    assert (f"{edited}/0", "good") in model.serving
    assert model.reported() == set(BAD) - {edited}


@pytest.mark.parametrize("in_match", [True, False])
def test_finding_of_a_match_is_the_same_while_it_is_tried_again(in_match: bool) -> None:
    """The status tells a new controller whether the match itself is rejected."""
    model = Model(lambda content: any(text == "bad" for _, text in content))
    model.put("old", "first")
    model.settle()
    model.put("r", "bad", matches=2)
    suspects = [Suspect(item.origin, in_match=in_match) for item in model.routes["r"]]
    model.named = lambda _: suspects
    model.settle()
    before = model.quarantine.findings
    assert all(finding.reason.startswith("match ") is in_match for finding in before)
    model.now += RETRY.maximum
    assert model.quarantine.retry()
    model.publish()
    assert model.quarantine.findings == before


def test_port_stays_reported_while_it_is_tried_again() -> None:
    taken = True
    model = Model(lambda content: taken and bool(content))
    model.named = lambda _: [Suspect(port_origin("ns/gw", 80))]
    model.put("r", "first")
    model.settle()
    before = model.quarantine.findings
    assert [finding.origin.port for finding in before] == [80]
    model.now += RETRY.maximum
    assert model.quarantine.retry()
    model.publish()
    assert model.quarantine.findings == before
    taken = False
    model.settle()
    assert model.quarantine.findings == ()


GATEWAY = ("Gateway", "ns", "gw")
CREDENTIAL = Suspect(Origin("Secret", "ns", "tls"), credential="cert-1")


class Data:
    """A data plane that rejects the certificate, and a compiler without one that is rejected."""

    def __init__(self) -> None:
        self.desired, self.rejected = "", False
        self.inputs: dict[Key, Any] = {}

    def trace(self, *_: object) -> list[Suspect]:
        return [CREDENTIAL]

    def report(self, _: str) -> DataPlaneReport:
        instance = InstanceReport(
            "i",
            desired=self.desired,
            confirmed="" if self.rejected else self.desired,
            proxy="nginx/1",
            rejected_version=self.desired if self.rejected else "",
        )
        return DataPlaneReport("ns/gw", self.desired, (instance,))

    def put_input(self, key: Key, value: Any) -> bool:
        self.inputs[key] = value
        return True

    def spec_of(self, _: Key) -> str:
        return "spec"

    def reads(self, _: Key) -> bool:
        return True


@pytest.mark.parametrize(
    ("kind", "manager"), [("Service", "gatehouse"), ("Service", "Helm"), ("Secret", "")]
)
async def test_verdict_is_tried_again_soon_unless_the_changed_object_is_written_by_gatehouse(
    kind: str, manager: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ports of a Gateway's own Service change with each verdict about a listener."""
    data: Any = Data()
    quarantines = Quarantines(data, data, lambda: None, lambda *_: None)
    certificate = ir.Certificate("cert-1", b"", ir.SecretBytes(b""), CREDENTIAL.origin)
    host = http.VirtualHost("a.example", (), ("cert-1",))
    listener = ir.Listener(443, "HTTPS", (host,))
    full = ir.GatewayConfiguration("ns/gw", listeners=(listener,), certificates=(certificate,))
    for data.desired, rejected in (("1", True), ("2", False)):
        held = data.inputs.get(held_back_key(GATEWAY))
        now = full if held is None else without_held_back(held, full)
        data.rejected = rejected
        quarantines.published(GATEWAY, now, full)
        assert quarantines.reported(GATEWAY, data.report(""))
    assert "Secret ns/tls" in quarantines.message(GATEWAY)
    hurried: list[object] = []
    monkeypatch.setattr(Verdicts, "hurry", lambda *_: hurried.append(kind))
    labels = {MANAGED_BY_LABEL: manager} if manager else {}
    raw = {"metadata": {"namespace": "ns", "name": "other", "labels": labels}}
    quarantines.object_seen((kind, "ns", "other"), raw, changed=True)
    assert bool(hurried) is (manager != "gatehouse")
    quarantines.withdraw(GATEWAY)
