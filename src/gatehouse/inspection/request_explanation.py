"""Explanation of the answer to a request, for objects as an API server shows them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from gatehouse.compiler.evaluation.explaining import no_listener_cause
from gatehouse.compiler.evaluation.explanation import Explanation
from gatehouse.compiler.evaluation.http_request import HttpRequest
from gatehouse.compiler.evaluation.l4_matching import L4Connection
from gatehouse.compiler.evaluation.selection import choose_explanation, explain_at_gateway
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.controller.offline import compile_pass, offline_engine
from gatehouse.incremental.query import Engine
from gatehouse.inspection.condition_summary import bad_conditions, condition_status, object_name
from gatehouse.inspection.errors import InspectionError
from gatehouse.inspection.live_rejections import LiveRejections
from gatehouse.inspection.object_set import ObjectSet
from kube_base.types import ip_addresses
from kube_base.types.objects import Object

_PORTS = {"http": 80, "https": 443, "tls": 443}
_L4_PROTOCOLS: Mapping[str, Literal["TCP", "UDP", "TLS"]] = {
    "tls": "TLS",
    "tcp": "TCP",
    "udp": "UDP",
}


class ExplainedTarget(msgspec.Struct, frozen=True):
    """The request of a command line."""

    scheme: str
    host: str
    """Host of the URL, without port."""
    port: int
    subject: HttpRequest | L4Connection


def parse_request_target(
    words: tuple[str, ...], headers: tuple[str, ...], sni: str | None, client: str
) -> ExplainedTarget:
    """Return the request of a command line. Raises InspectionError."""
    if len(words) > 2:
        raise InspectionError(f"{' '.join(words)!r} must be a URL, or a method and a URL")
    url = words[-1]
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError as error:
        raise InspectionError(f"{url!r}: {error}") from error
    if parts.scheme not in (*_PORTS, *_L4_PROTOCOLS) or not parts.hostname:
        raise InspectionError(
            f"{url!r} must be a URL such as https://shop.example/api or tls://db.example:5432"
        )
    if port is None:
        raise InspectionError(f"{url!r} must contain a port")
    name = parts.hostname if sni is None else sni
    _check_client(client)
    if parts.scheme in _L4_PROTOCOLS:
        if len(words) == 2 or headers:
            raise InspectionError(f"{url!r}: a method or headers need http or https")
        protocol = _L4_PROTOCOLS[parts.scheme]
        connection = L4Connection(protocol, port, name if protocol == "TLS" else "", client)
        return ExplainedTarget(parts.scheme, parts.hostname, port, connection)
    tls = parts.scheme == "https"
    fields = tuple(_header(text) for text in headers)
    host = next((value for name, value in fields if name.lower() == "host"), parts.netloc)
    target = parts.path or "/"
    http_request = HttpRequest(
        words[0].upper() if len(words) == 2 else "GET",
        host.rpartition("@")[2],
        f"{target}?{parts.query}" if parts.query else target,
        port,
        tls,
        name if tls and not _is_address(name) else "",
        fields,
        client,
    )
    return ExplainedTarget(parts.scheme, parts.hostname, port, http_request)


def _check_client(client: str) -> None:
    if client and not _is_address(client):
        raise InspectionError(f"--client: {client!r} must be an IP address")


def _is_address(text: str) -> bool:
    try:
        ip_addresses.ip_address(text)
    except ValueError:
        return False
    return True


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise InspectionError(f"--header: {text!r} must be Name: value")
    return name.strip(), value.strip()


def explain_target(
    resolved: ObjectSet, target: ExplainedTarget, gateway: str, *, offline: bool
) -> Explanation:
    """Return the explanation for objects, at a Gateway or at that which fits best.

    Raises InspectionError if there is no such Gateway.
    """
    engine = live_engine(resolved.objects)
    with compile_pass(engine) as ask:
        keys = list(ask(gateway_api.gateways))
        if gateway:
            keys = [key for key in keys if f"{key[1]}/{key[2]}" == gateway]
        if not keys:
            raise InspectionError(_missing_gateway(resolved, gateway))
        every = [ask(explain_at_gateway, key, target.subject, offline) for key in keys]
    explanation = choose_explanation(every, target.host)
    if not offline:
        gateway_object = existing_gateway(resolved, explanation.gateway)
        explanation = unless_programmed(gateway_object, explanation, target.port)
    notes = (*explanation.notes, *conditions_of(resolved, explanation), *resolved.notes)
    return msgspec.structs.replace(explanation, notes=notes)


def live_engine(objects: list[Object]) -> Engine:
    """Return an engine with objects, without what proxies rejected according to conditions."""
    engine = offline_engine(objects)
    rejections = LiveRejections(objects)
    engine.commit(rejections.inputs)
    with compile_pass(engine) as ask:
        compiled = {
            key: ask(combined.compile_combined_gateway, key) for key in ask(gateway_api.gateways)
        }
    credentials = {key: gateway.credentials for key, gateway in compiled.items() if gateway}
    engine.commit(rejections.credential_inputs(credentials))
    return engine


def existing_gateway(objects: ObjectSet, name: str) -> Object:
    """Return a Gateway, which exists. ``name``: namespace/name."""
    gateways = objects.of_kind("Gateway")
    return next(item for item in gateways if object_name(item) == f"Gateway {name}")


def unless_programmed(gateway: Object, explanation: Explanation, port: int) -> Explanation:
    """Return the explanation, which names the reason if the Gateway or the port is not programmed.

    Its data plane may still serve an earlier configuration, so that the answer is uncertain.
    """
    conditions = (gateway.get("status") or {}).get("conditions")
    status, message = condition_status(conditions, "Programmed")
    if status == "True":
        return _unless_port_is_rejected(gateway, explanation, port)
    cause = f"Gateway {explanation.gateway} is not programmed: {message}"
    cause = f"{cause}; once it is: {explanation.answer.cause}"
    answer = msgspec.structs.replace(explanation.answer, verdict="mixed", cause=cause)
    return msgspec.structs.replace(explanation, answer=answer)


def _unless_port_is_rejected(gateway: Object, explanation: Explanation, port: int) -> Explanation:
    """Return the explanation, which names the reason if no listener of a port is programmed."""
    names = {item["name"] for item in gateway["spec"]["listeners"] if item["port"] == port}
    statuses = [
        condition_status(entry.get("conditions"), "Programmed")
        for entry in (gateway.get("status") or {}).get("listeners") or ()
        if entry["name"] in names
    ]
    answer = explanation.answer
    is_left_out = answer.cause == no_listener_cause(port)
    is_explained = answer.verdict == "no-answer" and not is_left_out
    if not statuses or is_explained or any(status != "False" for status, _ in statuses):
        return explanation
    # The message starts with the name of the listener.
    cause = f"no answer: Gateway {explanation.gateway}: {statuses[0][1]}"
    if not is_left_out:
        cause = f"{cause}; once it is programmed: {answer.cause}"
    verdict = answer.verdict if is_left_out else "mixed"
    answer = msgspec.structs.replace(answer, verdict=verdict, cause=cause)
    return msgspec.structs.replace(explanation, answer=answer)


def _missing_gateway(resolved: ObjectSet, gateway: str) -> str:
    for entry in resolved.of_kind("Gateway"):
        name = f"{entry['metadata']['namespace']}/{entry['metadata']['name']}"
        if name == gateway:
            class_name = entry["spec"].get("gatewayClassName")
            return (
                f"Gateway {gateway} is not managed: its GatewayClass {class_name} does not exist "
                "or names another controller"
            )
    if gateway:
        return f"Gateway {gateway} not found"
    names = ", ".join(sorted(entry["metadata"]["name"] for entry in resolved.of_kind("Gateway")))
    return f"no Gateway that Gatehouse manages{f' among {names}' if names else ''}"


def conditions_of(resolved: ObjectSet, explanation: Explanation) -> tuple[str, ...]:
    """Return the conditions that are not good of the Gateway and the matched route."""
    names = {f"Gateway {explanation.gateway}", explanation.match.partition(":")[0]}
    result = []
    for entry in resolved.objects:
        metadata = entry["metadata"]
        if f"{entry['kind']} {metadata.get('namespace', '')}/{metadata['name']}" in names:
            result += [problem.text for problem in bad_conditions(entry)]
    return tuple(result)
