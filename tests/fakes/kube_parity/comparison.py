"""Comparison of an API server's responses with the recorded facts of a kube-apiserver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from fakes.kube_parity import table
from fakes.kube_parity.facts import Facts, facts_of

RECORD = table.DIRECTORY / "record.json"

Record = dict[str, Facts]
"""Facts by the name of the request."""


class FactDifference(msgspec.Struct, frozen=True):
    """A fact of a response that differs from the record."""

    request: str
    fact: str
    recorded: str
    """Recorded value as JSON; empty if the fact is not recorded."""
    observed: str

    def __str__(self) -> str:
        return f"{self.request} | {self.fact}: {self.recorded} / {self.observed}"


async def prepare(session: aiohttp.ClientSession) -> None:
    """Create namespaces, ServiceAccounts and CRDs of the requests, where they are missing."""
    for definition in bundled_gateway_api():
        path = URL(table.collection("crds"))
        async with session.post(path, json=definition) as response:
            assert response.status in (201, 409), await response.text()
    for name in table.namespaces():
        path = URL(table.collection("namespaces"))
        async with session.post(path, json={"metadata": {"name": name}}) as response:
            assert response.status == 201, await response.text()
        account = {"metadata": {"name": "default"}}
        path = URL(table.collection("serviceaccounts").replace("{namespace}", name))
        async with session.post(path, json=account) as response:
            assert response.status in (201, 409), await response.text()


def bundled_gateway_api() -> Iterator[Any]:
    """Yield the bundled CRDs of the kinds in the table."""
    directory = resources.files("gatehouse.apiserver_extension") / "bundled"
    for plural in ("gateways", "httproutes"):
        path = directory / f"{plural}.gateway.networking.k8s.io.json"
        yield json.loads(path.read_text(encoding="utf-8"))


async def collect(session: aiohttp.ClientSession) -> Record:
    """Send all requests in order and return their facts."""
    observed = {}
    for request in table.parity_requests():
        facts = await facts_of(session, request)
        if request.recorded:
            observed[request.name] = facts
    return observed


def read_record() -> Record:
    """Return the recorded facts."""
    result: Record = json.loads(RECORD.read_text())
    return result


def write_record(record: Record) -> None:
    """Write the recorded facts, one request per line."""
    lines = (f"{json.dumps(name)}: {json.dumps(facts)}" for name, facts in record.items())
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def differences(recorded: Record, observed: Record) -> list[FactDifference]:
    """Return the facts that differ, in the order of the requests."""
    result = []
    for name in recorded | observed:
        before, after = recorded.get(name, {}), observed.get(name, {})
        result += [
            FactDifference(name, fact, _text(before, fact), _text(after, fact))
            for fact in before | after
            if _text(before, fact) != _text(after, fact)
        ]
    return result


def _text(facts: Facts, fact: str) -> str:
    """Return a value as JSON. A fact that is absent differs from one that is null."""
    return json.dumps(facts[fact]) if fact in facts else ""
