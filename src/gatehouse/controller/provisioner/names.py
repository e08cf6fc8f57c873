"""Names and labels of everything made for a Gateway. Pure."""

from __future__ import annotations

import hashlib
import re

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "gatehouse"
APP_NAME = "app.kubernetes.io/name"
APP_INSTANCE = "app.kubernetes.io/instance"
GATEWAY_NAME = "gateway.networking.k8s.io/gateway-name"
"""Label by which the Gateway API's users find what belongs to a Gateway (GEP-1762)."""
GATEWAY_CLASS_NAME = "gateway.networking.k8s.io/gateway-class-name"

LIMIT = 63
"""Characters of a label's value and of a Service's name (RFC 1123 label)."""

_DIGEST = 8


def resource_name(gateway: str, gateway_class: str) -> str:
    """Name of the Deployment, Service and ServiceAccount: ``<gateway>-<class>`` (GEP-1762).

    Changed, with a digest of the whole at the end, where that is longer than 63 characters or no
    DNS label beginning with a letter, which is what a Service's name must be (RFC 1035).
    """
    whole = f"{gateway}-{gateway_class}"
    plain = re.sub(r"[^a-z0-9-]", "-", whole)
    if not plain[0].isalpha():
        plain = f"g{plain}" if plain[0] == "-" else f"g-{plain}"
    if plain == whole and len(whole) <= LIMIT:
        return whole
    return _shortened(plain, whole)


def label_value(value: str) -> str:
    """Give a value usable as a label: itself, or its beginning and a digest if it is too long."""
    return value if len(value) <= LIMIT else _shortened(value, value)


def _shortened(text: str, whole: str) -> str:
    digest = hashlib.sha256(whole.encode()).hexdigest()[:_DIGEST]
    return text[: LIMIT - _DIGEST - 1].rstrip("-._") + "-" + digest


def labels(gateway: str, gateway_class: str) -> dict[str, str]:
    """Give the labels that everything made for a Gateway carries."""
    name = resource_name(gateway, gateway_class)
    return {
        APP_NAME: name,
        APP_INSTANCE: name,
        MANAGED_BY: MANAGER,
        GATEWAY_NAME: label_value(gateway),
        GATEWAY_CLASS_NAME: label_value(gateway_class),
    }


def selector(gateway: str, gateway_class: str) -> dict[str, str]:
    """Give the labels that select a Gateway's Pods. A Deployment's can never change afterwards."""
    everything = labels(gateway, gateway_class)
    return {key: everything[key] for key in (APP_NAME, GATEWAY_NAME)}
