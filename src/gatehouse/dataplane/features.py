"""Identifiers in the wire format between control plane and agents. They never change.

Agents and control planes of different versions run side by side during an upgrade. Each constant is
compared with what the other version sends, so a renamed constant keeps its value.
"""

from __future__ import annotations

CONNECTORS = "connectors"
"""Feature of an NGINX agent: it runs the TLS connector."""

AUTHENTICATORS = "authenticators"
"""Feature of an NGINX agent: it runs the authenticator."""

ENDPOINTS = "endpoints"
"""Feature of an NGINX agent: it updates endpoints without a reload."""

API_ACTION = "api-action"
"""Feature of an agent of NGINX Plus: it calls the NGINX Plus API (NGINX Agent v3)."""

RELAY = "gatehouse.relay"
"""Feature of an Envoy agent: it is a relay and keeps accepted resources."""

ENVOY_AUTHENTICATOR = "gatehouse.authenticator"
"""Feature of an Envoy agent: it runs the authenticator."""

ENVOY_REVIEWER = "gatehouse.reviewer"
"""Feature of an Envoy agent: it runs the reviewer."""

NGINX_REJECTED = "NGINX rejected the configuration"
"""Start of an agent's message after NGINX rejected a file set. Any other failure is the agent's
own: it could not fetch or store the files, or was interrupted."""

SIDECAR_CONFIG_TYPE = "gatehouse.companion.Description"
"""Message type of a sidecar's configuration among xDS resources, without the type URL's prefix."""
