"""Gatehouse on one machine without a cluster.

- :mod:`~gatehouse.standalone.up`: body of ``gatehouse up``.
- :mod:`~gatehouse.standalone.state_directory`: paths and lock of an installation's directory.
- :mod:`~gatehouse.standalone.pki`: certificates and keys.
- :mod:`~gatehouse.standalone.supervisor`: runs the processes of the control plane, recorded by
  :mod:`~gatehouse.standalone.process_records`.
- :mod:`~gatehouse.standalone.node`: data planes and addresses of the machine.
- :mod:`~gatehouse.standalone.free_ports` and :mod:`~gatehouse.standalone.echo`: helpers for
  demonstrations and tests.

Never here: different semantics of objects between standalone and cluster.
"""
