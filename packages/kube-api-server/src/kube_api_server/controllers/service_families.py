"""IP families of Services, in a cluster whose Services have addresses of one family.

https://kubernetes.io/docs/concepts/services-networking/dual-stack
"""

from __future__ import annotations

from collections.abc import Iterator

from kube_api_server.builtin.validation import IP_FAMILIES
from kube_api_server.causes import invalid_cause
from kube_api_server.errors import Cause
from kube_base.types.objects import Object


def complete_families(spec: Object, before: Object, family: str) -> None:
    """Set policy and families of a Service. `family` is that of the cluster.

    Without addresses and a selector a Service has both: its endpoints may be anywhere.
    """
    policy = spec.get("ipFamilyPolicy") or before.get("ipFamilyPolicy")
    families = spec.get("ipFamilies") or [family]
    if policy == "SingleStack" != before.get("ipFamilyPolicy"):
        if families == before.get("ipFamilies"):
            families = families[:1]
    elif not policy:
        policy = "RequireDualStack" if _is_free(spec) else "SingleStack"
    if _is_free(spec) and policy != "SingleStack" and len(families) == 1:
        families = [*families, *(other for other in IP_FAMILIES if other not in families)]
    spec["ipFamilyPolicy"], spec["ipFamilies"] = policy, families


def foreign_families(spec: Object, family: str) -> Iterator[Cause]:
    """Yield the violations of a Service that needs addresses of another family."""
    policy, families = spec["ipFamilyPolicy"], spec["ipFamilies"]
    if _is_free(spec) or (policy == "SingleStack" and len(families) > 1):
        return
    if policy == "RequireDualStack":
        why = "this cluster is not configured for dual-stack services"
        yield invalid_cause("spec.ipFamilyPolicy", policy, why)
    for index, name in enumerate(families):
        if name in IP_FAMILIES and name != family and name not in families[:index]:
            why = "not configured on this cluster"
            yield invalid_cause(f"spec.ipFamilies[{index}]", name, why)


def _is_free(spec: Object) -> bool:
    """Return whether a Service has neither an address nor a selector."""
    return spec.get("clusterIP") == "None" and not spec.get("selector")
