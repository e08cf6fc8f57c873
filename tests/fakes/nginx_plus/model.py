"""Model of the shared memory of NGINX Plus and of changes by its API."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fakes.nginx_plus.addresses import ApiError, address, bad_format, is_name, split, value

__all__ = ["ApiError", "Keyval", "Plus", "Server", "Upstream"]

DEFAULTS: dict[str, Any] = {
    "weight": 1,
    "max_conns": 0,
    "max_fails": 1,
    "fail_timeout": "10s",
    "slow_start": "0s",
    "route": "",
    "backup": False,
    "down": False,
}


class Server(msgspec.Struct):
    """A server of an upstream. Parameters are as the API writes them."""

    id: int
    server: str
    parameters: dict[str, Any]
    service: str = ""
    drain: bool = False
    parent: int | None = None
    """The server with the domain name that this address was found for."""
    host: str = ""

    def to_api(self, kind: str) -> dict[str, Any]:
        """Return the object in the format of the API."""
        result = {"id": self.id, "server": self.server, "service": self.service, **self.parameters}
        if kind == "stream":
            del result["route"]
        if self.drain:
            result["drain"] = True
        if self.parent is not None:
            result |= {"parent": self.parent, "host": self.host}
        return result

    def line(self) -> str:
        """Return the line of the state file."""
        words = ["server", self.server]
        words += [f"service={self.service}"] if self.service else []
        words += ["resolve"] if is_name(self.server) else []
        for name, default in DEFAULTS.items():
            held = self.parameters[name]
            if held != default:
                words.append(name if held is True else f"{name}={held}")
        return " ".join([*words, *(["drain"] if self.drain else [])]) + ";\n"


class Upstream:
    """A group of servers. Without ``zone`` it is static: the API cannot show or change it."""

    def __init__(
        self,
        kind: str,
        name: str,
        *,
        zone: str = "",
        state: Path | None = None,
        room: int = 500,
        backup: bool = True,
    ) -> None:
        """``room``: how many servers the zone holds; ``backup``: false with ``hash`` and such."""
        self.kind, self.name, self.zone, self.state = kind, name, zone, state
        self.room, self.backup = room, backup
        self.servers: dict[int, Server] = {}
        self._next = 0
        if state is not None:
            for line in read_state(state):
                self.load(line)

    def load(self, words: str) -> Server:
        """Take over a ``server`` directive of the configuration or of the state file."""
        name, *rest = words.split()
        server = Server(self._next, address(name, kind=self.kind), dict(DEFAULTS))
        for word in rest:
            key, equals, held = word.partition("=")
            if key == "drain":
                server.drain = True
            elif key == "service":
                server.service = held
            elif key in DEFAULTS:
                known = DEFAULTS[key]
                number = type(known) is int
                server.parameters[key] = (int(held) if number else held) if equals else True
        self.servers[server.id] = server
        self._next += 1
        return server

    def find(self, number: str) -> Server:
        """Return the server of an id in a path. Raises ApiError."""
        if not number.isdecimal():
            raise ApiError(400, "UpstreamBadServerId", "invalid server id")
        server = self.servers.get(int(number))
        if server is None:
            raise ApiError(404, "UpstreamServerNotFound", f'server with id "{number}" not found')
        return server

    def add(self, body: Any, names: Mapping[str, list[str]] | None, version: int) -> Server:
        """POST. ``names``: what the resolver would find; None: there is no resolver."""
        parameters = self._given(body, version, ("server", "service", *DEFAULTS, "drain"))
        if "server" not in parameters:
            raise bad_format('missing "server" argument')
        service = parameters.pop("service", "")
        where = address(parameters.pop("server"), kind=self.kind, service=service)
        if parameters.get("backup") and not self.backup:
            raise ApiError(400, "UpstreamNoBackup", f'upstream "{self.name}" has no backup')
        if is_name(where) and names is None:
            raise ApiError(400, "UpstreamConfNoResolver", "no resolver defined to resolve names")
        drain = parameters.pop("drain", False)
        result = (names or {}).get(split(where)[0], []) if is_name(where) else []
        if len(self.servers) + 1 + len(result) > self.room:
            text = f'upstream "{self.name}" memory exhausted'
            raise ApiError(400, "UpstreamOutOfMemory", text)
        server = self._put(Server(0, where, DEFAULTS | parameters, service, drain))
        for ip_address in result:
            resolved = (
                address(ip_address, kind=self.kind)
                if ":" in ip_address
                else f"{ip_address}:{split(where)[1]}"
            )
            self._put(
                Server(0, resolved, dict(server.parameters), "", drain, server.id, split(where)[0])
            )
        self.save()
        return server

    def change(self, number: str, body: Any, version: int) -> Server:
        """PATCH."""
        server = self.find(number)
        allowed = ("server", *(name for name in DEFAULTS if name != "backup"), "drain")
        parameters = self._given(body, version, allowed)
        if "server" in parameters:
            where = address(parameters.pop("server"), kind=self.kind, service=server.service)
            if server.parent is not None or is_name(where) != is_name(server.server):
                text = f'server "{server.id}" address is immutable'
                raise ApiError(400, "UpstreamServerImmutable", text)
            server.server = where
        if server.host and "weight" in parameters and self.servers[server.parent or 0].service:
            text = f'server "{server.id}" weight is immutable'
            raise ApiError(400, "UpstreamServerWeightImmutable", text)
        if "drain" in parameters or "down" in parameters:
            server.drain = parameters.pop("drain", False)
        server.parameters |= parameters
        self.save()
        return server

    def remove(self, number: str) -> None:
        """DELETE: a server with a domain name goes with its addresses."""
        server = self.find(number)
        if server.parent is not None:
            text = f'server "{server.id}" is not removable'
            raise ApiError(400, "UpstreamServerImmutable", text)
        remaining = {n: s for n, s in self.servers.items() if server.id not in (n, s.parent)}
        self.servers = remaining
        self.save()

    def save(self) -> None:
        """Write the state file, as is done at each change."""
        if self.state is not None:
            own = (server for server in self.servers.values() if server.parent is None)
            self.state.write_text("".join(server.line() for server in own), encoding="utf-8")

    def status(self) -> dict[str, Any]:
        """Return the object that ``/upstreams/`` returns for this upstream."""
        peers = [
            {
                "id": server.id,
                "server": server.server,
                "name": server.host or server.server,
                "backup": server.parameters["backup"],
                "weight": server.parameters["weight"],
                "state": _state(server),
                "active": 0,
                ("requests" if self.kind == "http" else "connections"): 0,
                "sent": 0,
                "received": 0,
                "fails": 0,
                "unavail": 0,
                "health_checks": {"checks": 0, "fails": 0, "unhealthy": 0},
                "downtime": 0,
                **({"responses": _responses()} if self.kind == "http" else {}),
            }
            for server in self.servers.values()
        ]
        extra = {"keepalive": 0} if self.kind == "http" else {}
        return {"peers": peers, **extra, "zombies": 0, "zone": self.zone}

    def _put(self, server: Server) -> Server:
        # Ids are not used again (our assumption; the documentation does not say).
        server.id = self._next
        self._next += 1
        self.servers[server.id] = server
        return server

    def _given(self, body: Any, version: int, allowed: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(body, dict):
            raise bad_format("nested object or list")
        unknown = {"route", "drain"} if self.kind == "stream" else set[str]()
        unknown |= {"drain"} if version < 2 else set()
        for name in body:
            if name not in allowed or name in unknown:
                raise bad_format(f'unknown parameter "{name}"')
        return {name: value(name, raw) for name, raw in body.items()}


def read_state(path: Path) -> list[str]:
    """Return the values of ``server`` directives of a state file; none if it does not exist."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [line.strip().removeprefix("server ") for line in text.split(";") if line.strip()]


