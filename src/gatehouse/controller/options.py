"""Options of a controller, and the front end and provisioner settings derived from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from cryptography import x509

import gatehouse
from gatehouse.apis.data_plane_workload import NetworkOptions
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends import gateway_api
from gatehouse.controller.leader_election import Lease
from gatehouse.controller.plus_usage import UsageOptions, reports
from gatehouse.controller.provisioner.copied_secrets import SecretSource, Use
from gatehouse.controller.provisioner.manifests import ProvisionerSettings
from gatehouse.controller.provisioner.network_policy import ReachableServer
from gatehouse.controller.provisioner.pod import ProxyKind
from gatehouse.controller.provisioner.pod_security import Level
from gatehouse.incremental.query import Key
from kube_base.runtime.time_limits import time_factor

SERVER_NAME = "gatehouse-controller.gatehouse-system.svc"
"""Server name of the agent channel's certificate, and audience of the agents' tokens."""

IMAGES: Mapping[ProxyKind, str] = {
    "nginx": f"localhost/gatehouse/nginx:{gatehouse.__version__}",
    "envoy": f"localhost/gatehouse/envoy:{gatehouse.__version__}",
}
"""Default images of data planes.

None are published. Nodes never get an image of the registry `localhost` from a public one.
"""


class ControllerOptions(msgspec.Struct, frozen=True):
    """Options of a controller."""

    kubeconfig: Path | None
    """None for the service account of the Pod."""
    agent_bind: str
    """``host:port`` on which the agents' channel listens."""
    agent_advertise: str
    """``host:port`` that agents connect to."""
    tls_cert: Path
    tls_key: Path
    ca: Path
    """CA certificates (PEM) that agents trust. Copied to every data plane on each change."""
    client_ca: Path | None = None
    """CA certificates for client certificates of agents; None if a token is enough."""
    outside_bind: str = ""
    """``host:port`` on which agents of external machines are served; empty for none."""
    outside_ca: Path | None = None
    """CA certificates for their client certificates, which name the machine."""
    client_secret: str = ""
    """Secret with the agents' client certificate, in the namespace of each Gateway; or empty."""
    bind: Literal["load-balancer", "any"] = "any"
    """Addresses on which data planes listen: only that of their Service, or all."""
    snippets: bool = False
    """True if snippets of proxy configuration are allowed."""
    workload_overrides: bool = False
    """True if parameters of Gateways may set every field of ``spec.kubernetes``."""
    resource_limits: ResourceLimits = ResourceLimits()
    """Ceilings of what objects may claim of data planes."""
    metadata_domains: tuple[str, ...] = ()
    """Domains of the labels and annotations that Gateways may set on their data plane."""
    external_names: tuple[str, ...] = ()
    """Domains of the names that ExternalName Services and XBackends may have as backends."""
    pod_security: Level = "restricted"
    """Pod Security Standard that Pods of data planes must meet."""
    limit_counter: str = ""
    """``host:port`` of the rate limit service (Envoy's protocol) that data planes connect to;
    empty for none."""
    lease: Lease | None = None
    """Lease of the leader election; None for a single controller without election."""
    pod: tuple[str, str] | None = None
    """Namespace and name of the controller's own Pod, which is labelled while it leads; None to
    label no Pod."""
    health: str = ""
    """``host:port`` of /livez, /readyz and /metrics; empty for none."""
    copies: tuple[SecretSource, ...] = ()
    """Secrets that are copied to the namespaces of data planes."""
    usage: UsageOptions = UsageOptions()
    """Usage reports of NGINX Plus. Needs a copied licence."""
    network_policy: NetworkOptions = NetworkOptions()
    """Default of data planes whose parameters do not override it; disabled by default."""
    nlk_namespace: str = "nlk"
    """Namespace of the ConfigMaps of nginx-loadbalancer-kubernetes."""
    classes: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Further GatewayClasses that are created if missing, with their ``controllerName``."""
    images: Mapping[ProxyKind, str] = msgspec.field(default_factory=lambda: dict(IMAGES))
    """Images of data planes, by proxy."""


def read_ca_certificates(file: Path) -> str:
    """Read a file of PEM certificates. Raises OSError, or ValueError if it has none."""
    text = file.read_text(encoding="utf-8")
    if not x509.load_pem_x509_certificates(text.encode()):
        raise ValueError("no certificate found")
    return text


def frontend_settings(options: ControllerOptions) -> gateway_api.ControllerSettings:
    """Return the settings of the front ends."""
    usage = reports(options.usage, options.copies)
    return gateway_api.ControllerSettings(
        bind=options.bind,
        snippets=options.snippets,
        counter=options.limit_counter,
        usage=usage,
        usage_authorities=_usage_holders(options, "usage-ca") if usage else (),
        usage_clients=_usage_holders(options, "usage-client") if usage else (),
        workload_overrides=options.workload_overrides,
        limits=options.resource_limits,
        metadata_domains=options.metadata_domains,
        external_names=options.external_names,
    )


def _usage_holders(options: ControllerOptions, use: Use) -> tuple[Key, ...]:
    copies = (copy for copy in options.copies if copy.use == use)
    return tuple(("Secret", copy.namespace, copy.name) for copy in copies)


def provisioner_settings(options: ControllerOptions) -> ProvisionerSettings:
    """Return the settings of the provisioner.

    Raises OSError if the CA file cannot be read, ValueError if it has no certificate.
    """
    host, _, port = options.agent_advertise.rpartition(":")
    return ProvisionerSettings(
        images=options.images,
        agent_host=host,
        agent_port=int(port),
        server_name=SERVER_NAME,
        ca_bundle=read_ca_certificates(options.ca),
        audience=SERVER_NAME,
        client_secret=options.client_secret,
        network_policy=options.network_policy,
        servers=_servers(options),
        on_service_address=options.bind == "load-balancer",
        metadata_domains=options.metadata_domains,
        pod_security=options.pod_security,
        time_factor=time_factor(),
    )


def _servers(options: ControllerOptions) -> tuple[ReachableServer, ...]:
    """Return the servers that data planes connect to: agent channel and rate limit service."""
    host, _, port = options.agent_advertise.rpartition(":")
    _, _, bind_port = options.agent_bind.rpartition(":")
    servers = [ReachableServer(host, (int(port), int(bind_port)))]
    if options.limit_counter:
        host, _, port = options.limit_counter.rpartition(":")
        servers.append(ReachableServer(host, (int(port),)))
    return tuple(servers)
