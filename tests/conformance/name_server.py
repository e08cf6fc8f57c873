"""A name server that answers every question without a record.

It stands for CoreDNS in suites of Gateway API up to v1.6, which only wait for any answer.
"""

from __future__ import annotations

import socket

import dns.message


def main() -> None:
    """Serve until the Pod ends."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("0.0.0.0", 53))
        while True:
            query, client = listening.recvfrom(4096)
            answer = dns.message.make_response(dns.message.from_wire(query))
            listening.sendto(answer.to_wire(), client)


if __name__ == "__main__":
    main()
