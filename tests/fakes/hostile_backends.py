"""Hostile values of XBackends: sessions, TLS, hosts, labels."""

from __future__ import annotations

from typing import Any

from fakes.short_objects import Object, x_backend


def _session(kind: str, **own: Any) -> list[Object]:
    return x_backend(sessionPersistence={"type": kind, kind.lower(): own})


def _tls(**validation: Any) -> list[Object]:
    system = {"wellKnownCACertificates": "System", "hostname": "a.example"}
    return x_backend(tls={"mode": "ServerOnly", "validation": {**system, **validation}})


def _host(name: str) -> list[Object]:
    return x_backend(
        type="ExternalHostname", externalHostname={"hostname": name}, endpointSelector=None
    )


X_BACKENDS: dict[str, list[Object]] = {
    "XBackend session cookie: signs": _session("Cookie", name="!#$%&'*+.^_`|~-"),
    "XBackend session cookie: dollar signs": _session("Cookie", name="$" * 128),
    "XBackend session cookie: path": _session("Cookie", name="a", path='/$request_uri"}'),
    "XBackend session header: dot": _session("Header", name="a.b"),
    "XBackend session header: host": _session("Header", name="Host"),
    "XBackend TLS: longest hostname": _tls(hostname=".".join(["a" * 62] * 4)),
    "XBackend TLS: URI with quotes": _tls(
        subjectAltNames=[{"type": "URI", "uri": 'spiffe://a.example/"$;'}]
    ),
    "XBackend labels: many": x_backend(
        endpointSelector={"matchLabels": {f"a.example/{'b' * 60}{n}": "c" * 63 for n in range(64)}}
    ),
    "XBackend host: longest": _host(".".join(["a" * 62] * 4)),
    "XBackend host: local": _host("localhost"),
    "XBackend host: short address": _host("127.1"),
    "XBackend host: cloud": _host("metadata.google.internal"),
    "XBackend host: Service": _host("db.other.svc"),
}