def _state(server: Server) -> str:
    if server.parameters["down"]:
        return "down"
    return "draining" if server.drain else "up"


def _responses() -> dict[str, Any]:
    return {**{f"{n}xx": 0 for n in range(1, 6)}, "codes": {}, "total": 0}


class Keyval:
    """A key-value zone; ``timeout`` in seconds is what an ``expire`` needs."""

    def __init__(
        self, kind: str, name: str, *, timeout: float | None = None, state: Path | None = None
    ) -> None:
        self.kind, self.name, self.timeout, self.state = kind, name, timeout, state
        self._held: dict[str, tuple[str, float]] = {}
        if state is not None and state.exists() and state.stat().st_size:
            self._held = {k: (v, 0.0) for k, v in msgspec.json.decode(state.read_bytes()).items()}

    def pairs(self, now: float = 0.0) -> dict[str, str]:
        """Return the pairs that have not expired."""
        at = now or time.monotonic()
        return {k: v for k, (v, until) in self._held.items() if not until or at < until}

    def add(self, body: Any) -> None:
        """POST: one pair, or several into an empty zone."""
        entries = self._given(body)
        known = self.pairs()
        if len(entries) > 1 and known:
            raise ApiError(400, "KeyvalFormatError", "only one key can be added")
        for key, held in entries.items():
            if key in known:
                raise ApiError(409, "KeyvalKeyExists", f'key "{key}" already exists')
            if held is None:
                raise ApiError(400, "KeyvalFormatError", f'invalid value of key "{key}"')
        self._put({key: held for key, held in entries.items() if held is not None})

    def change(self, body: Any) -> None:
        """PATCH: another value, another time to expire, or null, which deletes."""
        entries = self._given(body)
        if len(entries) > 1:
            raise ApiError(400, "KeyvalFormatError", "only one key can be updated")
        for key, held in entries.items():
            if key not in self.pairs():
                raise ApiError(404, "KeyvalKeyNotFound", f'key "{key}" not found')
            if held is None:
                del self._held[key]
                self._save()
            else:
                self._put({key: held})

    def clear(self) -> None:
        """DELETE."""
        self._held.clear()
        self._save()

    def _given(self, body: Any) -> dict[str, tuple[str, float] | None]:
        if not isinstance(body, dict):
            raise ApiError(400, "KeyvalFormatError", "invalid JSON")
        if not body:
            raise ApiError(400, "KeyvalFormatError", "key required")
        return {key: self._value(key, held) for key, held in body.items()}

    def _value(self, key: str, held: Any) -> tuple[str, float] | None:
        until = 0.0 if self.timeout is None else time.monotonic() + self.timeout
        if isinstance(held, dict):
            if self.timeout is None:
                raise ApiError(400, "KeyvalFormatError", "key expire is not allowed")
            if held.keys() - {"value", "expire"} or not isinstance(held.get("expire", 0), int):
                raise ApiError(400, "KeyvalFormatError", f'invalid value of key "{key}"')
            until = time.monotonic() + held.get("expire", 0) / 1000
            held = held.get("value")
        if held is None:
            return None
        if isinstance(held, list | bool) or not isinstance(held, str | int | float):
            raise ApiError(400, "KeyvalFormatError", f'invalid value of key "{key}"')
        # Numbers are taken, and are text from then on.
        return str(held), until

    def _put(self, entries: dict[str, tuple[str, float]]) -> None:
        self._held |= entries
        self._save()

    def _save(self) -> None:
        if self.state is not None:
            self.state.write_bytes(msgspec.json.encode(self.pairs()))


