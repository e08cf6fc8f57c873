"""NGINX: the IR as files under ``gatehouse/`` of its configuration directory.

Reading order: :mod:`generate` (which files), :mod:`servers` (one virtual host), :mod:`locations`
(which route a path leads to), :mod:`conditions`, :mod:`decisions` and :mod:`dispatch` (which of
several), :mod:`actions` with :mod:`headers` and :mod:`rewriting` (what a route does),
:mod:`upstreams`. Text comes from :mod:`tree` alone, escaping from :mod:`quoting` alone, names from
:mod:`names` alone. A new ability is a module with functions from IR to directives; what an NGINX
may lack is a property of :mod:`capabilities`. Never here: I/O, Kubernetes, templates.
"""

from gatehouse.compiler.backends.nginx.capabilities import Capabilities
from gatehouse.compiler.backends.nginx.generator import Generated, Generator

__all__ = ["Capabilities", "Generated", "Generator"]
