"""Translation of the filters of rules and backends to IR."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from gatehouse.apis import nginx_gateway, routes
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
        match item:
            case routes.Filter(type="RequestHeaderModifier", request_header_modifier=edit) if edit:
                result = _with_header_edit(result, edit, place, "request")
            case routes.Filter(type="ResponseHeaderModifier", response_header_modifier=edit) if (
                edit
            ):
                result = _with_header_edit(result, edit, place, "response")
            case routes.Filter(type="RequestRedirect", request_redirect=redirect) if redirect:
                result = _replace(result, answer=_redirect(redirect, *listener))
            case routes.Filter(type="URLRewrite", url_rewrite=rewrite) if rewrite:
                result = _replace(result, rewrite=_rewrite(rewrite))
            case routes.Filter(type="RequestMirror", request_mirror=mirror) if mirror:
                result = _with_mirror(ask, at, result, mirror, f"{place}.requestMirror")
            case routes.Filter(type="CORS", cors=cors) if cors:
                result = _with_cors(result, cors, f"{place}.cors")
            case routes.Filter(type="ExternalAuth", external_auth=spec) if (
                spec and at[1][0] == "HTTPRoute"
            ):
                result = _with_external_auth(ask, at, result, spec, place)
            case routes.Filter(type="ExtensionRef", extension_ref=reference) if reference:
                result = _with_extension(ask, at, result, reference, place)
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
    header_findings = tuple(_header_findings(edit, f"{place}.{direction}HeaderModifier", direction))
    if header_findings:
        return _replace(result, findings=(*result.findings, *header_findings))
    return _replace(result, **{f"{direction}_headers": _edit(edit)})


def _header_findings(
    edit: routes.HeaderModifier, place: str, direction: Literal["request", "response"]
) -> Iterator[Finding]:
    """Yield a finding for each header that must not be changed so."""
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
                yield Finding(Reason.UNSUPPORTED_VALUE, f"{place}.{change}[{index}]: {why}")


def _with_mirror(
    ask: Ask, at: GatewayObject, result: Filters, mirror: routes.RequestMirror, place: str
) -> Filters:
    cluster = resolve_backend(ask, at, mirror.backend_ref, f"{place}.backendRef")
    if isinstance(cluster, Finding):
        return _replace(result, notes=(*result.notes, cluster))
    if not ask(tls_resolved, at[0], cluster):
        return result
    numerator, denominator = 100, 100
    if mirror.percent is not None:
        numerator = mirror.percent
    elif mirror.fraction is not None:
        numerator, denominator = mirror.fraction.numerator, mirror.fraction.denominator
    added = ir.Mirror(cluster.name, numerator, denominator)
    return _replace(result, mirrors=(*result.mirrors, added), clusters=(*result.clusters, cluster))


def _with_cors(result: Filters, cors: routes.CorsSpec, place: str) -> Filters:
    """Add a CORS policy, or a finding for each invalid name of a method or header."""
    lists = {
        "allowMethods": cors.allow_methods,
        "allowHeaders": cors.allow_headers,
        "exposeHeaders": cors.expose_headers,
    }
    cors_findings = tuple(
        Finding(Reason.UNSUPPORTED_VALUE, f"{place}.{field}[{index}]: {name!r} must be a token")
        for field, listed in lists.items()
        for index, name in enumerate(listed)
        if not header_names.is_token(name)
    )
    if cors_findings:
        return _replace(result, findings=(*result.findings, *cors_findings))
    return _replace(result, cors=_cors(cors))


def _cors(cors: routes.CorsSpec) -> ir.Cors:
    return ir.Cors(
        origins=tuple(origin.lower() for origin in cors.allow_origins),
        methods=cors.allow_methods,
        headers=cors.allow_headers,
        expose=cors.expose_headers,
        credentials=cors.allow_credentials,
        max_age=cors.max_age,
    )


def _with_external_auth(
    ask: Ask, at: GatewayObject, result: Filters, spec: routes.ExternalAuthSpec, place: str
) -> Filters:
    """Add an authorization server, or findings."""
    if result.external_auth is not None:
        message = f"{place}: a rule must not have more than one ExternalAuth filter"
        finding = Finding(Reason.UNSUPPORTED_VALUE, message)
        return _replace(result, findings=(*result.findings, finding))
    translated = external_auth.translate_external_auth(ask, at, spec, f"{place}.externalAuth")
    return _replace(
        result,
        external_auth=translated.external_auth,
        clusters=(*result.clusters, *translated.clusters),
        findings=(*result.findings, *translated.findings),
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


def _with_extension(
    ask: Ask, at: GatewayObject, result: Filters, reference: routes.ExtensionRef, place: str
) -> Filters:
    """Add a filter of the group ``gateway.nginx.org``, or a finding."""

    def finding(message: str) -> Finding:
        return Finding(Reason.INVALID_FILTER, f"{place}: {message}")

    def refused(message: str) -> Filters:
        return _replace(result, findings=(*result.findings, finding(message)))

    gateway, (_, namespace, _) = at
    kind, key = reference.kind, (reference.kind, namespace, reference.name)
    name = f"{kind} {namespace}/{reference.name}"
    if reference.group != nginx_gateway.NGINX_GATEWAY_GROUP or kind not in EXTENSION_FILTERS:
        return refused(f"{reference.group}/{kind} is not supported")
    if ask.read(key) is None:
        return refused(f"{name} not found")
    translated = ask(filter_at, gateway, key)
    if isinstance(translated, str):
        return refused(f"{name}: {translated}")
    merged = result.merge(translated)
    if merged is None:
        return refused(f"a rule must not have more than one {kind}")
    why = filter_rejection(ask, gateway, key, tried=True)
    return _replace(merged, notes=(*merged.notes, finding(f"{name}: {why}"))) if why else merged


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