class Plus:
    """One NGINX Plus."""

    def __init__(self, *upstreams: Upstream, keyvals: tuple[Keyval, ...] = ()) -> None:
        self.upstreams = {(upstream.kind, upstream.name): upstream for upstream in upstreams}
        self.keyvals = {(keyval.kind, keyval.name): keyval for keyval in keyvals}
        self.version, self.build = "1.29.3", "nginx-plus-r36"
        self.stream = True
        """True if its configuration has a ``stream`` block."""
        self.write = True
        """True if the API has ``write=on``."""
        self.names: dict[str, list[str]] | None = None
        """Addresses from the resolver by name; None without a resolver."""
        self.server_zones: dict[str, list[str]] = {"http": [], "stream": []}
        """Names of ``status_zone``."""
        self.generation = 1
        self.on_change: Callable[[], None] = lambda: None
        """Called when an upstream's servers were changed."""

    def upstream(self, kind: str, name: str) -> Upstream:
        """Return an upstream that can be changed. Raises ApiError."""
        result = self.upstreams.get((kind, name))
        if result is None:
            raise ApiError(404, "UpstreamNotFound", "upstream not found")
        if not result.zone:
            raise ApiError(400, "UpstreamStatic", "upstream is static")
        return result

    def keyval(self, kind: str, name: str) -> Keyval:
        """Return a key-value zone. Raises ApiError."""
        result = self.keyvals.get((kind, name))
        if result is None:
            raise ApiError(404, "KeyvalNotFound", "keyval not found")
        return result
