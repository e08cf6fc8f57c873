"""Introductions of the generated reference pages and of their sections."""

from __future__ import annotations

CONDITIONS = """\
Controllers report results in `status.conditions` of an object. Look there first when an object has
no effect: `kubectl describe KIND NAME`. The message of a condition names the object and the field.
[Troubleshooting](../tasks/troubleshooting.md) starts from symptoms."""

COMMAND_LINE = """\
Every command with its `--help`.

`gatehouse` completes commands, options and their values in a shell. Click generates the script:

| shell | line in the start-up file |
| --- | --- |
| bash | `eval "$(_GATEHOUSE_COMPLETE=bash_source gatehouse)"` in `~/.bashrc` |
| zsh | `eval "$(_GATEHOUSE_COMPLETE=zsh_source gatehouse)"` in `~/.zshrc` |
| fish | `_GATEHOUSE_COMPLETE=fish_source gatehouse \\| source` in `~/.config/fish/config.fish` |"""

EVENTS = """\
`kubectl get events` lists Events. Equal Events are one object with a count. Kubernetes deletes
Events after an hour by default.

An object gets a Warning when a condition `Accepted`, `ResolvedRefs`, `Programmed` or
`gatehouse.dev/CertificateValid` turns False, or `PartiallyInvalid` turns True, and when
`gatehouse.dev/CertificateValid` gets the reason `ExpiresSoon` or `SomeExpired`. Its reason and
message are those of the condition. There is one for each transition, and none for conditions that
were bad before a restart of the controller. At most 100 are recorded at once and one a second after
that. A Gateway that waits for its data plane for the first time, or in the first minute after a
restart of the controller, gets none.

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
also have the labels `namespace`, `pod` and `gateway`. [Metrics of requests](../tasks/metrics.md)
explains `gatehouse_route_…` and `gatehouse_backend_…`.""",
    "NGINX agent": """\
`nginx_connections_…` and `nginx_http_requests_total` have the names of NGINX's own exporter. They
require the module `http_stub_status_module`. `nginx_plus_…` exist with NGINX Plus only.""",
    "Envoy agent": """\
`gatehouse_kube_…` exist only in front of [kube-apiservers](kube-apiservers-envoy.md#metrics). The
page `/metrics/envoy` has Envoy's own metrics that `agent/envoy/metrics.py` lists, if they are not
zero. It has at most 8 MiB. These metrics have no help, and names that `promtool` reports.""",
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

RESOURCE_LIMITS = """Ceilings of what one object, the objects of one namespace, or all objects may
claim of a data plane. The operator sets them with `--resource-limits` of `gatehouse controller` and
`gatehouse up`, or `controller.resourceLimits` of the chart, as a JSON object of integers by name:
`--resource-limits '{"zoneBytes": 67108864}'`. They hold for policies, routes and parameters of
Gateways, on NGINX and Envoy. They do not hold for parameters of GatewayClasses, which the operator
writes.

`spec.resourceLimits` of NginxProxy and GatewayParameters sets ceilings, too, by the same names:

| where | who | effect |
| --- | --- | --- |
| `--resource-limits` | operator | default of all data planes |
| parameters of a GatewayClass | operator | override the option for the Gateways of the class |
| parameters of a Gateway | owner of the Gateway | lower the ceilings of the class |

A higher value in the parameters of a Gateway is ignored. `Accepted` of the Gateway is then `False`
with `InvalidParameters`, and its message names object and field.

A ceiling of a namespace holds for each data plane: two Gateways with different ceilings can accept
different policies, which `status.ancestors` lists by Gateway. An invalid value is a finding on the
GatewayClass or Gateway, and the other ceilings of the object hold. Ceilings also hold while another
field of the object is invalid or the proxy rejects the object. If the object does not exist, the
option applies."""

RESOURCE_LIMIT_RULES = """Memory was measured with NGINX on x86-64. Idle connections are claimed at
start, in each process. Zones are reserved at start and filled in use; all processes share them.
Buffers are claimed while a request needs them. The regular expression has 1,000 characters; one of
12 characters takes 7,700 B, of which 7,400 B are those of its location.

The message about a value above a ceiling names field, value, ceiling and the option or object that
sets it:

- **A policy** is not accepted (`Accepted: False`, `Invalid`). Its targets are served without it.
- **Policies of one namespace** are added up, older ones first. The policy that exceeds the ceiling
  is not accepted. A younger, smaller one can still be accepted. A policy for a Service claims its
  value once for each port of the Service. Conflicted policies count, too.
- **Routes** lose rules with regular expressions, from the rule that exceeds the ceiling on. The
  other rules are served (`PartiallyInvalid`; `Accepted: False` if none is left).
- **Policies and routes of all namespaces that a Gateway serves** are added up for the ceilings
  `...PerGateway`. Each namespace can have an equal share, its oldest objects first, however many
  older objects others have. What it does not use is left to the others. A policy that does not fit
  is not accepted. A route loses all rules with regular expressions. Policies of Services and routes
  that a Gateway does not serve, and routes of namespaces that no listener admits, do not count
  there.
- **Parameters of a Gateway** lose the field of `kubernetes`, and the value of the GatewayClass
  applies. `Accepted` is `False` with `InvalidParameters`. With too large a `zoneSize` or
  `compression.buffers` the parameters are invalid, and the data plane stays unchanged.
- **Routes beyond `routesPerNamespace`**, oldest first and of all kinds together, are not accepted
  (`Accepted: False`, `TooManyRoutes`). An excess route still takes about a third of the memory of
  the controller that a served one takes. Only the option sets this ceiling.
- **Routes beyond `routesPerGateway`** get the same condition at this Gateway.

The number of objects in the API server is not limited here. Use a ResourceQuota in each namespace
of a tenant. The API server then rejects the object, and the tenant sees the error at once:

```yaml
apiVersion: v1
kind: ResourceQuota
metadata: {name: gateway-objects, namespace: shop}
spec:
  hard:
    count/httproutes.gateway.networking.k8s.io: "2000"
    count/grpcroutes.gateway.networking.k8s.io: "500"
    count/gateways.gateway.networking.k8s.io: "10"
    count/services: "500"
    count/secrets: "500"
    count/configmaps: "500"
```"""

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
    "GATEHOUSE_HEARTBEAT_FD": (
        "all",
        "Set by `gatehouse up` for its processes: file descriptor of their heartbeats. Internal.",
    ),
    "GATEHOUSE_SUPERVISED": (
        "all",
        "Set by `gatehouse up` for its processes: they exit with their parent. Internal.",
    ),
    "GATEHOUSE_TIME_FACTOR": (
        "all",
        "Factor of the time limits after which something counts as failed, for tests and for "
        "machines that are much slower than real time, such as emulators. Promised times, options "
        "that are set, and intervals do not change. Data planes have the factor of their "
        "controller. A positive number. Default: 1.",
    ),
    "POD_IP": (
        "agent",
        "Address of the Pod. The controller sets it, and the health address refers to it.",
    ),
    "PATH": (
        "agent, node, node-proxy",
        "Directories that are searched for proxies and tools. `gatehouse up` passes it to "
        "processes of Pods, with `HOME`, `LANG`, `TMPDIR`, `PYTHONPATH`, "
        "`VIRTUAL_ENV` and `GATEHOUSE_TIME_FACTOR`.",
    ),
}
"""Variables that are not variables of an option: programs that read them, and meaning."""
