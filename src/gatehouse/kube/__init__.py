"""Kubernetes client: works with any API server, embedded or real.

- :mod:`~gatehouse.kube.config` reads kubeconfigs and the environment of a Pod,
  :mod:`~gatehouse.kube.credentials` holds tokens and client certificates.
- :mod:`~gatehouse.kube.client` has the verbs, :mod:`~gatehouse.kube.errors` their exceptions,
  :mod:`~gatehouse.kube.paths` the URL paths. :mod:`~gatehouse.kube.connection` and
  :mod:`~gatehouse.kube.http_proxy` make connections.
- :mod:`~gatehouse.kube.informer` lists and watches a resource into a
  :mod:`~gatehouse.kube.store`, by :mod:`~gatehouse.kube.watch_decoder`.
- :mod:`~gatehouse.kube.apply` creates or updates owned objects.
- :mod:`~gatehouse.kube.leader_election` and :mod:`~gatehouse.kube.events`.

Never here: semantics of kinds beyond Lease, Event and the token kinds; that belongs to the package
that uses the kind. Objects are plain dicts as received; only common metadata is read. A new verb
goes into ``client``, a new authentication method into ``credentials``.
"""
