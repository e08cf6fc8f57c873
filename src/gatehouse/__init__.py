"""Gatehouse: one control plane for every gateway in front of a Kubernetes estate.

Data flows one way: watch, snapshot, front end, IR, back end, transport, status.
``docs/architecture.md`` draws it; every package's docstring says what belongs there.
"""

__version__ = "0.1.0"
