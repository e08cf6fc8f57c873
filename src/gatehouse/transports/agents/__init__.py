"""What the dialects of NGINX agents share.

- :mod:`~gatehouse.transports.agents.events`: what a session hears, and what it has done.
- :mod:`~gatehouse.transports.agents.session`: what to tell one instance, and when. Pure.
- :mod:`~gatehouse.transports.agents.stream`: the way to one instance, however slow it is.
- :mod:`~gatehouse.transports.agents.main_file`: the file that NGINX begins with.
- :mod:`~gatehouse.transports.agents.publication`: the bundles of one gateway that may be fetched.
- :mod:`~gatehouse.transports.agents.fleet`: all gateways, their sessions, and the reports.
- :mod:`~gatehouse.transports.agents.token_auth`: who a token belongs to, remembered shortly.
- :mod:`~gatehouse.transports.agents.certificate_auth`: who a certificate belongs to.
- :mod:`~gatehouse.transports.agents.call_auth`: a call's caller, and the two directions of its
  stream.

Never here: wire messages, which are the dialects'; identities taken from what a client says of
itself. A new decision about an instance goes to ``session``.
"""
