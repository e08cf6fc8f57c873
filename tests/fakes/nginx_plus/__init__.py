"""A fake of NGINX Plus, for the tests of everything that speaks its REST API.

Written from its public documentation; real NGINX Plus cannot be had here. Where that leaves a text
or an order open (what a DELETE gives back, the wording of some errors) the choice is marked so.

- ``model``: upstreams, servers, key-value zones, and what they refuse. Pure, but for state files.
- ``addresses``: what a server's parameters may be.
- ``faults``: answers that are late, wrong or missing, for the requests that a test names.
- ``api``: the REST API, over TCP, TLS (also mutual) and unix sockets.
- ``bridge``: this API over the upstreams of a running open-source NGINX, which follows it. The
  module ``nginx_plus_binary``, beside this package, makes a program of both.

Never imported by the product, and imports nothing of it.
"""

from fakes.nginx_plus.api import Call, FakePlus
from fakes.nginx_plus.faults import Fault
from fakes.nginx_plus.model import ApiError, Keyval, Plus, Server, Upstream

__all__ = ["ApiError", "Call", "FakePlus", "Fault", "Keyval", "Plus", "Server", "Upstream"]
