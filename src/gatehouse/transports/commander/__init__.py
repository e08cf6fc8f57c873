"""NGINX Agent v2's protocol (Commander), as its management plane.

- :mod:`~gatehouse.transports.commander.messages`: commands and answers as wire messages.
- :mod:`~gatehouse.transports.commander.main_file`: the file that NGINX begins with, which agent v2
  is sent too.
- :mod:`~gatehouse.transports.commander.payload`: a bundle in the form that agent v2 fetches.
- :mod:`~gatehouse.transports.commander.services`: the RPCs.

Never here: when an instance is told what, which is :mod:`gatehouse.transports.agents`.
"""
