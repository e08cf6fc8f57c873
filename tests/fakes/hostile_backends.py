"""Hostile values of XBackends and of InferencePools."""

from __future__ import annotations

from typing import Any

from fakes.short_objects import Object, pool_of_models, x_backend


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


def _picker(**reference: Any) -> list[Object]:
    return pool_of_models(endpointPickerRef={"name": "s", "port": {"number": 80}, **reference})


def _ports(*numbers: int) -> list[Object]:
    return pool_of_models(targetPorts=[{"number": number} for number in numbers])


def _labels(**labels: str) -> list[Object]:
    return pool_of_models(selector={"matchLabels": labels})


INFERENCE_POOLS: dict[str, list[Object]] = {
    "InferencePool ports: first and last": _ports(1, 65_535),
    "InferencePool ports: eight": _ports(*range(1, 9)),
    "InferencePool labels: many": _labels(
        **{f"a.example/{'b' * 60}{number}": "c" * 63 for number in range(64)}
    ),
    "InferencePool labels: no key": _labels(**{'a";}\n{$b': "c"}),
    "InferencePool labels: long key": _labels(**{"a" * 10_000: "c"}),
    "InferencePool protocol: h2c": [
        *pool_of_models(
            appProtocol="kubernetes.io/h2c",
            endpointPickerRef={"name": "s", "port": {"number": 80}},
        )
    ],
    "InferencePool picker: Service": _picker(),
    "InferencePool picker: fails open": _picker(failureMode="FailOpen"),
    "InferencePool picker: name of a directive": _picker(name='a";}\n{$b'),
    "InferencePool picker: path": _picker(name="../../../etc/passwd"),
    "InferencePool picker: longest name": _picker(name="a" * 253),
    "InferencePool picker: missing, fails open": _picker(name="none", failureMode="FailOpen"),
    "InferencePool picker: unknown port": _picker(port={"number": 65_535}),
    "InferencePool picker: Secret": _picker(kind="Secret"),
    "InferencePool picker: pool itself": _picker(
        group="inference.networking.k8s.io", kind="InferencePool", name="pool"
    ),
}
