"""The name server from which NGINX learns of endpoints while it runs.

NGINX asks for an upstream's servers (SRV) again and again, a second after each answer. An answer
that it has been given already is held back until there is a newer one, a few seconds at most: so
a change reaches NGINX at once, and at rest it asks seldom.

It listens on a loopback address, answers for its own zone, and forwards nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import struct
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import cast

import structlog

from gatehouse.agent.nginx import dns_messages
from gatehouse.dataplane.endpoints import Endpoints

log = structlog.get_logger("gatehouse.agent")

HOST = "127.0.0.1"
HELD_SECONDS = 4.0
"""How long an answer without news is held back; NGINX repeats its question after five."""

ADDRESSES_SECONDS = 0.05
"""How long NGINX may take to ask for addresses it has not met, after their names: 2 ms measured."""

RECEIVE_BYTES = 4 << 20
"""NGINX may ask for thousands of names at once, and repeats a lost question only after 5 s."""

SOURCES = 16
"""How many askers of a name are remembered: a reload brings another, and old ones linger."""

BURST, PACE = 100, 0.05
"""At most so many answers to one asker in so many seconds. NGINX asks for everything before it
reads any answer (0.1 s for 5,000 names), and its socket holds 277 of them by default; what is lost
it asks for again after 5 s."""

Respond = Callable[[bytes], None]


class _Asker:
    """One worker's socket, as far as one name is concerned."""

    def __init__(self) -> None:
        self.told = -1
        self.asked = 0
        """How many questions of its own it has put; one that is repeated is no other."""
        self.identity = b""
        """Of its last question."""
        self.held: asyncio.TimerHandle | None = None
        """Until when its answer is held back; None: it is not."""
        self.open = False
        """Whether its last question has no answer yet."""
        self.answer: Callable[[], None] = lambda: None

    def hurry(self) -> None:
        """Answer what is held back."""
        if self.held is not None:
            self.held.cancel()
            self.held = None
            self.answer()


