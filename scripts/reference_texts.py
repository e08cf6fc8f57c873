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

NAMES = """\
Keys of metadata that Gatehouse reads or writes, and other names with its domain. `PORT` stands for
the name of a port. A missing annotation has the default."""

TTLS = {
    "good_for": "duration for which an accepted token is cached",
    "bad_for": "duration for which a rejected token is cached",
    "allowed_for": "duration for which a permission to impersonate is cached",
    "denied_for": "duration for which a denied impersonation is cached",
}
"""Meanings of annotations, by the field that they set."""

ENVIRONMENT = """\
Environment variables that the programs read. An option on the command line overrides its variable.
Variables of tests are in [CONTRIBUTING](../../CONTRIBUTING.md)."""

AGENT_ENVIRONMENT = """\
`gatehouse agent` reads a variable for each of its options. Names with `NGINX_AGENT_` are those of
NGINX Agent v3. The controller sets the variables that a data plane needs."""

_API_CLIENTS = "controller, certs, status, explain, dns"
_IN_PODS = "controller, certs"
_API_SERVER = "apiserver, up"

VARIABLES: dict[str, tuple[str, str]] = {
    "GATEHOUSE_ETCD_PASSWORD": (
        _API_SERVER,
        "Password of the etcd user. The option `password-file` of the address overrides it.",
    ),
    "KUBECONFIG": (
        _API_CLIENTS,
        "Path of the kubeconfig; of several paths the first one. Default of controller and certs: "
        "the ServiceAccount of the Pod, otherwise `~/.kube/config`. Default of the others: the "
        "kubeconfig of `gatehouse up`.",
    ),
    "KUBERNETES_SERVICE_HOST": (
        _IN_PODS,
        "Address of the API server, set by Kubernetes in Pods. Used if `KUBECONFIG` is not set.",
    ),
    "KUBERNETES_SERVICE_PORT": (_IN_PODS, "Port of the API server. Default: 443."),
    "KUBERNETES_EXEC_INFO": (
        _API_CLIENTS,
        "Set for credential plug-ins of a kubeconfig, as by kubectl.",
    ),
    "HTTPS_PROXY": (_API_CLIENTS, "Proxy for `https` API servers. Lower case works, too."),
    "HTTP_PROXY": (_API_CLIENTS, "Proxy for `http` API servers. Lower case works, too."),
    "NO_PROXY": (
        _API_CLIENTS,
        "Hosts without proxy, separated by commas: names, addresses, networks, with or without "
        "port. Lower case works, too.",
    ),
    "XDG_STATE_HOME": (
        "up, config, status, explain, dns",
        "Parent of the default state directory `gatehouse`. Default: `~/.local/state`.",
    ),
    "GATEHOUSE_SUPERVISED": (
        "all",
        "Set by `gatehouse up` for its processes: they exit with their parent. Internal.",
    ),
    "POD_IP": (
        "agent",
        "Address of the Pod. The controller sets it, and the health address refers to it.",
    ),
    "PATH": (
        "agent, node, node-proxy",
        "Directories that are searched for proxies and tools. `gatehouse up` passes it to "
        "processes of Pods, with `HOME`, `LANG`, `TMPDIR`, `PYTHONPATH` and `VIRTUAL_ENV`.",
    ),
}
"""Variables that are not variables of an option: programs that read them, and meaning."""
