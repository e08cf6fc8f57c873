"""ConfigMap ``nlk-config`` of nginx-loadbalancer-kubernetes, translated to a spec."""

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
"""Keys of the Secret names that each ``tls-mode`` needs."""


def spec(config: core.ConfigMap) -> Spec | Finding:
    """Return the spec that the ConfigMap describes, or a finding."""
    data = config.data
    if "nginx-hosts" not in data:
        return Finding(Reason.INVALID, "data.nginx-hosts: must be set")
    mode = data.get("tls-mode", "no-tls").strip()
    if mode not in MODES:
        known = ", ".join(MODES)
        return Finding(Reason.INVALID, f"data.tls-mode: {mode!r} must be one of {known}")
    secret_names = {}
    for key in MODES[mode]:
        secret_names[key] = data.get(key, "").strip()
        if not secret_names[key]:
            return Finding(Reason.INVALID, f"data.{key}: must be set for tls-mode {mode}")
    urls = [url.strip() for url in data["nginx-hosts"].split(",")]
    return Spec(
        hosts=tuple(Host(url) for url in dict.fromkeys(urls) if url),
        tls=_tls(mode, secret_names),
        services=Services(namespaces=(NLK_SERVICES,)),
    )


def _tls(mode: str, secret_names: dict[str, str]) -> Tls:
    authority, client = (
        SecretRef(secret_names[key], CERTIFICATE) if key in secret_names else None
        for key in (AUTHORITY, CLIENT)
    )
    # ``no-tls`` disables authentication only: HTTPS is still used for https URLs.
    return Tls("SkipVerify" if mode == "no-tls" else "Verify", authority, client)
