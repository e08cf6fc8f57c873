"""Endpoint pickers of model servers: Envoy's ``ext_proc`` asks them (Endpoint Picker Protocol 1.0).

A picker gets the whole request and names endpoints in the header and the dynamic metadata below.
Envoy looks these up among the endpoints of the cluster, so that a picker cannot name others. The
filter runs in a place that every chain has, and the route of a pool alone configures it.
"""

from __future__ import annotations

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import health_check_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.filters.http.ext_proc.v3 import ext_proc_pb2, processing_mode_pb2
from envoy.extensions.filters.http.header_mutation.v3 import header_mutation_pb2
from envoy.extensions.filters.http.header_to_metadata.v3 import header_to_metadata_pb2
from envoy.extensions.load_balancing_policies.least_request.v3 import least_request_pb2
from envoy.extensions.load_balancing_policies.override_host.v3 import override_host_pb2
from envoy.type.metadata.v3 import metadata_pb2
from google.protobuf.message import Message
from xds.type.matcher.v3 import matcher_pb2

from gatehouse.compiler.backends.envoy import extensions, filter_matchers, headers, quoting
from gatehouse.compiler.backends.envoy.protobufs import http_status, packed, wrap_number
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.endpoint_pickers import PICKED_ENDPOINT, PICKER_NAMESPACE

BODY = "gh.body"
"""Filter of every chain that routes configure to hold bodies, or to send them to a picker."""

FORWARDED = "gh.forwarded"
"""Filter of every chain that sets headers for backends, and changes responses before others do."""

_SERVED_HEADER = "x-gh-endpoint-served"

PICKER_CHECK_SECONDS = 1.0
"""Interval and timeout of checks of a picker."""

_Mode = processing_mode_pb2.ProcessingMode
_Processor = ext_proc_pb2.ExternalProcessor
_Source = override_host_pb2.OverrideHost.OverrideHostSource


def ask_picker(
    proto: components.Route | components.WeightedCluster.ClusterWeight, picker: ir.EndpointPicker
) -> None:
    """Have a picker choose the endpoint."""
    removal = mutation_rules_pb2.HeaderMutation(remove=PICKED_ENDPOINT)
    # Clients must not choose: not when the picker fails, either.
    filters = [
        extensions.extension(
            "envoy.filters.http.header_mutation",
            extensions.request_mutations([removal]),
        ),
        extensions.extension("envoy.filters.http.ext_proc", _processor(picker)),
        # For responses, filters run in reverse order. A filter after one that waits gets nothing
        # but responses.
        extensions.extension("envoy.filters.http.header_to_metadata", _served_endpoint()),
    ]
    matcher = matcher_pb2.Matcher(on_no_match=filter_matchers.run_filters(filters))
    proto.typed_per_filter_config[BODY].CopyFrom(filter_matchers.per_route(matcher))
    address = headers.option(_SERVED_HEADER, "%UPSTREAM_REMOTE_ADDRESS%")
    mutation = mutation_rules_pb2.HeaderMutation(append=address)
    served = header_mutation_pb2.Mutations(response_mutations=[mutation])
    proto.typed_per_filter_config[FORWARDED].CopyFrom(
        packed(header_mutation_pb2.HeaderMutationPerRoute(mutations=served))
    )


def has_picker(action: ir.Action) -> bool:
    """Return whether a picker chooses the endpoint of requests to one of the backends."""
    return isinstance(action, ir.Forward) and any(
        backend.picker is not None for backend in action.backends
    )


def _served_endpoint() -> header_to_metadata_pb2.Config:
    """Return the filter that tells the picker which endpoint answered a request."""
    rule = header_to_metadata_pb2.Config.Rule(
        header=_SERVED_HEADER,
        on_header_present=header_to_metadata_pb2.Config.KeyValuePair(
            metadata_namespace=PICKER_NAMESPACE,
            key=f"{PICKED_ENDPOINT}-served",
            type=header_to_metadata_pb2.Config.STRING,
        ),
        remove=True,
    )
    return header_to_metadata_pb2.Config(response_rules=[rule])


def _processor(picker: ir.EndpointPicker) -> _Processor:
    proto = _Processor(
        processing_mode=_Mode(
            request_header_mode=_Mode.SEND,
            request_body_mode=_Mode.FULL_DUPLEX_STREAMED,
            request_trailer_mode=_Mode.SEND,
            response_header_mode=_Mode.SEND,
            response_body_mode=_Mode.FULL_DUPLEX_STREAMED,
            response_trailer_mode=_Mode.SEND,
        ),
        failure_mode_allow=picker.fail_open,
        # A header that a picker changes selects no other route.
        route_cache_action=_Processor.RETAIN,
        status_on_error=http_status(503),
    )
    proto.grpc_service.envoy_grpc.cluster_name = picker.cluster
    proto.metadata_options.receiving_namespaces.untyped.append(PICKER_NAMESPACE)
    proto.metadata_options.forwarding_namespaces.untyped.append(PICKER_NAMESPACE)
    return proto


def check_connections(proto: cluster_pb2.Cluster) -> None:
    """Have Envoy connect to a picker every second, and ask only one that accepts the connection.

    Envoy keeps no copy of a body, so that it can do without a picker only before it has sent a part
    of the body. It would send one while it still waits for the connection.

    By default, Envoy would use a new picker a second after it was checked, and one that ends until
    it no longer accepts connections.
    """
    check = proto.health_checks.add(tcp_health_check=health_check_pb2.HealthCheck.TcpHealthCheck())
    for time in (check.timeout, check.interval, check.no_traffic_interval):
        time.CopyFrom(quoting.duration_of(PICKER_CHECK_SECONDS))
    check.healthy_threshold.CopyFrom(wrap_number(1))
    check.unhealthy_threshold.CopyFrom(wrap_number(1))
    proto.common_lb_config.healthy_panic_threshold.SetInParent()
    proto.common_lb_config.update_merge_window.SetInParent()
    proto.ignore_health_on_host_removal = True


def picked_endpoints() -> cluster_pb2.LoadBalancingPolicy:
    """Return the policy that uses the picked endpoints in their order, and else the endpoint with
    the fewest requests."""
    key = metadata_pb2.MetadataKey(
        key=PICKER_NAMESPACE, path=[metadata_pb2.MetadataKey.PathSegment(key=PICKED_ENDPOINT)]
    )
    policy = override_host_pb2.OverrideHost(
        override_host_sources=[_Source(metadata=key), _Source(header=PICKED_ENDPOINT)],
        fallback_policy=_policy("least_request", least_request_pb2.LeastRequest()),
    )
    return _policy("override_host", policy)


def _policy(name: str, message: Message) -> cluster_pb2.LoadBalancingPolicy:
    config = extensions.extension(f"envoy.load_balancing_policies.{name}", message)
    policy = cluster_pb2.LoadBalancingPolicy.Policy(typed_extension_config=config)
    return cluster_pb2.LoadBalancingPolicy(policies=[policy])
