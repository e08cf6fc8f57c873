"""NGINX Plus beside the agent: its API in place of a name server and of reloads.

- ``api``: requests to the API, on the unix socket that the agent's main file declares.
- ``servers``: what must be added, changed and removed in an upstream. Pure.
- ``state``: state files, with which upstreams begin.
- ``upstreams``: endpoints and key-value zones of generations, kept in step.
- ``actions``: requests of the control plane that name upstreams themselves.
- ``metrics``: what NGINX Plus counts.

Never here: the order of an apply, which is ``agent.nginx.apply``'s; anything of the open-source
NGINX.
"""
