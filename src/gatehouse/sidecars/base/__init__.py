"""What the processes beside a proxy have in common: how they live, are told, and say what fails.

A companion does for NGINX or Envoy what that cannot do itself. The agent starts it when a
configuration first needs it, tells it of configurations before the proxy meets them, and either may
be replaced while the other goes on.

- ``service``: what a companion is to its process.
- ``control``: how the agent tells it what to do.
- ``life``: the order of its life. ``failures``: what is said of what failed.

Never here: what one companion does (:mod:`gatehouse.connector`, :mod:`gatehouse.authenticator`), or
anything of the agent.
"""
