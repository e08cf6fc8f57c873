"""Attachment of routes to listeners, and the hostnames that result."""
