"""The ConfigMap ``nlk-config`` of nginx-loadbalancer-kubernetes: what it asks for."""

from __future__ import annotations

from gatehouse.apis import core
from gatehouse.apis.external_load_balancers import Host, SecretRef, Services, Spec, Tls
from gatehouse.compiler.frontends.external_load_balancer.findings import Finding, Reason
from gatehouse.compiler.frontends.external_load_balancer.inputs import NLK_SERVICES

CERTIFICATE = "tls.crt"

AUTHORITY, CLIENT = "ca-certificate", "client-certificate"

MODES: dict[str, tuple[str, ...]] = {
    "no-tls": (),
    "ca-tls": (),
    "ca-mtls": (CLIENT,),
    "ss-tls": (AUTHORITY,),
    "ss-mtls": (AUTHORITY, CLIENT),
}
"""What each ``tls-mode`` names Secrets for."""


def spec(config: core.ConfigMap) -> Spec | Finding:
    """Give what the ConfigMap asks for, or why it cannot be followed."""
    data = config.data
    if "nginx-hosts" not in data:
        return Finding(Reason.INVALID, "data.nginx-hosts is missing: no host is followed up")
    mode = data.get("tls-mode", "no-tls").strip()
    if mode not in MODES:
        known = ", ".join(MODES)
        return Finding(Reason.INVALID, f"data.tls-mode: {mode!r} is not one of {known}")
    named = {}
    for key in MODES[mode]:
        named[key] = data.get(key, "").strip()
        if not named[key]:
            return Finding(Reason.INVALID, f"data.{key} is needed for tls-mode {mode}")
    urls = [url.strip() for url in data["nginx-hosts"].split(",")]
    return Spec(
        hosts=tuple(Host(url) for url in dict.fromkeys(urls) if url),
        tls=_tls(mode, named),
        services=Services(namespaces=(NLK_SERVICES,)),
    )


def _tls(mode: str, named: dict[str, str]) -> Tls:
    authority, client = (
        SecretRef(named[key], CERTIFICATE) if key in named else None for key in (AUTHORITY, CLIENT)
    )
    # ``no-tls`` means no authentication: HTTPS is spoken where the URL says so.
    return Tls("SkipVerify" if mode == "no-tls" else "Verify", authority, client)
