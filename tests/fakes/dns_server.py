"""A small DNS server over UDP: what a zone file says, and nothing else."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.zone

from fakes.machines import Machine


class NameServer:
    """Answers from zones, which may be replaced while it serves."""

    def __init__(self, listening: socket.socket, file: Path, *names: str) -> None:
        self.file = file
        """A resolv.conf that names it."""
        self._socket = listening
        self._zones: list[dns.zone.Zone] = []
        self._names = names
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def serve(self, *zones: str) -> None:
        """Serve exactly these zone files from now on."""
        self._zones = [dns.zone.from_text(zone, check_origin=False) for zone in zones]

    def answers(self, *addresses: str) -> None:
        """Serve addresses for the names it was made for, to be kept for one second."""
        assert self._names, "no name to answer"
        kinds = [("AAAA" if ":" in address else "A", address) for address in addresses]
        self.serve(*(
            f"$ORIGIN {name}.\n" + "".join(f"@ 1 IN {kind} {a}\n" for kind, a in kinds)
            for name in self._names
        ))  # fmt: skip

    def _serve(self) -> None:
        while True:
            try:
                query, client = self._socket.recvfrom(4096)
            except OSError:
                return
            # Closed by the other end, or no question: the next.
            with contextlib.suppress(OSError, dns.exception.DNSException):
                self._socket.sendto(self._answer(dns.message.from_wire(query)).to_wire(), client)

    def _answer(self, query: dns.message.Message) -> dns.message.Message:
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.AA
        question = query.question[0]
        for zone in self._zones:
            assert zone.origin is not None
            if not question.name.is_subdomain(zone.origin):
                continue
            result = zone.get_rrset(question.name, question.rdtype)
            if result is not None:
                result.name = question.name
                answer.answer.append(result)
            elif zone.get_node(question.name) is None:
                answer.set_rcode(dns.rcode.NXDOMAIN)
            return answer
        answer.set_rcode(dns.rcode.NXDOMAIN)
        return answer

    def close(self) -> None:
        """End it."""
        # Closing alone does not wake up a blocked thread.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)


@contextlib.contextmanager
def serving(machine: Machine, *names: str, address: str = "127.0.0.1") -> Iterator[NameServer]:
    """Run one on a machine. ``names``: those that :meth:`NameServer.answers` is about."""
    with (
        machine.socket(kind=socket.SOCK_DGRAM) as listening,
        tempfile.TemporaryDirectory() as directory,
    ):
        listening.bind((address, 53))
        file = Path(directory) / "resolv.conf"
        search = "search default.svc.cluster.local svc.cluster.local cluster.local"
        file.write_text(f"nameserver {address}\n{search}\noptions ndots:5\n")
        with contextlib.closing(NameServer(listening, file, *names)) as server:
            yield server
