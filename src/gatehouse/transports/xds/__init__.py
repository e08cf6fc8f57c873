"""Envoys, and the relays in front of them: aggregated discovery, incremental and as a whole.

- :mod:`~gatehouse.transports.xds.fleet`: all gateways, their streams, and the reports.
- :mod:`~gatehouse.transports.xds.services`: the RPCs.

Never here: what is told and when, which is :mod:`gatehouse.xds`; identities taken from a node's id.
"""
