"""The controller: watch, snapshot, compile, deliver, status; where the pure parts meet the world.

- :mod:`~gatehouse.controller.main` wires everything together and is the only module that knows all;
- :mod:`~gatehouse.controller.options` says how a controller may be run, and what follows for data
  planes; :mod:`~gatehouse.controller.plus_usage` what of it is for NGINX Plus (pure);
- :mod:`~gatehouse.controller.compilation` holds the snapshot, turns changes into IR and statuses;
- :mod:`~gatehouse.controller.publisher` renders IR and hands bundles to the transport;
- :mod:`~gatehouse.controller.loop` decides when a pass runs and what follows from it;
  :mod:`~gatehouse.controller.deadlines` tells the compilation what time it is, where that matters;
- :mod:`~gatehouse.controller.programmed_condition` says what a report means for ``Programmed``
  (pure);
- :mod:`~gatehouse.controller.status_writer`, :mod:`~gatehouse.controller.gateway_provisioner` and
  :mod:`~gatehouse.controller.agent_identity` are the three that talk to the API server;
- :mod:`~gatehouse.controller.leader_election` says which of several controllers acts,
  :mod:`~gatehouse.controller.metrics` says what is measured,
  :mod:`~gatehouse.controller.certificate_events` tells of those that do not hold by Events, and
  :mod:`~gatehouse.controller.url_fetcher` brings what objects name by URL.

Semantics of objects belong to the front ends, text of configurations to the back ends, and wire
formats to the transports; none of them belongs here.
"""
