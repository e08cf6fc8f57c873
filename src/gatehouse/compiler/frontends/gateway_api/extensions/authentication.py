"""Translation of AuthenticationFilters to IR: Basic, JWT and OpenID Connect.

SecurityPolicies have them as well.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import jwt
import msgspec

from gatehouse.apis import core
from gatehouse.apis import nginx_authentication as api
from gatehouse.apis.security_policies import SecurityPolicy
from gatehouse.compiler.frontends import pem
from gatehouse.compiler.frontends.gateway_api import header_names
from gatehouse.compiler.frontends.gateway_api.compiled_filters import Filters
from gatehouse.compiler.frontends.gateway_api.extensions import (
    nginx_values,
    oidc,
    password_costs,
    security_policies,
)
from gatehouse.compiler.frontends.gateway_api.extensions.nginx_values import ValueProblem
from gatehouse.compiler.frontends.gateway_api.inputs import (
    FILTERS,
    Fetched,
    UrlFetch,
    key_of,
)
from gatehouse.compiler.frontends.gateway_api.listeners import ca_certificates
from gatehouse.compiler.ir.authentication import (
    Authorization,
    Basic,
    Claim,
    Jwt,
    Requirement,
)
from gatehouse.compiler.ir.gateway import SecretFile
from gatehouse.compiler.ir.http import Route
from gatehouse.dataplane.key_sizes import verification_key
from gatehouse.dataplane.origin import Origin, object_of
from gatehouse.incremental.query import Ask, Key

SECRET_KEY = "auth"  # noqa: S105
"""Key of the Secret entry that holds names with password hashes, or a JSON Web Key Set."""


FETCH_INTERVAL_SECONDS = 300.0
"""Interval in seconds between two fetches of keys if ``keyCache`` is not set."""

_URL = re.compile(r"https://[^\s/?#@]+(?:[/?][^\s#]*)?")


def translate_authentication_filter(ask: Ask, key: Key) -> Filters | str:
    """Return the authentication of an AuthenticationFilter with its secrets, or the problem."""
    resource: api.AuthenticationFilter = ask.read(key)
    try:
        match resource.spec:
            case api.AuthenticationFilterSpec(type="Basic", basic=api.BasicAuth() as basic):
                return check_passwords(ask, object_of(key).field("basic"), basic)
            case api.AuthenticationFilterSpec(type="JWT", jwt=api.JwtAuth() as tokens):
                return check_tokens(ask, object_of(key).field("jwt"), tokens)
            case api.AuthenticationFilterSpec(type="OIDC", oidc=api.OidcAuth() as users):
                return check_users(ask, object_of(key).field("oidc"), users, users.authorization)
    except ValueProblem as problem:
        return str(problem)
    return f"spec.type: {resource.spec.type} is not supported"


def _realm(text: str, place: str) -> str:
    try:
        return nginx_values.realm(text)
    except ValueProblem as problem:
        raise ValueProblem(f"{place}.realm: {problem}") from problem


def check_passwords(ask: Ask, field: Origin, spec: api.BasicAuth) -> Filters:
    """Return basic authentication that a field of an object requires. Raises ValueProblem."""
    place = f"spec.{field.part}"
    secret = _secret(ask, field.namespace, spec.secret_ref.name, place)
    _check_users(secret.content.reveal(), place)
    origin = field.field("secretRef")
    basic = Basic(_realm(spec.realm, place), secret.name, origin)
    return Filters(Route(authentication=basic), secrets=(secret,))


def check_tokens(
    ask: Ask, origin: Origin, spec: api.JwtAuth, file: str = "spec.jwt.file"
) -> Filters:
    """Return authentication by JWT that a field of an object requires. Raises ValueProblem.

    ``file``: path of the reference to a Secret, without its last part.
    """
    namespace = origin.namespace
    if spec.source == "Remote":
        place, content = "spec.jwt.remote", _fetched(ask, namespace, spec)
        holder = origin.field("remote")
    elif spec.file is not None:
        place = f"{file}.secretRef: data[auth]"
        secret = _secret(ask, namespace, spec.file.secret_ref.name, file)
        content, holder = secret.content.reveal(), secret.origin
    else:
        raise ValueProblem(f"{file}: must be set for source File")
    keys = SecretFile.make("auth", _usable_keys(content, place), holder)
    leeway = nginx_values.parse_nginx_seconds(spec.leeway) or 0.0
    authorization = _authorization(spec.authorization, "spec.jwt.authorization")
    tokens = Jwt(_realm(spec.realm, "spec.jwt"), keys.name, leeway, authorization, origin)
    return Filters(Route(authentication=tokens), secrets=(keys,))


def check_users(
    ask: Ask, origin: Origin, spec: api.OidcLogin, required: api.AuthorizationSpec
) -> Filters:
    """Return the login of users that a field of an object requires. Raises ValueProblem."""
    oidc.check_patterns(required)
    namespace, name = origin.namespace, spec.client_secret_ref.name
    where = f"spec.oidc.clientSecretRef: Secret {namespace}/{name}"
    # Secrets written by hand often end in a newline.
    content = _data(ask, namespace, name, "client-secret", where).rstrip(b"\r\n")
    secret = SecretFile.make("auth", content, Origin("Secret", namespace, name))
    if not secret.content.reveal():
        raise ValueProblem(f"{where}: data[client-secret] must not be empty")
    authorities = "".join(
        _ca(ask, namespace, ca_certificate_ref.name, "spec.oidc.caCertificateRefs")
        for ca_certificate_ref in spec.ca_certificate_refs
    )
    trusted = origin.field("caCertificateRefs")
    trust = SecretFile.make("auth", authorities.encode(), trusted) if authorities else None
    revoked = _revoked(ask, namespace, spec.crl_secret_ref) if spec.crl_secret_ref else None
    created = ask.read(key_of(origin)).metadata.creation_timestamp
    configuration = msgspec.structs.replace(
        oidc.relying(origin, spec, created),
        secret=secret.name,
        trust=trust.name if trust is not None else "",
        revoked=revoked.name if revoked is not None else "",
        authorization=_authorization(required, "spec.oidc.authorization"),
    )
    secrets = tuple(credential for credential in (secret, trust, revoked) if credential is not None)
    return Filters(Route(authentication=configuration), secrets=secrets)


def _revoked(ask: Ask, namespace: str, reference: api.LocalReference) -> SecretFile:
    where = f"spec.oidc.crlSecretRef: Secret {namespace}/{reference.name}"
    content = _data(ask, namespace, reference.name, "ca.crl", where)
    try:
        return SecretFile.make(
            "auth", pem.revocation_list(content), Origin("Secret", namespace, reference.name)
        )
    except pem.MALFORMED as error:
        raise ValueProblem(
            f"{where}: data[ca.crl] must be a PEM certificate revocation list"
        ) from error


def _authorization(requested: api.AuthorizationSpec, place: str) -> Authorization:
    """Return the required claims. Raises ValueProblem."""
    for number, rule in enumerate(requested.rules):
        for index, claim in enumerate(rule.claims):
            name = claim.proxy_set_header
            if name and (why := header_names.request_problem("add", name)):
                where = f"{place}.rules[{number}].claims[{index}].proxySetHeader"
                raise ValueProblem(f"{where}: {why}")
    requirements = tuple(
        Requirement(
            tuple(
                Claim(
                    required.name,
                    required.values,
                    required.match == "Regex",
                    required.proxy_set_header,
                )
                for required in rule.claims
            ),
            rule.require == "All",
        )
        for rule in requested.rules
    )
    return Authorization(requirements, requested.require == "All")


def fetches(ask: Ask) -> tuple[UrlFetch, ...]:
    """Return the fetches that all filters and policies need, sorted."""
    results = {ask(_fetch_of, key) for key in ask.read(FILTERS)}
    return tuple(sorted(fetch for fetch in results if fetch is not None))


def _fetch_of(ask: Ask, key: Key) -> UrlFetch | None:
    tokens = _tokens_of(ask.read(key))
    if tokens is None:
        return None
    try:
        return _fetch(ask, key[1], tokens)
    except ValueProblem:
        return None


def _tokens_of(resource: object) -> api.JwtAuth | None:
    """Return the tokens that an object requires; None if it requires none."""
    if isinstance(resource, api.AuthenticationFilter):
        return resource.spec.jwt
    if isinstance(resource, SecurityPolicy) and resource.spec.jwt is not None:
        return security_policies.tokens_of(resource.spec.jwt)
    return None


def _fetch(ask: Ask, namespace: str, spec: api.JwtAuth) -> UrlFetch | None:
    """Return the fetch of a filter's keys; None if it has none. Raises ValueProblem."""
    if spec.source != "Remote":
        return None
    if spec.remote is None:
        raise ValueProblem("spec.jwt.remote: must be set for source Remote")
    if not _URL.fullmatch(spec.remote.uri):
        raise ValueProblem("spec.jwt.remote.uri: must be an https URL")
    trust = "".join(
        _ca(ask, namespace, reference.name, "spec.jwt.remote.caCertificateRefs")
        for reference in spec.remote.ca_certificate_refs
    )
    cached = nginx_values.parse_nginx_seconds(spec.key_cache)
    return UrlFetch(
        spec.remote.uri, trust, FETCH_INTERVAL_SECONDS if cached is None else max(1.0, cached)
    )


