"""Envoy: the IR as xDS resources.

Reading order: :mod:`generate` (which resources), :mod:`listeners` (ports and filter chains),
:mod:`connections` (how HTTP is spoken to clients), :mod:`scopes` (one virtual host), :mod:`routes`
with :mod:`matching`, :mod:`actions`, :mod:`rewriting`, :mod:`headers` and :mod:`cors` (one route),
:mod:`guards` (what stands before it) with :mod:`authentication` and :mod:`authenticating`,
:mod:`clusters`, :mod:`secrets`, :mod:`streams`.
Kube-apiservers are a room of their own, :mod:`kubernetes`.

Values from objects are checked and escaped in :mod:`quoting` alone, names come from :mod:`names`
alone. What a connection depends on never changes with routes: all filters stand in every chain and
do nothing until a route gives them work. Never here: I/O, Kubernetes, YAML.
"""

from gatehouse.compiler.backends.envoy.capabilities import Capabilities
from gatehouse.compiler.backends.envoy.generator import Generated, Generator

__all__ = ["Capabilities", "Generated", "Generator"]
