"""Management plane of the NGINX Agent v2 protocol (Commander).

- :mod:`~gatehouse.transports.commander.messages`: commands and responses as wire messages.
- :mod:`~gatehouse.transports.commander.main_file`: the main NGINX configuration file, which is
  sent to agent v2 too.
- :mod:`~gatehouse.transports.commander.payload`: a file set in the format that agent v2 fetches.
- :mod:`~gatehouse.transports.commander.services`: the RPCs.

Never here: decisions about what to send and when; see :mod:`gatehouse.transports.agents`.
"""
