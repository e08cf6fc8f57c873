"""Keys of clients that a SecurityPolicy requires, from Secrets of its namespace."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator

from gatehouse.apis import core
from gatehouse.apis import security_policies as api
from gatehouse.compiler.frontends.gateway_api import header_names
from gatehouse.compiler.frontends.gateway_api.compiled_filters import Filters
from gatehouse.compiler.frontends.gateway_api.extensions.nginx_values import ValueProblem
from gatehouse.compiler.ir.authentication import ApiKeys, KeySource
from gatehouse.compiler.ir.gateway import ApiKeyFile
from gatehouse.compiler.ir.http import Route
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Ask

MAX_CLIENT_KEYS = 256
"""Maximum number of keys of a policy: NGINX compares a request with each of them."""

MAX_KEY_CHARACTERS = 128

KEY_HEADER_PATTERN = "[A-Za-z0-9-]{1,46}"
"""Names of headers that both proxies know, in requests to gRPC backends, too."""

PARAMETER_PATTERN = "[A-Za-z0-9._~-]{1,64}"
"""Names of parameters and cookies that need no encoding."""

MAX_SOURCES = 8

_KEY = re.compile(rb"[A-Za-z0-9._~+/=-]+")
_CLIENT = re.compile(r"[A-Za-z0-9._-]{1,253}")

_MESSAGE_HEADERS = ("host", "cookie", "content-type", "content-encoding")
"""Headers in lower case that requests have for other purposes, so that none is a key."""


def key_sources(spec: api.ApiKeysSpec) -> tuple[KeySource, ...]:
    """Return the places of a request that may have a key, in the order in which they are read."""
    result: list[KeySource] = []
    for source in spec.extract_from:
        result += (KeySource("header", name) for name in source.headers)
        result += (KeySource("query", name) for name in source.params)
        result += (KeySource("cookie", name) for name in source.cookies)
    return tuple(result)


def field_problems(spec: api.ApiKeysSpec) -> Iterator[str]:
    """Yield what is wrong with the fields, whatever the Secrets contain."""
    if not spec.secret_refs:
        yield "spec.apiKeys.secretRefs: must name a Secret"
    sources = key_sources(spec)
    if not 0 < len(sources) <= MAX_SOURCES:
        yield f"spec.apiKeys.extractFrom: must have from 1 to {MAX_SOURCES} names"
    names = [(one.kind, _compared(one)) for one in sources]
    if len(set(names)) < len(names):
        yield "spec.apiKeys.extractFrom: a name is there twice"
    for index, source in enumerate(spec.extract_from):
        place = f"spec.apiKeys.extractFrom[{index}]"
        for number, name in enumerate(source.headers):
            if why := header_problem(name):
                yield f"{place}.headers[{number}]: {why}"
        for field, texts in (("params", source.params), ("cookies", source.cookies)):
            for number, name in enumerate(texts):
                if not re.fullmatch(PARAMETER_PATTERN, name):
                    why = "must have up to 64 letters, digits and . _ ~ -"
                    yield f"{place}.{field}[{number}]: invalid value {name!r}: {why}"
    if spec.client_header:
        if why := header_problem(spec.client_header):
            yield f"spec.apiKeys.clientHeader: {why}"
        elif ("header", spec.client_header.lower()) in names:
            yield "spec.apiKeys.clientHeader: must not be a header with a key"


def _compared(source: KeySource) -> str:
    return source.name.lower() if source.kind == "header" else source.name


def header_problem(name: str) -> str:
    """Return why a header has neither a key nor the identity of a client; empty if it may."""
    if not re.fullmatch(KEY_HEADER_PATTERN, name):
        return f"invalid value {name!r}: must have up to 46 letters, digits and hyphens"
    if name.lower() in _MESSAGE_HEADERS:
        return f"invalid value {name!r}: requests have this header for another purpose"
    return header_names.request_problem("set", name)


def check_keys(ask: Ask, field: Origin, spec: api.ApiKeysSpec) -> Filters:
    """Return authentication by the keys that a field of a policy names. Raises ValueProblem."""
    owners: dict[bytes, tuple[str, str]] = {}
    for index, reference in enumerate(spec.secret_refs):
        secret = f"Secret {field.namespace}/{reference.name}"
        where = f"spec.{field.part}.secretRefs[{index}]: {secret}"
        for client, key in _entries(ask, field.namespace, reference.name, where):
            entry = f"data[{client}]"
            owner, first = owners.setdefault(key, (client, f"{entry} of {secret}"))
            if owner != client:
                raise ValueProblem(f"{where}: {entry}: has the same key as {first}")
    if len(owners) > MAX_CLIENT_KEYS:
        raise ValueProblem(f"spec.{field.part}.secretRefs: more than {MAX_CLIENT_KEYS} keys")
    file = _key_file(((client, key) for key, (client, _) in owners.items()), field)
    keys = ApiKeys(
        keys=file.name,
        sources=key_sources(spec),
        client_header=spec.client_header,
        sanitize=spec.sanitize,
        origin=field,
    )
    return Filters(Route(authentication=keys), secrets=(file,))


def _key_file(clients: Iterable[tuple[str, bytes]], field: Origin) -> ApiKeyFile:
    content = b"".join(sorted(b"%s:%s\n" % (client.encode(), key) for client, key in clients))
    return ApiKeyFile.make("keys", content, field.field("secretRefs"))


def _entries(ask: Ask, namespace: str, name: str, where: str) -> Iterator[tuple[str, bytes]]:
    """Yield the clients of a Secret with their keys. Raises ValueProblem."""
    secret = ask.read(("Secret", namespace, name))
    if secret is None:
        raise ValueProblem(f"{where} not found")
    if not isinstance(secret, core.Secret) or not secret.data:
        raise ValueProblem(f"{where}: must have an entry for each client")
    for client, text in sorted(secret.data.items()):
        place = f"{where}: data[{client}]"
        if not _CLIENT.fullmatch(client):
            raise ValueProblem(f"{place}: the name must have only letters, digits and . _ -")
        try:
            # Secrets written by hand often end in a newline.
            key = base64.b64decode(text, validate=True).rstrip(b"\r\n")
        except ValueError as error:
            raise ValueProblem(f"{place}: data must be base64") from error
        if not key:
            raise ValueProblem(f"{place}: must not be empty")
        if len(key) > MAX_KEY_CHARACTERS:
            raise ValueProblem(f"{place}: longer than {MAX_KEY_CHARACTERS} characters")
        if not _KEY.fullmatch(key):
            raise ValueProblem(f"{place}: must have only letters, digits and . _ ~ + / = -")
        yield client, key
