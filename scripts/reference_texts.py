"""Introductions of the generated reference pages and of their sections."""

from __future__ import annotations

CONDITIONS = """\
Controllers report results in `status.conditions` of an object. Look there first when an object has
no effect: `kubectl describe KIND NAME`. The message of a condition names the object and the field.
[Troubleshooting](../tasks/troubleshooting.md) starts from symptoms."""

EVENTS = """\
`kubectl get events` lists Events. Equal Events are one object with a count. Kubernetes deletes
Events after an hour by default.

An ExternalLoadBalancer and its Services also get a Warning for each finding of the table above. An
UpstreamCluster gets a Warning for each reason of `CertificateValid`."""

METRICS = """\
Each process has a page `/metrics` in the text format of Prometheus. Pods of the chart and of data
planes have the annotations `prometheus.io/scrape` and `prometheus.io/port`. Times are in seconds
and sizes in bytes, unless the name has another unit. A histogram has the series `_bucket`, `_sum`
and `_count`."""

PROCESSES = {
    "Controller": "Page of `--health-bind-address`. A standby has the same metrics.",
    "Agents": """\
Page of `gatehouse.health_bind_address`, with any proxy. All metrics of agents and their proxies
also have the labels `namespace`, `pod` and `gateway`.""",
    "NGINX agent": """\
`nginx_connections_…` and `nginx_http_requests_total` have the names of NGINX's own exporter. They
require the module `http_stub_status_module`. `nginx_plus_…` exist with NGINX Plus only.""",
    "Envoy agent": """\
The page also has Envoy's own metrics that `agent/envoy/metrics.py` lists, if they are not zero. It
has at most 8 MiB. `gatehouse_kube_…` exist only in front of
[kube-apiservers](kube-apiservers-envoy.md#metrics).""",
    "Reviewer": """\
On the page of its agent. [The reviewer](reviewer.md#metrics) explains the labels.""",
    "Rate limit service": "Page of `gatehouse ratelimit --health-bind-address`.",
    "Node proxy": """\
Page of `gatehouse node-proxy run --health-bind-address`. With HAProxy, its metrics follow.""",
    "API server": """\
`/metrics` of `gatehouse apiserver`, for users who may get this path. Names that begin with
`apiserver_` are those of kube-apiserver.""",
}
"""Page of each kind of process, and properties of its metrics."""
