"""Translation of the filters of rules and backends to IR."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from gatehouse.apis import nginx_gateway, routes
from gatehouse.compiler.frontends.gateway_api import header_names
from gatehouse.compiler.frontends.gateway_api.extensions import authentication, snippets
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import rejected_by_proxy
from gatehouse.compiler.frontends.gateway_api.routes.backend_refs import (
    ClusterKey,
    resolve,
    tls_resolved,
)
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Authentication
from gatehouse.compiler.ir.gateway import SecretFile
from gatehouse.compiler.ir.settings import Snippet
from gatehouse.incremental.query import Ask, Key

_STATUSES: dict[int, Literal[301, 302, 303, 307, 308]] = {
    301: 301,
    302: 302,
    303: 303,
    307: 307,
    308: 308,
}
_EXTENSION_KINDS = ("SnippetsFilter", "AuthenticationFilter")
"""Kinds of filters in the group ``gateway.nginx.org``."""

_SCHEMES: dict[str, Literal["http", "https"]] = {"http": "http", "https": "https"}


class Filters(msgspec.Struct, frozen=True):
    """Translated filters of one rule or backend."""

    request_headers: ir.HeaderEdit = ir.HeaderEdit()
    response_headers: ir.HeaderEdit = ir.HeaderEdit()
    redirect: routes.RequestRedirect | None = None
    rewrite: ir.Rewrite = ir.Rewrite()
    mirrors: tuple[ir.Mirror, ...] = ()
    cors: ir.Cors | None = None
    snippets: tuple[Snippet, ...] = ()
    authentication: Authentication | None = None
    secrets: tuple[SecretFile, ...] = ()
    """Secrets that ``authentication`` refers to."""
    clusters: tuple[ClusterKey, ...] = ()
    """Clusters that ``mirrors`` refer to."""
    notes: tuple[Finding, ...] = ()
    """Findings about invalid mirrors; requests are served without them."""
    findings: tuple[Finding, ...] = ()
    """Findings about invalid filters. The rule or backend then answers 500."""


def compile_filters(
    ask: Ask, route: Key, filters: tuple[routes.Filter, ...], where: str
) -> Filters:
    """Translate ``filters``; ``where`` is their field path in the route."""
    result = Filters()
    for index, item in enumerate(filters):
        place = f"{where}.filters[{index}]"
        match item:
            case routes.Filter(type="RequestHeaderModifier", request_header_modifier=edit) if edit:
                result = _with_header_edit(result, edit, place, "request")
            case routes.Filter(type="ResponseHeaderModifier", response_header_modifier=edit) if (
                edit
            ):
                result = _with_header_edit(result, edit, place, "response")
            case routes.Filter(type="RequestRedirect", request_redirect=redirect) if redirect:
                result = _replace(result, redirect=redirect)
            case routes.Filter(type="URLRewrite", url_rewrite=rewrite) if rewrite:
                result = _replace(result, rewrite=_rewrite(rewrite))
            case routes.Filter(type="RequestMirror", request_mirror=mirror) if mirror:
                result = _with_mirror(ask, route, result, mirror, f"{place}.requestMirror")
            case routes.Filter(type="CORS", cors=cors) if cors:
                result = _replace(result, cors=_cors(cors))
            case routes.Filter(type="ExtensionRef", extension_ref=reference) if reference:
                result = _with_extension(ask, route[1], result, reference, place)
            case _:
                message = f"{place}: type {item.type} is not supported"
                finding = Finding(Reason.UNSUPPORTED_VALUE, message)
                result = _replace(result, findings=(*result.findings, finding))
    return result


def _with_header_edit(
    result: Filters,
    edit: routes.HeaderModifier,
    place: str,
    direction: Literal["request", "response"],
) -> Filters:
    """Add the changes of a header modifier, or a finding for each reserved header."""
    found = tuple(_reserved(edit, f"{place}.{direction}HeaderModifier"))
    if found:
        return _replace(result, findings=(*result.findings, *found))
    return _replace(result, **{f"{direction}_headers": _edit(edit)})


def _reserved(edit: routes.HeaderModifier, place: str) -> Iterator[Finding]:
    changed = {
        "set": [item.name for item in edit.set],
        "add": [item.name for item in edit.add],
        "remove": edit.remove,
    }
    for field, listed in changed.items():
        for index, name in enumerate(listed):
            if why := header_names.problem(name):
                yield Finding(Reason.UNSUPPORTED_VALUE, f"{place}.{field}[{index}]: {why}")


def _with_mirror(
    ask: Ask, route: Key, result: Filters, mirror: routes.RequestMirror, place: str
) -> Filters:
    found = resolve(ask, route, mirror.backend_ref, f"{place}.backendRef")
    if isinstance(found, Finding):
        return _replace(result, notes=(*result.notes, found))
    if not ask(tls_resolved, found):
        return result
    numerator, denominator = 100, 100
    if mirror.percent is not None:
        numerator = mirror.percent
    elif mirror.fraction is not None:
        numerator, denominator = mirror.fraction.numerator, mirror.fraction.denominator
    added = ir.Mirror(found.name, numerator, denominator)
    return _replace(result, mirrors=(*result.mirrors, added), clusters=(*result.clusters, found))


def _cors(cors: routes.Cors) -> ir.Cors:
    return ir.Cors(
        origins=tuple(origin.lower() for origin in cors.allow_origins),
        methods=cors.allow_methods,
        headers=cors.allow_headers,
        expose=cors.expose_headers,
        credentials=cors.allow_credentials,
        max_age=cors.max_age,
    )


def _replace(filters: Filters, **changes: object) -> Filters:
    return msgspec.structs.replace(filters, **changes)


def _edit(edit: routes.HeaderModifier) -> ir.HeaderEdit:
    return ir.HeaderEdit(
        set=tuple(ir.HeaderValue(item.name, item.value) for item in edit.set),
        add=tuple(ir.HeaderValue(item.name, item.value) for item in edit.add),
        remove=edit.remove,
    )


def _rewrite(rewrite: routes.UrlRewrite) -> ir.Rewrite:
    return ir.Rewrite(hostname=rewrite.hostname or None, path=path_rewrite(rewrite.path))


def path_rewrite(path: routes.PathModifier | None) -> ir.PathRewrite | None:
    """Return a path modifier as IR."""
    if path is None:
        return None
    if path.type == "ReplaceFullPath":
        return ir.FullPath(path.replace_full_path or "/")
    return ir.PrefixPath(path.replace_prefix_match or "/")


def _with_extension(
    ask: Ask, namespace: str, result: Filters, reference: routes.ExtensionRef, place: str
) -> Filters:
    """Add a filter of the group ``gateway.nginx.org``, or a finding."""

    def refused(message: str) -> Filters:
        finding = Finding(Reason.INVALID_FILTER, f"{place}: {message}")
        return _replace(result, findings=(*result.findings, finding))

    kind, key = reference.kind, (reference.kind, namespace, reference.name)
    if reference.group != nginx_gateway.GROUP or kind not in _EXTENSION_KINDS:
        return refused(f"{reference.group}/{kind} is not supported")
    if kind == "SnippetsFilter" and (why := snippets.rejection(ask, kind)):
        return refused(why)
    found = ask.read(key)
    if found is None:
        return refused(f"{kind} {namespace}/{reference.name} not found")
    if isinstance(found, nginx_gateway.SnippetsFilter):
        if why := rejected_by_proxy(ask, key):
            return refused(f"{kind} {namespace}/{reference.name}: {why}")
        return _replace(result, snippets=(*result.snippets, *snippets.snippets(found)))
    if result.authentication is not None:
        return refused("a rule must not have more than one AuthenticationFilter")
    resolved = ask(authentication.resolve, key)
    if resolved.authentication is None:
        return refused(f"{kind} {namespace}/{reference.name}: {resolved.problem}")
    return _replace(result, authentication=resolved.authentication, secrets=resolved.secrets)


def redirect(redirect: routes.RequestRedirect, port: int, protocol: str) -> ir.Redirect:
    """Return a redirect as IR for a listener's port.

    The port in Location is the explicit one; otherwise, if a scheme is set, the scheme's well-known
    one; otherwise the listener's. The well-known port of the scheme is omitted
    (HTTPRequestRedirectFilter).
    """
    scheme = redirect.scheme.lower() or ("https" if protocol == "HTTPS" else "http")
    well_known = {"http": 80, "https": 443}.get(scheme)
    if redirect.port is not None:
        port_number: int | None = redirect.port
    elif redirect.scheme:
        port_number = well_known
    else:
        port_number = port
    return ir.Redirect(
        status=_STATUSES.get(redirect.status_code, 302),
        scheme=_SCHEMES.get(redirect.scheme.lower()),
        hostname=redirect.hostname or None,
        port=None if port_number == well_known else port_number,
        path=path_rewrite(redirect.path),
    )
