"""The shared counter: limits that all data planes draw from together, counted in a Redis.

It speaks Envoy's rate limit protocol. A descriptor says all of a limit, so that the counter has no
configuration; buckets are in Redis, so that it has no state, and as many may run as are wanted.

- ``descriptors``: which bucket a request is about. Pure.
- ``bucket.lua``: what becomes of a bucket, in Redis. ``buckets``: having it done, many at a time.
- ``outages``: whether Redis is there, and when it is looked for again. Pure.
- ``answering``: the protocol. ``measuring``: what is counted. ``serve``: the order of its life.

Never here: which limits there are, or what is done with a request that is over one.
"""
