"""Gatehouse: a control plane for all gateways in front of Kubernetes clusters.

Data flows in one direction: informers, snapshot, front end, IR, back end, transport, status.
``docs/concepts/architecture.md`` has a diagram. The docstring of each package states what belongs
there.
"""

from kube_base.runtime import time_limits

__version__ = "0.1.0"

TIME_FACTOR_VARIABLE = "GATEHOUSE_TIME_FACTOR"
"""Environment variable with the factor of time limits, for tests and for emulators. Default: 1."""

# Here, since the limits of modules are constants, which depend on it.
time_limits.read_time_factor("gatehouse", TIME_FACTOR_VARIABLE)
