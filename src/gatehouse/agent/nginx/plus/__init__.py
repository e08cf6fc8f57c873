"""NGINX Plus in the agent: endpoint updates by its API instead of DNS and reloads.

- ``client``: requests to the API, on the Unix socket that the agent's main file declares.
- ``server_diff``: servers to add, change and remove in an upstream. No I/O.
- ``state_files``: initial servers of upstreams. ``keyvals``: key-value zones.
- ``upstreams``: synchronization of endpoints and key-value zones of a revision.
- ``actions``: requests of the control plane that change upstreams directly.
- ``metrics``: metrics of NGINX Plus.

Never here: the order of an apply, which is in ``agent.nginx.apply``; anything of open-source NGINX.
"""
