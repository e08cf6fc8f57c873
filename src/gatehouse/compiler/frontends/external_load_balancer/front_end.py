"""The record of this front end: its kinds, in views of its own.

The status of an ExternalLoadBalancer also depends on reports of its hosts. The controller patches
it when they arrive.
"""

from __future__ import annotations

from gatehouse.apis import core, external_load_balancers, external_services, resources
from gatehouse.compiler.frontends.external_load_balancer.inputs import (
    balancer_buckets,
    node_buckets,
    service_buckets,
    slice_buckets,
)
from gatehouse.compiler.frontends.external_load_balancer.status import merge_balancer_status
from gatehouse.compiler.frontends.front_end import FrontEnd
from gatehouse.compiler.frontends.kinds import Kind, Kinds

LOAD_BALANCER_FRONT_END = FrontEnd(
    Kinds(
        Kind(
            resources.SERVICES,
            external_services.ExternalService,
            indexes=(service_buckets,),
            required=True,
        ),
        Kind(
            resources.ENDPOINT_SLICES,
            external_services.ExternalEndpointSlice,
            indexes=(slice_buckets,),
            required=True,
        ),
        Kind(resources.NODES, external_services.Node, indexes=(node_buckets,), required=True),
        Kind(resources.SECRETS, core.Secret, required=True),
        Kind(resources.CONFIG_MAPS, core.ConfigMap, indexes=(balancer_buckets,), required=True),
        Kind(
            resources.EXTERNAL_LOAD_BALANCERS,
            external_load_balancers.ExternalLoadBalancer,
            indexes=(balancer_buckets,),
            patches_status=True,
        ),
    ),
    merge_balancer_status,
)

LOAD_BALANCER_KINDS = LOAD_BALANCER_FRONT_END.kinds.resources
LOAD_BALANCER_INDEXES = LOAD_BALANCER_FRONT_END.kinds.indexes
decode_balancer_object = LOAD_BALANCER_FRONT_END.kinds.decode
