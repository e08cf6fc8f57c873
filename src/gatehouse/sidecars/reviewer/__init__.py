"""The reviewer: a process beside Envoy that asks kube-apiservers who somebody is, and may be.

A script in Envoy asks it what no cache of its own knows: whose a bearer token is (TokenReview), and
whether a user may be taken for another (SubjectAccessReview). It has no credentials and no
configuration: it asks through Envoy, which sends reviews to the cluster that is named.

- ``description``: what needs it, where it is asked, and where it asks.
- ``wire``: users in headers. ``tokens``: what a token says of itself. ``impersonation``: what
  somebody must be allowed. ``reviews``: the API's questions and answers. Pure.
- ``memory``: answers, for a while, within bounds. ``turns``: how much one cluster is asked at once.
- ``upstream``: asking a cluster. ``asking``: what becomes of a question, from memory or from there.
- ``serving``: the socket. ``measuring``: what it counts.

How it lives and is told what to do is :mod:`gatehouse.companion`; what is said over the sockets is
decision 0011. Never here: who may do what (the clusters know), or anything of the agent.
"""
