"""Policies as the script reads them: data of a virtual host, never text of a program."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from google.protobuf import struct_pb2

from gatehouse.compiler.backends.envoy import names, quoting
from gatehouse.compiler.backends.envoy.protobufs import written
from gatehouse.compiler.ir import kube_apiserver as ir


def policy_metadata(cluster: ir.ApiCluster) -> struct_pb2.Struct:
    """Give everything that the script knows of a cluster. Raises InvalidValueError."""
    made = struct_pb2.Struct()
    identity = cluster.identity
    made.update(
        {
            "cluster": quoting.text(cluster.name),
            "denied": cluster.denied,
            "anonymous": identity.anonymous,
            "believed": bool(cluster.client_trust),
            "good_for": f"{identity.good_for:g}",
            "bad_for": f"{identity.bad_for:g}",
            "allowed_for": f"{identity.allowed_for:g}",
            "denied_for": f"{identity.denied_for:g}",
            "policies": [_policy(cluster, each) for each in cluster.policies],
        }
    )
    return made


def version(data: struct_pb2.Struct) -> str:
    """Name what the script is told: another name, and it is read again."""
    return hashlib.sha256(written(data)).hexdigest()[:24]


def subset(policy: ir.Policy) -> str:
    """Name the servers of a policy; empty for all of them."""
    return names.digest(*sorted(policy.servers)) if policy.servers else ""


def _policy(cluster: ir.ApiCluster, policy: ir.Policy) -> dict[str, Any]:
    return {
        "scope": names.flow_scope(cluster.name, policy.schema),
        "subset": subset(policy),
        "schema": quoting.text(policy.schema),
        "logged": policy.logged,
        "rules": [_rule(each) for each in policy.rules],
    }


def _rule(rule: ir.Rule) -> dict[str, Any]:
    return {name: _names(getattr(rule, name)) for name in ir.Rule.__struct_fields__}


def _names(found: ir.Names) -> Any:
    exact, prefixes = _sendable(found.exact), _sendable(found.prefixes)
    endings = [f"/{each}" for each in _sendable(found.subresources)]
    if not exact and not prefixes and not endings:
        return found.others
    return {"exact": exact, "prefixes": prefixes, "endings": endings, "others": found.others}


def _sendable(values: Iterable[str]) -> list[str]:
    """Leave out what no request has that is let through: what is no text, or has a zero byte."""
    return [each for each in values if "\0" not in each and _is_unicode(each)]


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
