"""ADS for Envoys and the relays in front of them, in its delta and SotW variants.

- :mod:`~gatehouse.transports.xds.fleet`: resource sets, streams and reports of all Gateways.
- :mod:`~gatehouse.transports.xds.services`: the RPCs.

Never here: decisions about what to send and when (see :mod:`gatehouse.dataplane.xds`), or
identities taken from a node ID.
"""