class _Pace:
    """Lets one asker have no more answers at once than it can hold."""

    def __init__(self) -> None:
        self._since, self._given = 0.0, 0
        self._queue: deque[Callable[[], None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def give(self, answer: Callable[[], None]) -> None:
        """Answer now or when it is its turn."""
        now = asyncio.get_running_loop().time()
        if now - self._since >= PACE:
            self._since, self._given = now, 0
        if self._timer is None and self._given < BURST:
            self._given += 1
            answer()
            return
        self._queue.append(answer)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PACE, self._next)

    def _next(self) -> None:
        """Give the next burst; the one after it counts from now, however late this one is."""
        self._timer = None
        self._since, self._given = asyncio.get_running_loop().time(), 0
        while self._queue and self._given < BURST:
            self._given += 1
            self._queue.popleft()()
        if self._queue:
            self._timer = asyncio.get_running_loop().call_later(PACE, self._next)

    def stop(self) -> None:
        """Give no more."""
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()


class _Name:
    def __init__(self, name: str) -> None:
        self._question = dns_messages.encode_srv_query(name)
        self.key = self._question.to_wire()[12:]
        self.endpoints: Endpoints | None = None
        self.version = 0
        self.askers: dict[object, _Asker] = {}
        self.datagram = self.stream = b""

    def set(self, endpoints: Endpoints) -> None:
        if endpoints != self.endpoints:
            self.endpoints = endpoints
            self.version += 1
            self.datagram, self.stream = dns_messages.encode_srv_response(self._question, endpoints)

    def asker(self, source: object) -> _Asker:
        found = self.askers.get(source)
        if found is None:
            while len(self.askers) >= SOURCES:
                del self.askers[next(iter(self.askers))]
            found = self.askers[source] = _Asker()
        return found


class Nameserver:
    """Answers with what it was last told to."""

    def __init__(self) -> None:
        self.port = 0
        """Where it listens; 0: it does not."""
        self.questions = 0
        self._names: dict[str, _Name] = {}
        self._questions: dict[bytes, _Name] = {}
        self._former: frozenset[object] = frozenset()
        self._taken = asyncio.Event()
        self._paces: dict[object, _Pace] = {}
        self._datagrams: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._streams: set[asyncio.StreamWriter] = set()

    async def start(self, port: int) -> None:
        """Listen on ``port``, or on another one if it cannot be had; raises OSError."""
        # A port of datagrams may be another's for streams.
        for wanted in (port, *[0] * 10):
            try:
                await self._listen(wanted)
            except OSError as error:
                trouble = error
            else:
                return
        raise trouble

    async def _listen(self, port: int) -> None:
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            datagrams.setblocking(False)
            datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
            datagrams.bind((HOST, port))
            number: int = datagrams.getsockname()[1]
            self._server = await asyncio.start_server(self._stream, HOST, number)
        except OSError:
            datagrams.close()
            raise
        asyncio.get_running_loop().add_reader(datagrams, self._receive, datagrams)
        self._datagrams, self.port = datagrams, number

    def _receive(self, datagrams: socket.socket) -> None:
        # What does not fit now is asked for again; an asker may be gone.
        with contextlib.suppress(OSError):
            for _ in range(64):
                data, source = datagrams.recvfrom(dns_messages.DATAGRAM_BYTES)
                self.asked(data, source, functools.partial(_send, datagrams, source))

    def stop(self) -> None:
        """Answer no more."""
        for name in self._names.values():
            for asker in name.askers.values():
                if asker.held is not None:
                    asker.held.cancel()
        for pace in self._paces.values():
            pace.stop()
        if self._datagrams is not None:
            asyncio.get_running_loop().remove_reader(self._datagrams)
            self._datagrams.close()
        if self._server is not None:
            self._server.close()
        for writer in self._streams:
            writer.close()

    def publish(self, endpoints: Mapping[str, Endpoints], *, only: bool = True) -> None:
        """Answer with these from now on; not ``only``: beside others that are known."""
        if only:
            for name in self._names.keys() - endpoints.keys():
                del self._questions[self._names.pop(name).key]
        for name, wanted in endpoints.items():
            known = self._names.get(name)
            if known is None:
                known = self._names[name] = _Name(name)
                self._questions[known.key] = known
            known.set(wanted)
            for asker in list(known.askers.values()):
                if asker.told != known.version:
                    asker.hurry()

    def known(self) -> dict[str, Endpoints]:
        """Give what is answered."""
        return {name: known.endpoints or () for name, known in self._names.items()}

    def replaced(self) -> None:
        """Note that other workers took over: what the former ones ask says nothing any more."""
        self._former = frozenset(
            source for name in self._names.values() for source in name.askers
        )  # fmt: skip
        self._paces = {source: self._paces[source] for source in self._former & self._paces.keys()}

    def retained(self) -> None:
        """Note that no others took over after all."""
        self._former = frozenset()

    def settled(self, name: str) -> bool:
        """Whether NGINX has a name's endpoints: who asks again has taken in the first answer."""
        found = self._names.get(name)
        return found is not None and any(
            asker.asked > 1
            for source, asker in found.askers.items()
            if source not in self._former
        )  # fmt: skip

    async def taken(self, names: Collection[str], seconds: float) -> bool:
        """Wait until NGINX has what is now known of ``names``; returns whether it has."""
        if not names:
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not all(self._is_taken(self._names[name]) for name in names):
                    self._taken.clear()
                    await self._taken.wait()
            await asyncio.sleep(ADDRESSES_SECONDS)
            return True
        return False

    def _is_taken(self, name: _Name) -> bool:
        return any(
            asker.told == name.version
            for source, asker in name.askers.items()
            if source not in self._former
        )

    def asked(self, data: bytes, source: object, respond: Respond) -> None:
        """Take in a question; ``source`` None: answer at once, to nobody in particular."""
        self.questions += 1
        name = self._questions.get(data[12:])
        if name is None:
            answer = dns_messages.encode_default_response(data)
            if answer:
                respond(answer)
            return
        if source is None:
            respond(data[:2] + name.stream[2:])
            return
        asker = name.asker(source)
        if asker.held is not None:
            asker.held.cancel()
            asker.held = None
        elif asker.identity != data[:2]:
            asker.asked += 1
        elif not asker.open:
            # The answer was lost on the way.
            asker.told = -1
        asker.identity, asker.open = data[:2], True

        def give() -> None:
            if asker.open and asker.identity == data[:2]:
                asker.open, asker.told = False, name.version
                respond(data[:2] + name.datagram[2:])
                self._taken.set()

        def in_turn() -> None:
            asker.held = None
            self._paces.setdefault(source, _Pace()).give(give)

        asker.answer = in_turn
        if asker.told == name.version:
            asker.held = asyncio.get_running_loop().call_later(HELD_SECONDS, in_turn)
        else:
            in_turn()

    async def _stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def respond(data: bytes) -> None:
            writer.write(struct.pack("!H", len(data)) + data)

        self._streams.add(writer)
        try:
            while True:
                (length,) = struct.unpack("!H", await reader.readexactly(2))
                self.asked(await reader.readexactly(length), None, respond)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self._streams.discard(writer)
            writer.close()


def _send(datagrams: socket.socket, source: object, answer: bytes) -> None:
    with contextlib.suppress(OSError):
        datagrams.sendto(answer, cast(tuple[str, int], source))
