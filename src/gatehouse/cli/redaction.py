"""Removal of secrets from objects and text, for files that users send to others. No I/O.

Secrets are found by place (:func:`redact_object`) and by value (:class:`Redactor`). The values of
all Secrets are removed wherever they occur, and so are words of snippets that may be values, and
credentials that have a known form. Text that people wrote freely cannot be checked completely.
"""

from __future__ import annotations

import base64
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

import yaml

from kube_base.types.objects import Object

REDACTED = "[redacted]"

_SECRET_NAME = re.compile(
    r"passw|secret|token|api-?key|private|credential|authorization|cookie|session|signature"
    r"|^x-.*-?(auth|key)|^(auth|code|sig|key|keydata)$",
    re.IGNORECASE,
)
"""Names of headers, query parameters, variables and fields that may have secret values."""

_HELD_KINDS = ("Secret", "ConfigMap")
_KEPT_ANNOTATIONS = (
    "gateway.networking.k8s.io/",
    "gatehouse.dev/",
    "proxy.kubegateway.io/",
    "prometheus.io/",
)
_OPAQUE_FIELDS = frozenset({"managedFields", "patches", "env", "envFrom", "volumes"})
"""Fields whose content is removed completely: any text may be in them."""

_SNIPPET_KINDS = ("SnippetsFilter", "SnippetsPolicy")
_WORD = re.compile(r"[^\s;{}\"']{8,}")
_DIRECTIVE = re.compile(r"[a-z_]+|\$\w+")

_HEADER_DIRECTIVE = re.compile(
    r"(\b(?:proxy_set_header|grpc_set_header|add_header|header|set)\s+\"?\$?([\w.-]+)\"?\s+)"
    r"(?:(?>\"(?:\\.|[^\"\\\n])*(?:\"|(?=\n|\Z))|[^;\n\"])+;|[^;\n]+;)"
)
"""Directives of NGINX with a name and a value."""

_PEM = re.compile(r"-----BEGIN [A-Z ]{0,40}-----(?:[^-]|-(?!----))*(?:-----END [A-Z ]{0,40}-----)?")

_NAMESPACE_OF_TOKEN = ("kubernetes.io/service-account-token", "namespace")
"""Type and key of a Secret whose value is no secret. It is in almost every text."""

_FORMS = (
    # The text between the markers has no "-----", so that the search takes linear time.
    (re.compile(r"-----BEGIN [A-Z ]{0,40}KEY-----(?:[^-]|-(?!----))*"
                r"(?:-----END [A-Z ]{0,40}KEY-----)?"),
     REDACTED),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]*(\.[\w-]*)?"), REDACTED),
    (re.compile(r"\b(Bearer|Basic|Digest)\s+[\w.~+/=-]{4,}", re.I), rf"\1 {REDACTED}"),
    (re.compile(r"(://)[^/\s\"'@?#]+@"), rf"\1{REDACTED}@"),
    (re.compile(r"([?&;][^=&\s\"'#]{1,64}=)[^&\s\"'#;]+"), rf"\1{REDACTED}"),
)  # fmt: skip
"""Credentials by form: private keys, JSON web tokens, schemes of Authorization, user information
and query parameters of URLs."""


_SHORTEST_VALUE = 6
"""Minimum length in characters of a value that is removed from text. Shorter ones are words."""


class Redactor:
    """Removes known values, and credentials that have a known form, from text."""

    def __init__(self, objects: Iterable[Object]) -> None:
        """``objects``: those whose Secrets and snippets are removed."""
        self._by_prefix: dict[str, list[str]] = defaultdict(list)
        values = {value for item in objects for value in secret_values(item)}
        # The longest first: a value may contain another one.
        for value in sorted(values, key=lambda value: (-len(value), value)):
            self._by_prefix[value[:_SHORTEST_VALUE]].append(value)

    def redact(self, text: str) -> str:
        """Return a text without secrets."""
        text = "".join(self._without_values(text))
        for pattern, replacement in _FORMS:
            text = pattern.sub(replacement, text)
        return text

    def _without_values(self, text: str) -> Iterator[str]:
        """Yield a text in parts, without known values. Takes linear time, however many they are."""
        start = position = 0
        while position <= len(text) - _SHORTEST_VALUE:
            candidates = self._by_prefix.get(text[position : position + _SHORTEST_VALUE], ())
            value = next((known for known in candidates if text.startswith(known, position)), "")
            if value:
                yield text[start:position]
                yield REDACTED
                start = position = position + len(value)
            else:
                position += 1
        yield text[start:]


