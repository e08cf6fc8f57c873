"""Envoy's discovery protocol (xDS) for both of its ends, without I/O.

- ``resources``: resources and resource sets. ``snapshot_cache``: newest set and change log.
- ``ads_session``: server-side state of one ADS stream. ``subscription``: of one type on it.
- ``delta``, ``sotw``: encoding of the two xDS variants. ``protobuf_wire``: protobuf by hand.
- ``nacks``: reasons of rejected resources. ``sidecar_configs``: configurations of sidecars.
- ``distinct_scopes``: copies of route scopes that Envoy does not skip as unchanged.
- ``runtime_limits``: Envoy runtime settings that resources rely on.

The control plane's server and the relay in the agent exchange these messages over gRPC; the Envoy
back end builds the resources. Nothing here opens a connection.
"""
