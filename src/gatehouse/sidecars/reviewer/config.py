"""What needs a reviewer, and the sockets of decision 0011, by their names where Envoy runs."""

FILE = "gatehouse/reviewer.json"
"""The file that configurations have which need one. Nothing is read of it: there is nothing to
tell."""

CONTENT = b"{}"
"""What is in it."""

SOCKETS = "reviewer"
"""The directory in which the agent tells it what to do."""

REVIEWER = "reviewer.sock"
"""Where it is asked."""

UPSTREAM = "upstream.sock"
"""Where it asks: Envoy sends what comes there to the cluster that ``Host`` names."""
