"""Translation of dispatch policies to IR, with the origin of each policy."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.frontends.upstream_cluster import (
    auth_cache_ttls,
    feature_gates,
    flow_control,
    http2_streams,
    rules,
    servers,
)
from gatehouse.compiler.frontends.upstream_cluster.findings import (
    ClusterFinding,
    ClusterReason,
)
from gatehouse.compiler.ir.kube_apiserver import (
    DEFAULT_HTTP2_STREAMS,
    AuthCacheTTLs,
    DispatchPolicy,
    DispatchRule,
    FlowSchema,
)


class PolicyOrigin(msgspec.Struct, frozen=True):
    """Origin of an IR policy in the object."""

    index: int
    rules: tuple[int, ...]
    """Index of each of its rules."""


class RequestPolicy(msgspec.Struct, frozen=True):
    """Translation of an object's fields about requests, the same for all Gateways."""

    policies: tuple[DispatchPolicy, ...] = ()
    origins: tuple[PolicyOrigin, ...] = ()
    """Origin of each policy."""
    schemas: tuple[FlowSchema, ...] = ()
    servers: servers.ReadServers = servers.ReadServers()
    denied: bool = False
    identity: AuthCacheTTLs = AuthCacheTTLs()
    streams: int = DEFAULT_HTTP2_STREAMS
    findings: tuple[ClusterFinding, ...] = ()


def translate_policies(
    annotations: dict[str, str],
    spec: api.UpstreamClusterSpec,
    spanning: flow_control.SharedLimits = flow_control.LOCAL,
    previous_gates: Collection[str] = (),
) -> RequestPolicy:
    """Translate an object. Invalid parts are omitted and reported as findings.

    ``previous_gates``: the feature gates that were on before.
    """
    gates = feature_gates.parse_feature_gates(annotations, previous_gates)
    ttls = auth_cache_ttls.parse_cache_ttls(annotations)
    streams, stream_problems = http2_streams.parse_streams(annotations)
    listed = servers.translate_servers(spec.servers)
    spanning = msgspec.structs.replace(spanning, gate=gates.spanning)
    schemas, problems = _schemas(spec.flow_control, spanning)
    result: list[tuple[DispatchPolicy, PolicyOrigin]] = []
    differences = _own_limits(spec.client_config)
    differences += [f"annotation {api.FEATURE_GATES}: {entry}" for entry in gates.differences]
    for index, policy in enumerate(spec.dispatch_policies):
        where = f"spec.dispatchPolicies[{index}]"
        compiled_rules = _rules(policy, where, problems, differences)
        if compiled_rules:
            subset = _subset(policy, where, listed, problems, differences)
            schema = _schema_of(policy, where, schemas, problems)
            logged = _logged(spec.logging.mode, policy.log_mode)
            built = DispatchPolicy(
                tuple(rule for _, rule in compiled_rules), subset, schema, logged
            )
            result.append((built, PolicyOrigin(index, tuple(at for at, _ in compiled_rules))))
        else:
            problems.append(f"{where}: no rule can match a request")
    named = {policy.schema for policy, _ in result}
    problems += [f"spec.{problem}" for problem in listed.problems]
    problems += [f"annotation {api.FEATURE_GATES}: {problem}" for problem in gates.problems]
    problems += [*ttls.problems, *stream_problems]
    return RequestPolicy(
        policies=tuple(policy for policy, _ in result),
        origins=tuple(origin for _, origin in result),
        schemas=tuple(s for name, s in sorted(schemas.items()) if s is not None and name in named),
        servers=listed,
        denied=gates.deny,
        identity=ttls.identity,
        streams=streams,
        findings=(
            *(ClusterFinding(ClusterReason.PARTIALLY_INVALID, problem) for problem in problems),
            *(ClusterFinding(ClusterReason.DIFFERS, difference) for difference in differences),
        ),
    )


def _own_limits(config: api.ClientConfig) -> list[str]:
    """Return the differences of limits of the gateway's own requests, such as health checks."""
    limits = {"qps": config.qps, "burst": config.burst, "qpsDivisor": config.qps_divisor}
    return [
        f"spec.clientConfig.{name}: {value} has no effect; KubeGateway limits its own requests"
        for name, value in limits.items()
        if value
    ]


def _schemas(
    control: api.FlowControl, spanning: flow_control.SharedLimits
) -> tuple[dict[str, FlowSchema | None], list[str]]:
    result: dict[str, FlowSchema | None] = {}
    problems: list[str] = []
    for index, schema in enumerate(control.schemas):
        where = f"spec.flowControl.flowControlSchemas[{index}] ({schema.name!r})"
        if not schema.name:
            problems.append(f"{where}: name must not be empty")
        elif schema.name in result:
            problems.append(f"{where}: name must be unique")
        else:
            parsed = flow_control.translate_schema(schema, spanning)
            result[schema.name] = parsed.schema
            problems += [f"{where}: {problem}" for problem in parsed.problems]
    return result, problems


def _rules(
    policy: api.DispatchPolicySpec, where: str, problems: list[str], differences: list[str]
) -> list[tuple[int, DispatchRule]]:
    result = []
    for index, rule in enumerate(policy.rules):
        read = rules.translate_rule(rule)
        place = f"{where}.rules[{index}]"
        status = place if read.rules else f"{place} is rejected"
        problems += [f"{status}: {problem}" for problem in read.problems]
        differences += [f"{place}.{difference}" for difference in read.differences]
        result += [(index, compiled) for compiled in read.rules]
    return result


def _subset(
    policy: api.DispatchPolicySpec,
    where: str,
    listed: servers.ReadServers,
    problems: list[str],
    differences: list[str],
) -> tuple[str, ...]:
    """Return the servers of a policy. If none of them is known, no server is used."""
    if policy.upsteam_subset and not policy.upstream_subset:
        message = "upsteamSubset is supported; KubeGateway ignores it and uses all servers"
        differences.append(f"{where}: {message}")
    for endpoint in policy.subset:
        if endpoint not in listed.known:
            problems.append(f"{where}.upstreamSubset: {endpoint!r} not found in spec.servers")
    return tuple(sorted(set(policy.subset)))


def _schema_of(
    policy: api.DispatchPolicySpec,
    where: str,
    schemas: dict[str, FlowSchema | None],
    problems: list[str],
) -> str:
    name = policy.flow_control_schema_name
    if not name or (name in schemas and schemas[name] is None):
        return ""
    if name not in schemas:
        problems.append(
            f"{where}.flowControlSchemaName: {name!r} not found in "
            "spec.flowControl.flowControlSchemas; requests of the policy are rejected"
        )
        schemas[name] = FlowSchema(name, flow_control.REJECT_ALL)
    return name


def _logged(cluster: str, policy: str) -> bool:
    """Return whether requests are logged: ``off`` overrides ``on``, the default is no."""
    return "off" not in (cluster, policy) and "on" in (cluster, policy)