def _ca(ask: Ask, namespace: str, name: str, place: str) -> str:
    authorities = ask(ca_certificates.authorities, ("Secret", namespace, name))
    if isinstance(authorities, str):
        raise ValueProblem(f"{place}: {authorities}")
    return authorities.decode()


def authority_holders(resource: object) -> Iterator[tuple[str, Key]]:
    """Yield the Secrets with CA certificates that a filter or policy refers to, each after its
    field."""
    if not isinstance(resource, api.AuthenticationFilter | SecurityPolicy):
        return
    tokens = _tokens_of(resource)
    remote = tokens.remote if tokens is not None else None
    for place, spec in (("jwt.remote", remote), ("oidc", resource.spec.oidc)):
        for reference in spec.ca_certificate_refs if spec is not None else ():
            holder = ("Secret", resource.metadata.namespace, reference.name)
            yield f"spec.{place}.caCertificateRefs", holder


def _fetched(ask: Ask, namespace: str, spec: api.JwtAuth) -> bytes:
    fetch = _fetch(ask, namespace, spec)
    assert fetch is not None
    document = ask.read(fetch.key)
    if not isinstance(document, Fetched):
        raise ValueProblem(f"spec.jwt.remote.uri: {fetch.url} is not fetched yet")
    if document.problem:
        raise ValueProblem(f"spec.jwt.remote.uri: {fetch.url}: {document.problem}")
    return document.content


