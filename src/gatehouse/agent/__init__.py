"""The data-plane agent: one process that owns one NGINX or Envoy and obeys one control plane.

- ``options``, ``main``, ``life``: how it is told what to do; the order of its life.
- ``channel``, ``link``, ``descriptions``: the connection, its sequence, what it says of itself.
- ``reconnecting``: another connection for one that ended, sooner or later.
- ``mailbox``: newest request wins. Pure.
- ``apply``, ``fetching``, ``confirmation``, ``steps``: from a request to a reload, or back.
- ``staging``: a generation made, and tested by NGINX.
- ``upstreams``: how endpoints reach a running NGINX. It asks for them (``endpoints``, ``live``,
  ``nameserver``, ``answers``); NGINX Plus is told (``plus``).
- ``generations``, ``main_conf``, ``places``, ``private``: what is on disk, and for whom.
- ``supervision``, ``master``, ``error_log``, ``nginx_binary``: the NGINX.
- ``companions``: the processes beside a proxy that do what it cannot.
- ``watched``, ``processes``, ``orphans``: what both are to the machine.
- ``envoy``: the agent that owns an Envoy instead.
- ``health``, ``measurements``, ``pages``: /livez, /readyz, /metrics, and what is measured.

Never here: anything of the control plane but the wire definitions, a parser of NGINX's language
(``nginx -t`` is the judge), or access to Kubernetes. A new request of the protocol is a case in
``link``; a new file on disk a method of ``generations``.
"""
