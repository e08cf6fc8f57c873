"""A fake of NGINX Plus, for the tests of everything that speaks its REST API.

Written from its public documentation; real NGINX Plus cannot be had here. Where that leaves a text
or an order open (what a DELETE gives back, the wording of some errors) the choice is marked so.

- ``model``: upstreams, servers, key-value zones, and what they refuse. Pure, but for state files.
- ``addresses``: what a server's parameters may be.
- ``faults``: answers that are late, wrong or missing, for the requests that a test names.
- ``api``: the REST API, over TCP, TLS (also mutual) and unix sockets.
- ``bridge``: a program that passes for NGINX Plus: the open-source NGINX with this API beside it.

Never imported by the product, and imports nothing of it.
"""

from nginx_plus.api import Call, FakePlus
from nginx_plus.faults import Fault
from nginx_plus.model import ApiError, Keyval, Plus, Server, Upstream

__all__ = ["ApiError", "Call", "FakePlus", "Fault", "Keyval", "Plus", "Server", "Upstream"]
