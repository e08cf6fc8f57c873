"""Front ends: what users write becomes IR and findings. Pure; they know nothing of proxies.

One package per API that users write. Each names the kinds it reads and offers queries over the
snapshot (:mod:`gatehouse.query`); the controller asks them.
"""
