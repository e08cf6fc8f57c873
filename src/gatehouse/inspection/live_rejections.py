"""Objects that proxies rejected, as the conditions of live objects report them. No I/O.

The controller leaves such objects out of the configuration of a Gateway. An explanation must do the
same. Conditions name rules of routes and whole objects, and not which match was rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.compiler.ir.gateway import Credential
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.controller.quarantines import LEFT_OUT
from gatehouse.controller.stored_verdicts import OF_MATCH, StoredRejection, StoredVerdicts
from gatehouse.dataplane.origin import object_of
from gatehouse.incremental.query import Key
from kube_base.types.objects import Object

_NAMED = re.compile(rf" {re.escape(LEFT_OUT)}: (.*)")
_OBJECT = re.compile(r"([A-Z]\w*) (?:([a-z0-9.-]+)/)?([a-z0-9.:-]+?)(?:: port (\d+))?(?:,| and |$)")
_RULE = re.compile(r"rules\[(\d+)\]")


class LiveRejections:
    """Rejections by the proxies of all Gateways, as inputs of the front end."""

    def __init__(self, objects: Iterable[Object]) -> None:
        """Read the conditions of ``objects`` that are about their present generation."""
        self._objects: dict[Key, Object] = {_key(item): item for item in objects}
        self.inputs: dict[Key, Any] = {}
        self._credentials: list[tuple[Key, Key]] = []
        """Gateway, and the object that holds them."""
        verdicts = StoredVerdicts()
        for key, item in self._objects.items():
            verdicts.record(key, item)
        for key, item in self._objects.items():
            if key[0] == "Gateway":
                self._read_gateway(key, item)
                for rejected, rejection in verdicts.rejections(key):
                    self._leave_out(key, rejected, rejection)

    def credential_inputs(
        self, credentials: Mapping[Key, tuple[Credential, ...]]
    ) -> dict[Key, Any]:
        """Return the inputs about rejected credentials. ``credentials``: by Gateway."""
        return {
            gateway_api.rejected_credential_key(
                gateway, credential.name
            ): gateway_api.RejectedCredential(credential.name, "rejected by the proxy")
            for gateway, holder in self._credentials
            for credential in credentials.get(gateway, ())
            if any(gateway_api.key_of(origin) == holder for origin in credential.origins)
        }

    def _read_gateway(self, key: Key, item: Object) -> None:
        """Read the objects without a status of their own: ports and credentials."""
        ports: set[int] = set()
        generation = item["metadata"].get("generation")
        for entry in (item.get("status") or {}).get("conditions") or ():
            match = _NAMED.search(str(entry.get("message", "")))
            if match is None or entry.get("observedGeneration", generation) != generation:
                continue
            for kind, namespace, name, port in _OBJECT.findall(match[1]):
                if port:
                    ports.add(int(port))
                elif kind in gateway_api.CREDENTIAL_KINDS:
                    self._credentials.append((key, (kind, namespace, name)))
        if ports:
            self.inputs[gateway_api.rejected_ports_key(key)] = frozenset(ports)

    def _leave_out(self, gateway: Key, key: Key, rejection: StoredRejection) -> None:
        item = self._objects.get(key)
        if item is None:
            return
        if rejection.part:
            rejections_key = gateway_api.rejections_key(gateway, key)
            known = self.inputs.get(rejections_key, ())
            rejected = _of_rule(key, item, rejection)
            self.inputs[rejections_key] = tuple(dict.fromkeys((*known, *rejected)))
        elif key[0] not in gateway_api.ROUTE_KINDS:
            spec = getattr(combined.decode_object(key[0], item), "spec", None)
            if spec is not None:
                rejected_key = gateway_api.rejected_object_key(gateway, key)
                rejected_object = gateway_api.RejectedObject(key, spec, rejection.reason)
                self.inputs[rejected_key] = rejected_object


def _of_rule(key: Key, item: Object, rejection: StoredRejection) -> Iterator[Unsupported]:
    """Yield a finding for each match of a rule that a rejection may mean.

    Proxies reject patterns, so that others match if a match with a pattern was rejected.
    """
    number = _RULE.fullmatch(rejection.part)
    rules = item["spec"].get("rules") or ()
    if number is None or int(number[1]) >= len(rules):
        return
    matches = rules[int(number[1])].get("matches") or [{}]
    indexes = [*range(len(matches))]
    reason = rejection.reason
    if rejection.in_match:
        indexes = [index for index in indexes if _has_pattern(matches[index])] or indexes
        reason = f"{OF_MATCH}{reason}"
    for index in indexes:
        origin = object_of(key).field(f"{rejection.part}.matches[{index}]")
        yield Unsupported(origin, reason, rejected=True, in_match=rejection.in_match)


def _has_pattern(match: Object) -> bool:
    values = (*(match.get("headers") or ()), *(match.get("queryParams") or ()))
    parts = (match.get("path") or {}, match.get("method") or {}, *values)
    return any(isinstance(part, dict) and part.get("type") == "RegularExpression" for part in parts)


def _key(item: Object) -> tuple[str, str, str]:
    metadata = item["metadata"]
    return item["kind"], metadata.get("namespace", ""), metadata["name"]
