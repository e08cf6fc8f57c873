"""Names and labels of the objects provisioned for a Gateway. No I/O."""

from __future__ import annotations

import hashlib
import re

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
"""Label of owned objects: the value is ``gatehouse``. Other objects are never changed."""

FIELD_MANAGER = "gatehouse"

APP_NAME = "app.kubernetes.io/name"
"""Label of a data plane's objects: name of the ServiceAccount, Service and workload."""

APP_INSTANCE = "app.kubernetes.io/instance"
"""Label of a data plane's objects: the same value as ``app.kubernetes.io/name``."""

GATEWAY_NAME = "gateway.networking.k8s.io/gateway-name"
"""Label of a data plane's objects: name of the Gateway, as defined by Gateway API (GEP-1762)."""

GATEWAY_CLASS_NAME = "gateway.networking.k8s.io/gateway-class-name"
"""Label of a data plane's objects: name of the GatewayClass."""

LIMIT = 63
"""Maximum length of a label value and of a Service name (RFC 1123 label)."""

_DIGEST = 8


def resource_name(gateway: str, gateway_class: str) -> str:
    """Return the name of Deployment, Service and ServiceAccount: ``<gateway>-<class>`` (GEP-1762).

    The name of a Service must be a DNS label that starts with a letter (RFC 1035) and has at most
    63 characters. Other names are changed and get a digest of the whole name as suffix.
    """
    whole = f"{gateway}-{gateway_class}"
    sanitized = re.sub(r"[^a-z0-9-]", "-", whole)
    if not sanitized[0].isalpha():
        sanitized = f"g{sanitized}" if sanitized[0] == "-" else f"g-{sanitized}"
    if sanitized == whole and len(whole) <= LIMIT:
        return whole
    return _shortened(sanitized, whole)


def label_value(value: str) -> str:
    """Return a valid label value: the value, or its beginning and a digest if it is too long."""
    return value if len(value) <= LIMIT else _shortened(value, value)


def _shortened(text: str, whole: str) -> str:
    digest = hashlib.sha256(whole.encode()).hexdigest()[:_DIGEST]
    return text[: LIMIT - _DIGEST - 1].rstrip("-._") + "-" + digest


def owned_labels(gateway: str, gateway_class: str) -> dict[str, str]:
    """Return the labels of all objects provisioned for a Gateway."""
    name = resource_name(gateway, gateway_class)
    return {
        APP_NAME: name,
        APP_INSTANCE: name,
        MANAGED_BY_LABEL: FIELD_MANAGER,
        GATEWAY_NAME: label_value(gateway),
        GATEWAY_CLASS_NAME: label_value(gateway_class),
    }


def selector(gateway: str, gateway_class: str) -> dict[str, str]:
    """Return the labels that select a Gateway's Pods. They are immutable in a Deployment."""
    all_labels = owned_labels(gateway, gateway_class)
    return {key: all_labels[key] for key in (APP_NAME, GATEWAY_NAME)}
