"""Rate limit service: limits shared by all data planes, counted in Redis.

It implements Envoy's rate limit protocol. A descriptor contains the complete limit, so the service
needs no configuration. Token buckets are stored in Redis, so the service has no state, and any
number of replicas may run.

- ``messages``: parser of requests. ``descriptors``: their token buckets and limits. No I/O.
- ``bucket.lua``: the Redis script that takes tokens. ``token_buckets``: runs it in batches.
- ``redis_health``: availability of Redis, and when to probe it again. No I/O.
- ``service``: the protocol. ``metrics``: its metrics. ``main``: start, run and shutdown.

Never here: which limits exist, or what happens to a request over its limit.
"""
