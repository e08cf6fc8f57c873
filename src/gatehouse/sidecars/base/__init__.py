"""Life cycle and control protocol of every sidecar.

A sidecar does for NGINX or Envoy what the proxy cannot do itself. The agent starts it when a
configuration first needs it, and sends it configurations before the proxy loads them. Agent and
sidecar can be replaced independently.

- ``service``: interface between a sidecar and its process.
- ``control``: control protocol between agent and sidecar.
- ``lifecycle``: start, run and shutdown. ``failure_log``: rate-limited error log.
- ``san_match``: subject alternative names of certificates. ``context_cache``: TLS contexts.
- ``sockets``: the listening sockets in a directory.

Never here: the function of one sidecar, or anything of the agent.
"""
