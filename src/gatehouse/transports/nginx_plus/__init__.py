"""Makes hosts with NGINX Plus agree with what they are to hold, by their REST API.

- :mod:`client`: the API of one host: its requests, its errors in its own words.
- :mod:`planning`: what differs between what is wanted and what is there. Pure.
- :mod:`knowledge`: what is known of a host, what is due, and when something is next. Pure.
- :mod:`execution`: carries a plan out.
- :mod:`worker`: one host, for as long as it is wanted.
- :mod:`fleet`: all hosts of all load balancers.

Level-triggered: what a host holds is compared with what it is to hold, on each change, when it
comes back, and again and again. Between two looks a host is trusted to hold what it confirmed, so
that a change costs one request for each server that it touches. Never here: Kubernetes, or
upstreams that are not ours.
"""

from gatehouse.transports.nginx_plus.fleet import Fleet

__all__ = ["Fleet"]
