"""Capabilities of an Envoy and its agent."""

from __future__ import annotations

import msgspec


class EnvoyCapabilities(msgspec.Struct, frozen=True):
    """Capabilities of one Envoy and its agent."""

    system_trust: str = "/etc/ssl/certs/ca-certificates.crt"
    """File of the CA certificates of the system where Envoy runs."""
    authenticators: bool = False
    """True if the agent runs an authenticator for routes that need one."""
    request_counts: bool = False
    """True if the agent counts the requests that Envoy logs."""
    connection_counts: bool = False
    """True if the agent counts the L4 connections that Envoy logs."""
    runtime_limits: bool = False
    """True if Envoy subscribes to the runtime layer with limits of requests in flight."""
