"""Text and JSON of an explanation."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec

from gatehouse.cli.logged_request import LoggedRequest
from gatehouse.cli.sent_response import SentResponse
from gatehouse.compiler.evaluation.explanation import (
    ExplainedBackend,
    ExplainedDataPlane,
    ExplainedEndpoint,
    Explanation,
)
from gatehouse.inspection.failed_requests import failure_line
from kube_base.runtime.printable import printable

_SHOWN_MATCHES, _SHOWN_ENDPOINTS = 20, 8
"""Maximum number of entries of a list in the text. JSON has all."""


def as_json(explanation: Explanation, sent: SentResponse | None) -> str:
    """Return the explanation as JSON, with the response to `--send`."""
    document = msgspec.to_builtins(explanation)
    if sent is not None:
        document["sent"] = msgspec.to_builtins(sent)
    return json.dumps(document, indent=2)


def explanation_lines(explanation: Explanation, sent: SentResponse | None) -> Iterator[str]:
    """Yield the lines of the text. The first one is the expected answer and its cause."""
    for line in _lines(explanation, sent):
        yield printable(line)


def _lines(explanation: Explanation, sent: SentResponse | None) -> Iterator[str]:
    yield explanation.answer.cause
    if sent is not None:
        yield f"{'Sent:':<11}{sent.text}"
        if isinstance(sent.logged, LoggedRequest):
            yield f"{'Logged:':<11}{sent.logged.text}"
    yield ""
    yield f"{'Request:':<11}{explanation.request}"
    kind = explanation.controller.rpartition("/")[2]
    addresses = ", ".join(explanation.addresses)
    yield (
        f"{'Gateway:':<11}{explanation.gateway}, class {explanation.gateway_class} ({kind})"
        f"{f', address {addresses}' if addresses else ''}"
    )
    yield from _listener_lines(explanation)
    if explanation.match:
        yield f"{'Match:':<11}{explanation.match}"
    ruled_out = explanation.ruled_out
    entries = [f"{item.match} {' and '.join(item.reasons)}" for item in ruled_out]
    yield from _section("Tried before:" if explanation.match else "Tried:", entries)
    unattached = [f"{item.route}: {item.reason}" for item in explanation.unattached]
    yield from _section("Not served here:", unattached)
    applied = [
        f"{item.type}: {item.source}{f' ({item.detail})' if item.detail else ''}"
        for item in explanation.applied
    ]
    yield from _section("Applies:", applied)
    yield from _section("Backends:", [_backend(item) for item in explanation.backends])
    yield from _section("Failed requests:", [failure_line(item) for item in explanation.failures])
    yield from _section("Data planes:", [_data_plane(item) for item in explanation.data_planes])
    yield from _section("Notes:", explanation.notes)


def _listener_lines(explanation: Explanation) -> Iterator[str]:
    listener = explanation.listener
    if listener is not None:
        hostname = f", hostname {listener.hostname}" if listener.hostname else ""
        yield (
            f"{'Listener:':<11}{listener.name} of {listener.object}, port {listener.port}/"
            f"{listener.protocol}{hostname}"
        )
        yield from (f"  problem: {problem}" for problem in listener.problems)
    if explanation.hostname is not None:
        yield f"{'Hostname:':<11}{explanation.hostname or 'any'}"


def _section(title: str, entries: list[str] | tuple[str, ...]) -> Iterator[str]:
    if not entries:
        return
    yield title
    yield from (f"  - {entry}" for entry in entries[:_SHOWN_MATCHES])
    if len(entries) > _SHOWN_MATCHES:
        yield f"  ({len(entries) - _SHOWN_MATCHES} more; -o json has all)"


def _backend(backend: ExplainedBackend) -> str:
    share = f"{backend.share:g} %" if backend.weight else "no requests"
    text = f"{backend.backend}, weight {backend.weight} ({share})"
    ready = f"{backend.ready} of {len(backend.endpoints)} endpoints ready"
    if backend.terminating:
        ready += f", {backend.terminating} used while terminating"
    text += f": {backend.problem or (ready if backend.endpoints else 'endpoints not known')}"
    addresses = [_endpoint(entry) for entry in backend.endpoints[:_SHOWN_ENDPOINTS]]
    more = [] if len(backend.endpoints) <= _SHOWN_ENDPOINTS else ["…"]
    return f"{text}: {', '.join(addresses + more)}" if addresses else text


def _endpoint(endpoint: ExplainedEndpoint) -> str:
    if endpoint.ready:
        return endpoint.address
    return f"{endpoint.address} ({'terminating' if endpoint.terminating else 'not ready'})"


def _data_plane(plane: ExplainedDataPlane) -> str:
    version = plane.confirmed_version or "unknown"
    text = (
        f"Pod {plane.pod}: {'ready' if plane.ready else 'not ready'}, confirmed version {version}"
    )
    return f"{text} ({plane.problem})" if plane.problem else text
