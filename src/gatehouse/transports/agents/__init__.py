"""Parts shared by the protocols of NGINX agents.

- :mod:`~gatehouse.transports.agents.events`: input events and effects of a session.
- :mod:`~gatehouse.transports.agents.session`: state of one instance; decides what to send and
  when. No I/O.
- :mod:`~gatehouse.transports.agents.stream`: outgoing messages of one instance's stream.
- :mod:`~gatehouse.transports.agents.main_file`: generator of the main NGINX configuration file.
- :mod:`~gatehouse.transports.agents.publication`: file sets of one Gateway that may be fetched.
- :mod:`~gatehouse.transports.agents.fleet`: sessions and reports of all Gateways.
- :mod:`~gatehouse.transports.agents.token_auth`: authentication by token, with a cache.
- :mod:`~gatehouse.transports.agents.certificate_auth`: authentication by client certificate.
- :mod:`~gatehouse.transports.agents.call_auth`: authorization of calls, and serving a stream.

Never here: wire messages, which belong to the protocols, or identities that a client claims without
proof. A new decision about an instance belongs in ``session``.
"""
