"""Identifiers in the wire format between control plane and agents. They never change.

Agents and control planes of different versions run side by side during an upgrade. Each constant is
compared with what the other version sends, so a renamed constant keeps its value.
"""

from __future__ import annotations

CONNECTORS = "connectors"
"""Feature of an NGINX agent: it runs the TLS connector."""

AUTHENTICATORS = "authenticators"
"""Feature of an NGINX agent: it runs the authenticator."""

PICKERS = "pickers"
"""Feature of an NGINX agent: it runs the picker client."""

ENDPOINTS = "endpoints"
"""Feature of an NGINX agent: it updates endpoints without a reload."""

LOG_FORWARDING = "access-log"
"""Feature of an NGINX agent: it forwards access log entries from NGINX's standard output."""

FAILURE_CAUSES = "failure-causes"
"""Feature of an NGINX agent: it replaces the marks of failed requests by their causes
(:mod:`~gatehouse.dataplane.failed_attempts`)."""

TRACE_MODULE = "traces"
"""Feature of an NGINX agent: it loads the module ngx_otel_module for file sets with traces."""

API_ACTION = "api-action"
"""Feature of an agent of NGINX Plus: it calls the NGINX Plus API (NGINX Agent v3)."""

TRIALS = "trials"
"""Feature of an NGINX agent: it only tests a file set that is a trial
(:attr:`~gatehouse.dataplane.file_set.FileSet.trial`)."""

RELAY = "gatehouse.relay"
"""Feature of an Envoy agent: it is a relay and keeps accepted resources."""

ENVOY_AUTHENTICATOR = "gatehouse.authenticator"
"""Feature of an Envoy agent: it runs the authenticator."""

ENVOY_REVIEWER = "gatehouse.reviewer"
"""Feature of an Envoy agent: it runs the reviewer."""

ENVOY_REQUEST_COUNTS = "gatehouse.request-counts"
"""Feature of an Envoy agent: it counts the lines of the request log, and empties its file
(:mod:`~gatehouse.dataplane.request_log`)."""

ENVOY_CONNECTION_COUNTS = "gatehouse.connection-counts"
"""Feature of an Envoy agent: it counts the lines of the connection log, and empties its file
(:mod:`~gatehouse.dataplane.connection_counts`)."""

RUNTIME_LIMITS = "gatehouse.runtime-limits"
"""Client feature of an Envoy: its bootstrap configuration subscribes to the runtime layer of limits
(:mod:`~gatehouse.dataplane.xds.runtime_limits`)."""

ENVOY_TRIALS = "gatehouse.trials"
"""Feature of an Envoy agent: it is not ready with a first configuration that is a trial
(:attr:`~gatehouse.dataplane.xds.resources.ResourceSet.trial`)."""

LIMIT_SHARES = "gatehouse.limit-shares"
"""Feature of an Envoy agent: it reports its use of shared limits, and serves its share of them
(:mod:`~gatehouse.dataplane.xds.runtime_limits`)."""

NGINX_REJECTED = "NGINX rejected the configuration"
"""Start of an agent's message after NGINX rejected a file set. Any other failure is the agent's
own: it could not fetch or store the files, or was interrupted."""

HEALTH_TYPE = "gatehouse.agent.Health"
"""Message type of an Envoy agent's health reports, without the type URL's prefix."""

SIDECAR_CONFIG_TYPE = "gatehouse.companion.Description"
"""Message type of a sidecar's configuration among xDS resources, without the type URL's prefix."""
