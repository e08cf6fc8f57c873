"""Configuration file of the reviewer, and the sockets of decision 0011 by their names beside
Envoy."""

REVIEWER_FILE = "gatehouse/reviewer.json"
"""File that marks a configuration that needs a reviewer. Its content is not read."""

CONTENT = b"{}"
"""Content of the file."""

REVIEWER_SOCKETS = "reviewer"
"""Directory of the control socket."""

REVIEWER_SOCKET = "reviewer.sock"
"""Socket on which the reviewer serves requests."""

UNREADY = "unready.json"
"""File of the agent beside the socket: reasons why servers are not ready, by server, by cluster."""

UPSTREAM = "upstream.sock"
"""Socket to which the reviewer sends reviews. Envoy routes them to the cluster named by
``Host``."""
