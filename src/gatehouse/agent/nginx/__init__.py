"""The agent that runs an NGINX.

- ``main``: the order of its life.
- ``connection``, ``link``, ``descriptions``, ``overviews``: the conversation with the control
  plane, what the agent says of itself, and what it is asked for.
- ``mailbox``: newest request wins. Pure.
- ``apply``, ``fetching``, ``confirmation``, ``steps``: from a request to a reload, or back.
- ``staging``: a generation made, and tested by NGINX.
- ``upstreams``: how endpoints reach a running NGINX. It asks for them (``endpoints``, ``live``,
  ``nameserver``, ``answers``); NGINX Plus is told (``plus``).
- ``generations``, ``manifests``, ``main_conf``, ``places``: what is on disk.
- ``binary``, ``master``, ``supervision``: the NGINX.
- ``metrics``: what both tell of themselves.

Never here: a parser of NGINX's language (``nginx -t`` is the judge). A new request of the protocol
is a case in ``link``; a new file on disk a method of ``generations``.
"""
