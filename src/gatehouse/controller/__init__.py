"""The controller: watches objects, compiles them, delivers configuration and writes status.

Process and loop:

- :mod:`~gatehouse.controller.main` builds and connects all parts; only it imports all of them.
- :mod:`~gatehouse.controller.options` holds the options of a controller and derives the settings
  of front ends and provisioner; :mod:`~gatehouse.controller.plus_usage` those of NGINX Plus.
- :mod:`~gatehouse.controller.informers` holds the informers of all watched kinds.
- :mod:`~gatehouse.controller.loop` decides when a compile pass runs and distributes its result.
- :mod:`~gatehouse.controller.compilation` holds the snapshot and computes IR and statuses from it.
- :mod:`~gatehouse.controller.deadlines` tells the compilation which points in time have passed.

Delivery:

- :mod:`~gatehouse.controller.pipelines` combine back end and transport, one per kind of proxy.
- :mod:`~gatehouse.controller.publisher` publishes Gateways over pipelines and numbers versions.
- :mod:`~gatehouse.controller.agent_identity` authenticates agents by their tokens.
- :mod:`~gatehouse.controller.load_balancers` configures load balancers outside the cluster.

Writes to the API server:

- :mod:`~gatehouse.controller.status_writer` writes statuses;
  :mod:`~gatehouse.controller.deferred_status` holds them back until data planes have confirmed,
  :mod:`~gatehouse.controller.programmed_condition` computes the state of ``Programmed``.
- :mod:`~gatehouse.controller.gateway_provisioner` reconciles data planes by
  :mod:`~gatehouse.controller.provisioner`; :mod:`~gatehouse.controller.provisioning_plan` computes
  its input.
- :mod:`~gatehouse.controller.owned_resources` reconciles DNSEndpoints and RateLimitConditions by
  :mod:`~gatehouse.controller.dependents`.
- :mod:`~gatehouse.controller.condition_events`, :mod:`~gatehouse.controller.certificate_events` and
  :mod:`~gatehouse.controller.access_violations` record Events.

The rest: :mod:`~gatehouse.controller.leader_election` and
:mod:`~gatehouse.controller.leader_label`, :mod:`~gatehouse.controller.metrics`,
:mod:`~gatehouse.controller.url_fetcher`, and :mod:`~gatehouse.controller.permissions`, from which
tests derive the RBAC rules.

Never here: semantics of objects (front ends), text of configurations (back ends), wire formats
(transports).
"""
