"""Dispatch policies as the script reads them: metadata of a virtual host, never program text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from google.protobuf import struct_pb2

from gatehouse.compiler.backends.envoy import names, quoting
from gatehouse.compiler.backends.envoy.protobufs import Json, written
from gatehouse.compiler.ir import kube_apiserver as ir


def policy_metadata(cluster: ir.ApiCluster) -> struct_pb2.Struct:
    """Return the script's configuration of a cluster. Raises InvalidValueError."""
    proto = struct_pb2.Struct()
    identity = cluster.identity
    proto.update(
        {
            "cluster": quoting.check_text(cluster.name),
            "denied": cluster.denied,
            "anonymous": identity.anonymous,
            "believed": bool(cluster.client_trust),
            "good_for": f"{identity.good_for:g}",
            "bad_for": f"{identity.bad_for:g}",
            "allowed_for": f"{identity.allowed_for:g}",
            "denied_for": f"{identity.denied_for:g}",
            "policies": [_policy(cluster, policy) for policy in cluster.policies],
        }
    )
    return proto


def script_version(data: struct_pb2.Struct) -> str:
    """Return a hash of the script's configuration: a new one makes the script read it again."""
    return hashlib.sha256(written(data)).hexdigest()[:24]


def subset(policy: ir.DispatchPolicy) -> str:
    """Return the name of a policy's set of servers; empty: all servers."""
    return names.short_digest(*sorted(policy.servers)) if policy.servers else ""


def _policy(cluster: ir.ApiCluster, policy: ir.DispatchPolicy) -> Json:
    return {
        "scope": names.flow_scope(cluster.name, policy.schema),
        "subset": subset(policy),
        "schema": quoting.check_text(policy.schema),
        "logged": policy.logged,
        "rules": [_rule(rule) for rule in policy.rules],
    }


def _rule(rule: ir.DispatchRule) -> Json:
    return {name: _names(getattr(rule, name)) for name in ir.DispatchRule.__struct_fields__}


def _names(values: ir.Names) -> Json:
    exact, prefixes = _possible(values.exact), _possible(values.prefixes)
    endings = [f"/{subresource}" for subresource in _possible(values.subresources)]
    if not exact and not prefixes and not endings:
        return values.others
    return {"exact": exact, "prefixes": prefixes, "endings": endings, "others": values.others}


def _possible(values: Iterable[str]) -> list[str]:
    """Drop values that no permitted request has: invalid Unicode, or with a zero byte."""
    return [value for value in values if "\0" not in value and _is_unicode(value)]


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
