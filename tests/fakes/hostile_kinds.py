"""Kinds of objects that the API server admits and whose values a proxy may refuse.

Each kind is one mistake or attack: a value of one field, alone in a namespace, on a Gateway that
all of them share.
"""

from __future__ import annotations

from fakes.hostile_authentication import AUTHENTICATION
from fakes.hostile_backends import INFERENCE_POOLS, X_BACKENDS
from fakes.hostile_filters import ROUTE_FILTERS
from fakes.hostile_forwarding import FORWARDING
from fakes.hostile_listeners import LISTENERS
from fakes.hostile_matches import ROUTE_MATCHES
from fakes.hostile_policies import TRAFFIC_POLICIES
from fakes.short_objects import Object

KINDS: dict[str, list[Object]] = {
    **ROUTE_MATCHES,
    **ROUTE_FILTERS,
    **FORWARDING,
    **X_BACKENDS,
    **INFERENCE_POOLS,
    **LISTENERS,
    **TRAFFIC_POLICIES,
    **AUTHENTICATION,
}
