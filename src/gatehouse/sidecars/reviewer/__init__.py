"""Reviewer: sidecar of Envoy that authenticates and authorizes clients of kube-apiservers.

A script in Envoy sends it requests that its own cache cannot answer: the user of a bearer token
(TokenReview), and whether a user may impersonate another (SubjectAccessReview). The reviewer has no
credentials and no configuration. It sends reviews through Envoy, which routes them to the cluster
named in the request.

- ``config``: its configuration file and socket names.
- ``user_headers``: users in headers. ``tokens``: bearer tokens. ``impersonation``: permissions
  needed to impersonate a user. ``reviews``: requests and responses of the API. No I/O.
- ``cache``: bounded cache of verdicts. ``concurrency``: per-cluster limit on reviews.
- ``review_client``: sends reviews to a cluster. ``caching_reviewer``: reviews with cache and
  single-flight.
- ``server``: the socket. ``metrics``: its metrics.

Life cycle and control protocol are in :mod:`gatehouse.sidecars.base`; the protocol of the sockets
is in decision 0011. Never here: permissions (the clusters have them), or anything of the agent.
"""
