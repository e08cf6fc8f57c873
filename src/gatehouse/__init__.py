"""Gatehouse: a control plane for all gateways in front of Kubernetes clusters.

Data flows in one direction: informers, snapshot, front end, IR, back end, transport, status.
``docs/concepts/architecture.md`` has a diagram. The docstring of each package states what belongs
there.
"""

__version__ = "0.1.0"
