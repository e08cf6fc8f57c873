"""Sends the listening sockets that NGINX passes on, and exits.

NGINX starts this file as if it were a new NGINX, with the standard library only.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

INHERITED = "NGINX"
"""Environment variable in which NGINX lists the sockets that a new NGINX inherits."""

DESCRIPTORS_PER_MESSAGE = 250
"""Number of file descriptors in one message. Linux permits 253."""

SENDING_SECONDS = 4
"""Maximum run time in seconds. NGINX cannot be reloaded meanwhile."""


def send_inherited(path: str) -> None:
    """Send the inherited sockets to the Unix socket at `path`. Raises OSError."""
    names = os.environ.get(INHERITED, "").split(";")
    descriptors = [int(name) for name in names if name]
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        for start in range(0, len(descriptors), DESCRIPTORS_PER_MESSAGE):
            socket.send_fds(client, [b"."], descriptors[start : start + DESCRIPTORS_PER_MESSAGE])


if __name__ == "__main__":
    # NGINX blocks signals in its children.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.alarm(SENDING_SECONDS)
    try:
        send_inherited(sys.argv[1])
    except OSError as error:
        sys.exit(f"gatehouse: listening sockets not sent: {error}")
