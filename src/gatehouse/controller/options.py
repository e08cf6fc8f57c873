"""How one controller runs, and what follows from it for data planes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from cryptography import x509

import gatehouse
from gatehouse.apis.data_plane_workload import NetworkOptions
from gatehouse.compiler.frontends import gateway_api
from gatehouse.controller.leader_election import Lease
from gatehouse.controller.plus_usage import UsageOptions, reports
from gatehouse.controller.provisioner.copied_secrets import Source
from gatehouse.controller.provisioner.manifests import ProvisionerSettings
from gatehouse.controller.provisioner.network_policy import Server
from gatehouse.controller.provisioner.pod import Proxy

SERVER_NAME = "gatehouse-controller.gatehouse-system.svc"
"""The name that the agents expect in the channel's certificate, and their tokens' audience."""

IMAGES: Mapping[Proxy, str] = {
    "nginx": f"gatehouse/nginx:{gatehouse.__version__}",
    "envoy": f"gatehouse/envoy:{gatehouse.__version__}",
}


class Options(msgspec.Struct, frozen=True):
    """How one controller runs."""

    kubeconfig: Path | None
    """None: the environment of a Pod."""
    agent_bind: str
    """``host:port`` on which the agents' channel listens."""
    agent_advertise: str
    """``host:port`` under which agents reach it."""
    tls_cert: Path
    tls_key: Path
    ca: Path
    """What agents trust: a PEM bundle, copied to every data plane, again whenever it changes."""
    client_ca: Path | None = None
    """Whose certificates agents must show beside their tokens; None: none."""
    outside_bind: str = ""
    """``host:port`` on which machines outside the cluster are met; empty: none are."""
    outside_ca: Path | None = None
    """Whose certificates they must show, which say who they are."""
    client_secret: str = ""
    """Secret, beside each Gateway, with the certificate that provisioned agents show."""
    bind: Literal["load-balancer", "any"] = "any"
    """Whether data planes listen on their Service's address only, or on every address."""
    snippets: bool = False
    workload_overrides: bool = False
    """Whether parameters of Gateways may set every field of ``spec.kubernetes``."""
    limit_counter: str = ""
    """``host:port`` of the counter of limits that span data planes (Envoy's rate limit protocol),
    as data planes reach it; empty: there is none."""
    lease: Lease | None = None
    """What decides which of several controllers acts; None: there is one."""
    pod: tuple[str, str] | None = None
    """Namespace and name of the Pod that the controller runs in, which is labelled while the
    controller leads; None: no Pod is labelled."""
    health: str = ""
    """``host:port`` of /livez, /readyz and /metrics; empty for none."""
    copies: tuple[Source, ...] = ()
    """Secrets that are copied to where data planes run."""
    usage: UsageOptions = UsageOptions()
    """How NGINX Plus reports its use, where a licence is copied."""
    network_policy: NetworkOptions = NetworkOptions()
    """Of data planes whose parameters do not say otherwise; without more there are none."""
    images: Mapping[Proxy, str] = msgspec.field(default_factory=lambda: dict(IMAGES))
    """Of data planes."""


def authorities(file: Path) -> str:
    """Give the PEM certificates in a file; raises OSError, or ValueError if there are none."""
    text = file.read_text(encoding="utf-8")
    if not x509.load_pem_x509_certificates(text.encode()):
        raise ValueError("it has no certificate")
    return text


def frontend_settings(options: Options) -> gateway_api.Settings:
    """Give what Gateways are compiled with."""
    usage = reports(options.usage, options.copies)
    return gateway_api.Settings(
        options.bind, options.snippets, options.limit_counter, usage, options.workload_overrides
    )


def provisioner_settings(options: Options) -> ProvisionerSettings:
    """Give what data planes are provisioned with; raises OSError, or ValueError without a CA."""
    host, _, port = options.agent_advertise.rpartition(":")
    return ProvisionerSettings(
        images=options.images,
        agent_host=host,
        agent_port=int(port),
        server_name=SERVER_NAME,
        ca_bundle=authorities(options.ca),
        audience=SERVER_NAME,
        client_secret=options.client_secret,
        network_policy=options.network_policy,
        servers=_servers(options),
        on_service_address=options.bind == "load-balancer",
    )


def _servers(options: Options) -> tuple[Server, ...]:
    """Give what data planes connect to: the channel of agents, the counter."""
    host, _, port = options.agent_advertise.rpartition(":")
    _, _, bound = options.agent_bind.rpartition(":")
    found = [Server(host, (int(port), int(bound)))]
    if options.limit_counter:
        host, _, port = options.limit_counter.rpartition(":")
        found.append(Server(host, (int(port),)))
    return tuple(found)
