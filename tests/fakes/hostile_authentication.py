"""Hostile values of authentication: passwords, tokens, external services."""

from __future__ import annotations

import base64

from fakes.short_objects import (
    BACKEND,
    Object,
    authenticated,
    basic,
    claims,
    filtered,
    jwt,
)

AUTHENTICATION: dict[str, list[Object]] = {
    "basic: realm of quotes": basic("'" * 2000),
    "basic: realm of dollar signs": basic("$" * 400),
    "basic: long realm": basic("a" * 5000),
    "basic: line feed": basic("a\nb"),
    "basic: outside of ASCII": basic("é" * 2000),
    "basic: long name": [
        {**raw, "name": "n" * 253} if raw["kind"] == "Secret" else raw
        for raw in authenticated(
            {"type": "Basic", "basic": {"realm": "a", "secretRef": {"name": "n" * 253}}},
            {"kind": "Secret", "data": {"auth": "dXNlcjokYXByMSR4JDE="}},
        )
    ],
    "basic: long line": basic("a", base64.b64encode(b"u:" + b"x" * 100_000).decode()),
    "jwt: realm of dollar signs": jwt(realm="$" * 400),
    "jwt: leeway": jwt(leeway="9999h"),
    "jwt: claim of quotes": jwt(authorization=claims({"name": '"' * 120})),
    "jwt: claim values": jwt(authorization=claims({"name": "a", "values": ['"$;{}\\' * 40]})),
    "jwt: pattern of claim": jwt(
        authorization=claims({"name": "a", "match": "Regex", "values": [r"\x{10FFFF}"]})
    ),
    "jwt: pattern of script": jwt(
        authorization=claims({"name": "a", "match": "Regex", "values": [r"\p{Kawi}"]})
    ),
    "jwt: pattern of byte": jwt(
        authorization=claims({"name": "a", "match": "Regex", "values": [r"[\x{80}-\x{ff}]"]})
    ),
    "jwt: pattern of alternatives": jwt(
        authorization=claims({"name": "a", "match": "Regex", "values": ["a|b", "(?i)c"]})
    ),
    "jwt: header of a claim": jwt(authorization=claims({"name": "a", "proxySetHeader": "x" * 256})),
    "jwt: keys of text": jwt(keys="e30="),
    "jwt: keys of bytes": jwt(keys="AAECAwQF/w=="),
    "basic: empty file": basic("a", ""),
    "basic: binary file": basic("a", "AAECAwQF/w=="),
    "external auth: headers": filtered(
        "ExternalAuth",
        {
            "protocol": "HTTP",
            "backendRef": BACKEND,
            "http": {
                "allowedHeaders": ["x" * 256, "x.a", "x_a"],
                "allowedResponseHeaders": ["y" * 256, "y.a", "y_a"],
            },
        },
    ),
    "external auth: gRPC": filtered(
        "ExternalAuth",
        {"protocol": "GRPC", "backendRef": BACKEND, "grpc": {"allowedHeaders": ["x" * 256]}},
    ),
    "external auth: body": filtered(
        "ExternalAuth",
        {"protocol": "HTTP", "backendRef": BACKEND, "http": {}, "forwardBody": {"maxSize": 65535}},
    ),
    "external auth: no body": filtered(
        "ExternalAuth",
        {"protocol": "HTTP", "backendRef": BACKEND, "http": {}, "forwardBody": {"maxSize": 0}},
    ),
}
