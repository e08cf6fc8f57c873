"""`Programmed` of a Gateway whose instances are all disconnected, on NGINX and Envoy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fakes import patience
from fakes.authority import Authority
from fakes.gateway_estate import ENVOY, NGINX, Estate, Store
from gatehouse.controller import absences
from kube_base.types.resource import Resource

CLASSES = pytest.mark.parametrize(
    ("number", "class_name"), [(0, NGINX), (1, ENVOY)], ids=["NGINX", "Envoy"]
)


class RecordingStore(Store):
    """Store that records each written `Programmed` of Gateways, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.programmed: dict[str, list[tuple[str, str]]] = {}
        """Statuses and messages by name of the Gateway."""

    async def update_status(self, resource: Resource, obj: Mapping[str, Any]) -> dict[str, Any]:
        if resource.kind == "Gateway":
            conditions = {item["type"]: item for item in obj["status"]["conditions"]}
            entry = conditions["Programmed"]
            written = self.programmed.setdefault(obj["metadata"]["name"], [])
            written.append((entry["status"], entry["message"]))
        return await super().update_status(resource, obj)


@CLASSES
async def test_gateway_without_instances_is_not_programmed_after_a_grace_period(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, class_name: str
) -> None:
    monkeypatch.setattr(absences, "RETURN_SECONDS", 0.2)
    store, name = RecordingStore(), f"g{number}"
    estate = Estate(Authority(tmp_path), store)
    async with estate.running(2):
        await patience.until(lambda: store.programmed[name][-1][0] == "True")
        await estate.agents.disconnect(name)
        waiting = ("False", "waiting for the data plane to connect")
        await patience.until(lambda: store.programmed[name][-1] == waiting)
        estate.agents.connect(name, class_name, 0)
        await patience.until(lambda: store.programmed[name][-1][0] == "True")


@CLASSES
async def test_programmed_stays_true_while_the_only_instance_connects_again(
    tmp_path: Path, number: int, class_name: str
) -> None:
    store, name = RecordingStore(), f"g{number}"
    estate = Estate(Authority(tmp_path), store)
    async with estate.running(2):
        await patience.until(lambda: store.programmed[name][-1][0] == "True")
        store.programmed[name].clear()
        await estate.agents.disconnect(name)
        await estate.rest()
        estate.agents.connect(name, class_name, 0)
        await estate.rest()
        assert "False" not in {status for status, _ in store.programmed[name]}


@CLASSES
async def test_programmed_stays_true_when_another_controller_starts(
    tmp_path: Path, number: int, class_name: str
) -> None:
    store, name = RecordingStore(), f"g{number}"
    first = Estate(Authority(tmp_path), store)
    async with first.running(2):
        await patience.until(lambda: store.programmed[name][-1][0] == "True")
    store.programmed.clear()
    successor = Estate(Authority(tmp_path), store)
    async with successor.running(0):
        await successor.rest()
        successor.connect(number)
        await successor.rest()
        assert "False" not in {status for status, _ in store.programmed.get(name, [])}
