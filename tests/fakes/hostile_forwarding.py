"""Hostile values of forwarding: sessions, timeouts, retries, weights, TLS, addresses."""

from __future__ import annotations

from fakes.short_objects import (
    AUTHORITY,
    BACKEND,
    Object,
    backend_tls,
    external,
    l4,
    modifier,
    named,
    route,
    session,
    slice_of,
)

FORWARDING: dict[str, list[Object]] = {
    "session header: dot": session("a.b"),
    "session header: dollar sign": session("$"),
    "session header: tilde": session("~"),
    "session header: underscore": session("a_b"),
    "session header: hyphens": session("---"),
    "session header: longest": session("x" * 128),
    "session header: host": session("Host"),
    "session header: cookie": session("Cookie"),
    "session header beside a match": route(
        {
            "sessionPersistence": {"type": "Header", "header": {"name": "a.b"}},
            "matches": [{"headers": [{"name": "x_y", "value": "v"}]}],
        }
    ),
    "session cookie: dot": session("a.b", "Cookie"),
    "session cookie: dollar signs": session("$" * 128, "Cookie"),
    "session cookie: signs": session("!#$%&'*+.^_`|~-", "Cookie"),
    "session cookie: longest time": session("a", "Cookie", "Permanent", absoluteTimeout="99999h"),
    "session cookie: no time": session("a", "Cookie", "Permanent", absoluteTimeout="0s"),
    "session cookie: several backends": route(
        {
            "sessionPersistence": {"type": "Cookie", "cookie": {"name": "$a"}},
            "backendRefs": [BACKEND | {"weight": 1}, {"name": "t", "port": 80, "weight": 2}],
        }
    ),
    "session header: several backends": route(
        {
            "sessionPersistence": {"type": "Header", "header": {"name": "a.b"}},
            "backendRefs": [BACKEND | {"weight": 1}, {"name": "t", "port": 80, "weight": 2}],
        }
    ),
    "timeouts: longest": route({"timeouts": {"request": "99999h", "backendRequest": "99999h"}}),
    "timeouts: longest sum": route({"timeouts": {"request": "99999h99999h99999h99999h"}}),
    "timeouts: zero": route({"timeouts": {"request": "0s"}}),
    "timeouts: milliseconds": route({"timeouts": {"request": "1ms", "backendRequest": "1ms"}}),
    "retry: codes": route(
        {"retry": {"codes": [400, 500, 502, 503, 504, 599], "attempts": 3, "backoff": "99999h"}}
    ),
    "retry: no backoff": route({"retry": {"attempts": 2, "backoff": "0s"}}),
    "retry: small backoff": route({"retry": {"attempts": 2, "backoff": "1ms"}}),
    "retry: sum of backoffs": route(
        {"retry": {"attempts": 2, "backoff": "99999h99999h99999h99999h"}}
    ),
    "retry: many": route({"retry": {"attempts": 2**31 - 1}}),
    "retry: many codes": route({"retry": {"codes": list(range(400, 600))}}),
    "weights: largest": route(
        {"backendRefs": [BACKEND | {"weight": 1_000_000}, {"name": "t", "port": 80, "weight": 1}]}
    ),
    "weights: sum": route(
        {"backendRefs": [{"name": n, "port": 80, "weight": 1_000_000} for n in ("s", "t")] * 8}
    ),
    "weights: sixteen and a missing Service": route(
        {
            "backendRefs": [
                *[BACKEND | {"weight": 1_000_000}] * 15,
                {"name": "missing", "port": 80, "weight": 1_000_000},
            ]
        }
    ),
    "weights: zero": route({"backendRefs": [BACKEND | {"weight": 0}]}),
    "weights: with filters": route(
        {
            "backendRefs": [
                {
                    "name": n,
                    "port": 80,
                    "weight": 1_000_000,
                    "filters": [modifier("response", "set", [named("X-A", '"' * 2040)])],
                }
                for n in ("s", "t")
            ]
        }
    ),
    "tcp: weight": l4("TCPRoute", 9000, weight=1_000_000),
    "udp: weight": l4("UDPRoute", 9001, weight=0),
    "backend TLS: longest hostname": backend_tls(hostname=".".join(["a" * 62] * 4)),
    "backend TLS: names": backend_tls(
        subjectAltNames=[{"type": "Hostname", "hostname": ".".join(["a" * 62] * 4)}]
    ),
    "backend TLS: long URI": backend_tls(
        subjectAltNames=[{"type": "URI", "uri": "spiffe://a.example/" + "b" * 200}]
    ),
    "backend TLS: URI with quotes": backend_tls(
        subjectAltNames=[{"type": "URI", "uri": 'spiffe://a.example/"$;'}]
    ),
    "backend TLS: certificates of text": [
        *backend_tls(wellKnownCACertificates=None, caCertificateRefs=[AUTHORITY]),
        {"kind": "ConfigMap", "data": {"ca.crt": "a"}},
    ],
    "backend TLS: certificates of no bytes": [
        *backend_tls(wellKnownCACertificates=None, caCertificateRefs=[AUTHORITY]),
        {
            "kind": "ConfigMap",
            "data": {"ca.crt": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
        },
    ],
    "backend TLS: missing certificates": backend_tls(
        wellKnownCACertificates=None,
        caCertificateRefs=[{"group": "", "kind": "ConfigMap", "name": "missing"}],
    ),
    "external name: longest": external(".".join(["a" * 62] * 4)),
    "external name: address": external("10.0.0.1"),
    "external name: local": external("localhost"),
    "endpoints: IPv6": slice_of("IPv6", "2001:db8::1", "2001:DB8:0::2", "::2"),
    "endpoints: IPv4": slice_of("IPv4", "255.255.255.255", "240.0.0.1"),
    "endpoints: names": slice_of("FQDN", ".".join(["a" * 62] * 4)),
}
