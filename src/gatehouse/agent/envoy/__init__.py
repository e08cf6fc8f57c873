"""Agent that runs an Envoy.

- ``main``: start-up and shutdown order.
- ``relay``: xDS relay between the control plane and Envoy. No I/O.
- ``resource_cache``: resources held for Envoy, resources Envoy accepted, and names still open. No
  I/O.
- ``upstream``, ``downstream``: the relay's gRPC client and server.
- ``resource_store``: accepted resources on disk, for when the control plane is unavailable.
- ``sidecar_resources``: sidecar configurations received and accepted. No I/O. ``sidecar_manager``:
  applies them.
- ``served_check``: comparison of what Envoy confirmed with what its admin interface shows;
  ``served_listeners``: of the content of listeners; ``listener_digests``, ``served_endpoints``:
  comparable forms of listeners and endpoints. No I/O.
- ``bootstrap``, ``binary``, ``supervisor``, ``admin``, ``paths``: the Envoy process.
- ``metrics``, ``kube_metrics``: metrics of the agent and Envoy.

Never here: knowledge of the content of resources. The relay carries whatever types Envoy subscribes
to.
"""
