"""Hostile listeners and hostnames."""

from __future__ import annotations

from fakes.short_objects import (
    Object,
    listener,
    route,
    tls,
)

LISTENERS: dict[str, list[Object]] = {
    "hostname: longest": route(hostnames=[".".join(["a" * 62] * 4)]),
    "hostname: longest wildcard": route(hostnames=["*." + ".".join(["a" * 61] * 4)]),
    "hostname: many": route(
        hostnames=[f"{'a' * 60}.{'b' * 60}.{'c' * 60}.{n}.example" for n in range(16)]
    ),
    "hostname: punycode": route(hostnames=["xn--a.example"]),
    "tls: longest hostname": tls(".".join(["a" * 62] * 4)),
    "tls: wildcard": tls("*." + ".".join(["a" * 61] * 4)),
    "tls: many": tls(*(f"{'a' * 60}.{'b' * 60}.{'c' * 60}.{n}.example" for n in range(16))),
    "listener: longest hostname": listener(hostname=".".join(["a" * 62] * 4)),
    "listener: port": listener(port=65535),
    "listener: internal port": listener(port=1),
    "listener: unknown protocol": listener(protocol="example.com/foo"),
    "listener: certificate": listener(
        port=8443, protocol="HTTPS", tls={"certificateRefs": [{"name": "missing"}]}
    ),
    "listener: options": listener(
        port=8444,
        protocol="HTTPS",
        tls={"certificateRefs": [{"name": "missing"}], "options": {"nginx.org/ssl-ciphers": "a;b"}},
    ),
}
