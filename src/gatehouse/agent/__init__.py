"""Data-plane agent: one process that owns one NGINX or Envoy and follows one control plane.

- ``nginx``, ``envoy``: the agent of each proxy. Neither imports the other.

Shared by both:

- ``options``: configuration of an agent. ``lifecycle``: start-up, supervision and shutdown.
- ``channel``, ``reconnect``: the gRPC channel to the control plane, and the loop that restores it.
- ``sidecars``: helper processes that run beside the proxy.
- ``timeouts``: drain timeouts and restart back-off of the processes an agent runs.
- ``error_log``: error logs of the proxy and its sidecars.
- ``run_directory``, ``system_trust``: files and directories.

Never here: imports of the control plane other than the wire definitions, code that only one proxy
needs, or access to Kubernetes.
"""
