"""Translation of the filters of rules and backends to IR."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from gatehouse.apis import routes
from gatehouse.compiler.frontends.gateway_api import header_names
from gatehouse.compiler.frontends.gateway_api.compiled_filters import Filters
from gatehouse.compiler.frontends.gateway_api.extensions.extension_filters import (
    EXTENSION_FILTERS,
    filter_at,
    filter_rejection,
)
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import GatewayObject
from gatehouse.compiler.frontends.gateway_api.routes import external_auth
from gatehouse.compiler.frontends.gateway_api.routes.backend_refs import (
    resolve_backend,
    tls_resolved,
)
from gatehouse.compiler.ir import http as ir
from gatehouse.incremental.query import Ask

_STATUSES: dict[int, Literal[301, 302, 303, 307, 308]] = {
    301: 301,
    302: 302,
    303: 303,
    307: 307,
    308: 308,
}
_ONCE = {"ExternalAuth": Reason.UNSUPPORTED_VALUE, "ExtensionRef": Reason.INVALID_FILTER}
"""Types of filters of which a rule must not have two that set the same field, with the reason of
the finding. The CRDs rule this out for the others, of which the last one applies."""

_SCHEMES: dict[str, Literal["http", "https"]] = {"http": "http", "https": "https"}


def compile_filters(
    ask: Ask,
    at: GatewayObject,
    filters: tuple[routes.Filter, ...],
    where: str,
    listener: tuple[int, str],
) -> Filters:
    """Translate ``filters`` of a route at a Gateway.

    ``where``: their field path in the route. ``listener``: port and protocol.
    """
    result = Filters()
    for index, item in enumerate(filters):
        place = f"{where}.filters[{index}]"
        added = _translated(ask, at, item, place, listener)
        merged = result.merge(added, last_applies=item.type not in _ONCE)
        if merged is None:
            kind = item.extension_ref.kind if item.extension_ref else f"{item.type} filter"
            message = f"{place}: a rule must not have more than one {kind}"
            merged = result.merge(_invalid(_ONCE[item.type], message))
            assert merged is not None
        result = merged
    return result


def _translated(
    ask: Ask, at: GatewayObject, item: routes.Filter, place: str, listener: tuple[int, str]
) -> Filters:
    """Return the fields of the route that a filter sets, or findings."""
    match item:
        case routes.Filter(type="RequestHeaderModifier", request_header_modifier=edit) if edit:
            return _header_edit(edit, place, "request")
        case routes.Filter(type="ResponseHeaderModifier", response_header_modifier=edit) if edit:
            return _header_edit(edit, place, "response")
        case routes.Filter(type="RequestRedirect", request_redirect=redirect) if redirect:
            return Filters(ir.Route(action=_redirect(redirect, *listener)))
        case routes.Filter(type="URLRewrite", url_rewrite=rewrite) if rewrite:
            return Filters(ir.Route(action=ir.Forward(rewrite=_rewrite(rewrite))))
        case routes.Filter(type="RequestMirror", request_mirror=mirror) if mirror:
            return _mirror(ask, at, mirror, f"{place}.requestMirror")
        case routes.Filter(type="CORS", cors=cors) if cors:
            return _cors(cors, f"{place}.cors")
        case routes.Filter(type="ExternalAuth", external_auth=spec) if (
            spec and at[1][0] == "HTTPRoute"
        ):
            return external_auth.translate_external_auth(ask, at, spec, f"{place}.externalAuth")
        case routes.Filter(type="ExtensionRef", extension_ref=reference) if reference:
            return _extension(ask, at, reference, place)
    return _invalid(Reason.UNSUPPORTED_VALUE, f"{place}: type {item.type} is not supported")


def _invalid(reason: Reason, *messages: str) -> Filters:
    return Filters(findings=tuple(Finding(reason, message) for message in messages))


def _header_edit(
    edit: routes.HeaderModifier, place: str, direction: Literal["request", "response"]
) -> Filters:
    """Return the changes of a header modifier, or a finding for each reserved header."""
    problems = [*_header_problems(edit, f"{place}.{direction}HeaderModifier", direction)]
    if problems:
        return _invalid(Reason.UNSUPPORTED_VALUE, *problems)
    changes = ir.HeaderEdit(
        set=tuple(ir.HeaderValue(item.name, item.value) for item in edit.set),
        add=tuple(ir.HeaderValue(item.name, item.value) for item in edit.add),
        remove=edit.remove,
    )
    if direction == "request":
        return Filters(ir.Route(request_headers=changes))
    return Filters(ir.Route(response_headers=changes))


def _header_problems(
    edit: routes.HeaderModifier, place: str, direction: Literal["request", "response"]
) -> Iterator[str]:
    """Yield a message for each header that must not be changed so."""
    changes: dict[header_names.HeaderChange, list[tuple[str, str]]] = {
        "set": [(item.name, item.value) for item in edit.set],
        "add": [(item.name, item.value) for item in edit.add],
        "remove": [(name, "") for name in edit.remove],
    }
    for change, listed in changes.items():
        for index, (name, value) in enumerate(listed):
            if direction == "request":
                why = header_names.request_problem(change, name, value)
            else:
                why = header_names.problem(name)
            if why:
                yield f"{place}.{change}[{index}]: {why}"


def _mirror(ask: Ask, at: GatewayObject, mirror: routes.RequestMirror, place: str) -> Filters:
    cluster = resolve_backend(ask, at, mirror.backend_ref, f"{place}.backendRef")
    if isinstance(cluster, Finding):
        return Filters(notes=(cluster,))
    if not ask(tls_resolved, at[0], cluster):
        return Filters()
    numerator, denominator = 100, 100
    if mirror.percent is not None:
        numerator = mirror.percent
    elif mirror.fraction is not None:
        numerator, denominator = mirror.fraction.numerator, mirror.fraction.denominator
    action = ir.Forward(mirrors=(ir.Mirror(cluster.name, numerator, denominator),))
    return Filters(ir.Route(action=action), clusters=(cluster,))


def _cors(cors: routes.CorsSpec, place: str) -> Filters:
    """Return a CORS policy, or a finding for each invalid name of a method or header."""
    lists = {
        "allowMethods": cors.allow_methods,
        "allowHeaders": cors.allow_headers,
        "exposeHeaders": cors.expose_headers,
    }
    problems = [
        f"{place}.{field}[{index}]: {name!r} must be a token"
        for field, listed in lists.items()
        for index, name in enumerate(listed)
        if not header_names.is_token(name)
    ]
    if problems:
        return _invalid(Reason.UNSUPPORTED_VALUE, *problems)
    policy = ir.Cors(
        origins=tuple(origin.lower() for origin in cors.allow_origins),
        methods=cors.allow_methods,
        headers=cors.allow_headers,
        expose=cors.expose_headers,
        credentials=cors.allow_credentials,
        max_age=cors.max_age,
    )
    return Filters(ir.Route(cors=policy))


def _rewrite(rewrite: routes.UrlRewrite) -> ir.Rewrite:
    return ir.Rewrite(hostname=rewrite.hostname or None, path=path_rewrite(rewrite.path))


def path_rewrite(path: routes.PathModifier | None) -> ir.PathRewrite | None:
    """Return a path modifier as IR.

    A path begins with a slash (RFC 9112, section 3.2.1). The API does not demand it. Without one,
    a redirect would append the value to the hostname.
    """
    if path is None:
        return None
    if path.type == "ReplaceFullPath":
        return ir.FullPath(_absolute(path.replace_full_path))
    return ir.PrefixPath(_absolute(path.replace_prefix_match))


def _absolute(path: str | None) -> str:
    return f"/{(path or '').removeprefix('/')}"


def _extension(ask: Ask, at: GatewayObject, reference: routes.ExtensionRef, place: str) -> Filters:
    """Return the filter that an ``extensionRef`` names, or a finding."""

    def refused(message: str) -> Filters:
        return _invalid(Reason.INVALID_FILTER, f"{place}: {message}")

    gateway, (_, namespace, _) = at
    kind, key = reference.kind, (reference.kind, namespace, reference.name)
    name = f"{kind} {namespace}/{reference.name}"
    if kind not in EXTENSION_FILTERS or EXTENSION_FILTERS[kind].group != reference.group:
        return refused(f"{reference.group}/{kind} is not supported")
    if ask.read(key) is None:
        return refused(f"{name} not found")
    translated = ask(filter_at, gateway, key)
    if isinstance(translated, str):
        return refused(f"{name}: {translated}")
    why = filter_rejection(ask, gateway, key, tried=True)
    notes = refused(f"{name}: {why}").findings if why else ()
    return msgspec.structs.replace(translated, notes=(*translated.notes, *notes))


def _redirect(redirect: routes.RequestRedirect, port: int, protocol: str) -> ir.Redirect:
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
