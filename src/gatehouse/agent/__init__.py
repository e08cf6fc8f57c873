"""The data-plane agent: one process that owns one NGINX or Envoy and obeys one control plane.

- ``nginx``, ``envoy``: the agent of each of the two; neither knows the other.

Here is what they share:

- ``options``, ``life``: how an agent is told what to do; what every agent's life has in it.
- ``channel``, ``reconnecting``: the connection, and another one for one that ended.
- ``companions``: the processes beside a proxy that do what it cannot.
- ``watched``, ``processes``, ``orphans``, ``lifetimes``: what proxies and companions are to the
  machine, and how long they are waited for.
- ``error_log``: what they say.
- ``run_directory``, ``private``, ``system_trust``: what is on disk, and for whom.
- ``health``, ``measurements``, ``pages``: /livez, /readyz, /metrics, and what is measured.

Never here: anything of the control plane but the wire definitions, what only one proxy needs, or
access to Kubernetes.
"""
