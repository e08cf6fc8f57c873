"""Configuration file of the reviewer, and the sockets of decision 0011 by their names beside
Envoy."""

FILE = "gatehouse/reviewer.json"
"""File that marks a configuration that needs a reviewer. Its content is not read."""

CONTENT = b"{}"
"""Content of the file."""

SOCKETS = "reviewer"
"""Directory of the control socket."""

REVIEWER = "reviewer.sock"
"""Socket on which the reviewer serves requests."""

UPSTREAM = "upstream.sock"
"""Socket to which the reviewer sends reviews. Envoy routes them to the cluster named by
``Host``."""