def secret_values(item: Object) -> Iterator[str]:
    """Yield the secret values of an object, in all encodings: of a Secret or of snippets."""
    if item["kind"] == "Secret":
        texts = [str(value) for value in (item.get("stringData") or {}).values()]
        for name, encoded in (item.get("data") or {}).items():
            if (item.get("type"), name) == _NAMESPACE_OF_TOKEN:
                continue
            yield from (encoded,) if len(encoded) >= _SHORTEST_VALUE else ()
            try:
                texts.append(base64.b64decode(encoded).decode())
            except (ValueError, TypeError):
                continue
        for whole in texts:
            # Private keys have a known form, and certificates are no secrets.
            text = _PEM.sub("", whole)
            # Parts of a file, such as lines with passwords, may occur alone.
            for part in {text, *text.splitlines(), *re.split(r"[\s:=]+", text)}:
                yield from _encodings(part.strip())
    if item["kind"] in _SNIPPET_KINDS:
        for snippet in (item.get("spec") or {}).get("snippets") or ():
            for word in _WORD.findall(str(snippet.get("value", ""))):
                if not _DIRECTIVE.fullmatch(word):
                    yield from _encodings(word)


def _encodings(text: str) -> Iterator[str]:
    if len(text) >= _SHORTEST_VALUE:
        yield text
        yield quote(text, safe="")
        yield base64.b64encode(text.encode()).decode().rstrip("=")


def redact_object(item: Object) -> Object:
    """Return an object without the fields that may contain secrets."""
    kind, metadata = item["kind"], dict(item["metadata"])
    annotations = metadata.get("annotations") or {}
    metadata["annotations"] = {
        name: value if name.startswith(_KEPT_ANNOTATIONS) else REDACTED
        for name, value in annotations.items()
    }
    metadata.pop("managedFields", None)
    head = {"apiVersion": item.get("apiVersion", ""), "kind": kind, "metadata": metadata}
    if kind in _HELD_KINDS:
        keys = {**(item.get("data") or {}), **(item.get("binaryData") or {})}
        named = {name: f"{REDACTED} ({len(str(value))} characters)" for name, value in keys.items()}
        return {**head, **({"type": item["type"]} if "type" in item else {}), "data": named}
    rest = {name: value for name, value in item.items() if name not in head}
    if kind in _SNIPPET_KINDS:
        rest = _without_snippets(rest)
    return {**head, **_without_secrets(rest)}


def _without_snippets(rest: Object) -> Object:
    spec = dict(rest.get("spec") or {})
    spec["snippets"] = [
        {**snippet, "value": f"{REDACTED} ({len(str(snippet.get('value', '')))} characters)"}
        for snippet in spec.get("snippets") or ()
    ]
    return {**rest, "spec": spec}


def _without_secrets(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_secrets(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    named = value.get("name")
    result = {}
    for name, entry in value.items():
        secret = _SECRET_NAME.search(name) and not isinstance(entry, dict | list | bool | int)
        headed = name == "value" and isinstance(named, str) and _SECRET_NAME.search(named)
        if secret or headed or name in _OPAQUE_FIELDS:
            result[name] = REDACTED
        else:
            result[name] = _without_secrets(entry)
    return result


def redact_nginx_config(text: str) -> str:
    """Return NGINX's configuration without the values of headers that may be secret."""
    return _HEADER_DIRECTIVE.sub(
        lambda match: f"{match[1]}{REDACTED};" if _SECRET_NAME.search(match[2]) else match[0], text
    )


def redact_envoy_config(text: str) -> str:
    """Return Envoy's resources (YAML) without the values of headers that may be secret."""
    document = yaml.load(text, Loader=yaml.CSafeLoader)
    return str(yaml.dump(_without_headers(document), Dumper=yaml.CSafeDumper, sort_keys=False))


def _without_headers(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_headers(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    key = value.get("key")
    secret = isinstance(key, str) and _SECRET_NAME.search(key)
    return {
        name: REDACTED if secret and name in ("value", "raw_value") else _without_headers(entry)
        for name, entry in value.items()
    }
