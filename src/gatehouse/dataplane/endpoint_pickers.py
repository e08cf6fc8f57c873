"""Names of the Endpoint Picker Protocol 1.0, which Envoy and the picker client of NGINX speak."""

from __future__ import annotations

PICKED_ENDPOINT = "x-gateway-destination-endpoint"
"""Header, and key of the metadata, with the picked endpoints: ``ip:port``, separated by commas."""

PICKER_NAMESPACE = "envoy.lb"
"""Namespace of the metadata."""