def _usable_keys(content: bytes, place: str) -> bytes:
    """Return the JSON Web Key Set with only its supported, complete keys (RFC 7517, section 5), and
    of these only what verifies signatures.

    Raises ValueProblem if there is none.
    """
    try:
        listed = json.loads(content)["keys"]
    except (ValueError, TypeError, KeyError, RecursionError):
        listed = None
    candidates = map(_usable_key, listed if isinstance(listed, list) else ())
    usable = [key for key in candidates if key is not None]
    if not usable:
        raise ValueProblem(f"{place}: must be a JSON Web Key Set with a supported key")
    return json.dumps({"keys": usable}, sort_keys=True).encode()


def _usable_key(key: object) -> dict[str, Any] | None:
    if not isinstance(key, dict) or key.get("kty") not in ("oct", "RSA", "EC"):
        return None
    try:
        usable = verification_key(key)
        jwt.PyJWK(usable)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    return usable


def _secret(ask: Ask, namespace: str, name: str, place: str) -> SecretFile:
    where = f"{place}.secretRef: Secret {namespace}/{name}"
    content = _data(ask, namespace, name, SECRET_KEY, where)
    return SecretFile.make("auth", content, Origin("Secret", namespace, name))


def _data(ask: Ask, namespace: str, name: str, entry: str, where: str) -> bytes:
    """Return an entry of a Secret. Raises ValueProblem."""
    secret = ask.read(("Secret", namespace, name))
    if secret is None:
        raise ValueProblem(f"{where} not found")
    if not isinstance(secret, core.Secret) or entry not in secret.data:
        raise ValueProblem(f"{where}: data[{entry}] not found")
    try:
        return base64.b64decode(secret.data[entry], validate=True)
    except ValueError as error:
        raise ValueProblem(f"{where}: data must be base64") from error


def _check_users(content: bytes, place: str) -> None:
    """Check the password file that a field names. Raises ValueProblem."""
    place = f"{place}.secretRef: data[auth]"
    lines = [line for line in content.splitlines() if line.strip() and line[:1] != b"#"]
    if not lines or any(b":" not in line for line in lines):
        raise ValueProblem(f"{place} must have a line name:hash for each user")
    for number, line in enumerate(lines, 1):
        if problem := password_costs.cost_problem(line.split(b":")[1]):
            raise ValueProblem(f"{place}: user {number}: {problem}")
