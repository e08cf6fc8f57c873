"""Paths without resources: health, version, discovery, OpenAPI, token keys, metrics."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from aiohttp import web

from kube_api_server.http import negotiation, responses
from kube_api_server.http.discovery import Discovery
from kube_api_server.http.metrics import METRICS_TYPE, RequestMetrics
from kube_api_server.http.openapi_v2 import OPENAPI_V2_TYPE, REQUESTED_MEDIA_TYPE, OpenApi2
from kube_api_server.http.openapi_v3 import OpenApi
from kube_api_server.identity.service_account_tokens import ISSUER
from kube_api_server.identity.signing_keys import Keys
from kube_api_server.objects.registry import Registry

_Check = Callable[[], Coroutine[Any, Any, None]]
"""A health check. Raises an exception with the reason if the check fails."""

MINOR = "34"
"""Minor version of the Kubernetes release whose API is served."""

HEALTH = ("/livez", "/readyz", "/healthz")
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
_ISSUER = "/.well-known/openid-configuration"


class NonResourceHandlers:
    """Handlers of paths that name no resource."""

    def __init__(
        self,
        registry: Registry,
        keys: Keys,
        metrics: RequestMetrics,
        checks: dict[str, _Check],
        build: str = "",
    ) -> None:
        """`build`: build metadata in the version of the server."""
        self._discovery = Discovery(registry)
        self._openapi, self._openapi2 = OpenApi(registry), OpenApi2(registry)
        self._keys, self._metrics, self._checks, self._build = keys, metrics, checks, build

    @staticmethod
    def is_open(path: str) -> bool:
        """Return whether a path may be read without authentication."""
        return path == "/version" or path.startswith(HEALTH)

    async def health(self, request: web.BaseRequest, path: str) -> web.Response:
        """Answer `/version` or a health check."""
        if path == "/version":
            return responses.json(_version(self._build))
        base, _, name = path.strip("/").partition("/")
        checks = {"ping": self._checks["ping"]} if base == "livez" else self._checks
        if name:
            checks = {name: checks[name]} if name in checks else {}
            if not checks:
                return web.Response(status=404, text="404 page not found\n")
        excluded = request.query.getall("exclude", [])
        lines, healthy = [], True
        for check_name, check in checks.items():
            if check_name in excluded:
                lines.append(f"[+]{check_name} excluded: ok")
                continue
            try:
                await check()
                lines.append(f"[+]{check_name} ok")
            except Exception as error:
                lines.append(f"[-]{check_name} failed: {error}")
                healthy = False
        verdict = f"{base} check {'passed' if healthy else 'failed'}"
        if "verbose" in request.query or not healthy:
            return web.Response(
                status=200 if healthy else 500, text="\n".join([*lines, verdict, ""])
            )
        return web.Response(text="ok")

    def find(self, request: web.BaseRequest, path: str) -> web.Response | None:
        """Answer any other path; None if it is unknown."""
        accepted = request.headers.get("Accept", "").replace(" ", "")
        match path.strip("/").split("/"):
            case ["api" | "apis"]:
                return self._top(request, path, accepted)
            case ["api", number]:
                negotiation.check_accepts_text(request)
                return _optional(self._discovery.resource_list("", number))
            case ["apis", group]:
                negotiation.check_accepts_text(request)
                return _optional(self._discovery.group(group))
            case ["apis", group, number]:
                negotiation.check_accepts_text(request)
                return _optional(self._discovery.resource_list(group, number))
            case ["openapi", "v3"]:
                return responses.json(self._openapi.index())
            case ["openapi", "v3", *rest]:
                data = self._openapi.document("/".join(rest))
                return None if data is None else responses.raw(data)
            case ["openapi", "v2"] | ["swagger-2.0.0.pb-v1"]:
                protobuf = (
                    REQUESTED_MEDIA_TYPE in accepted
                    or OPENAPI_V2_TYPE in accepted
                    or path.endswith("pb-v1")
                )
                kind = OPENAPI_V2_TYPE if protobuf else "application/json"
                return responses.raw(self._openapi2.document(protobuf=protobuf), 200, kind)
            case ["openid", "v1", "jwks"]:
                kind = "application/jwk-set+json"
                return responses.json(self._keys.jwks(), content_type=kind)
            case [".well-known", "openid-configuration"]:
                return responses.json(_issuer(request))
            case ["metrics"]:
                return responses.raw(self._metrics.text(), 200, METRICS_TYPE)
            case [""]:
                return responses.json({"paths": _paths(self._discovery)})
        return None

    def _top(self, request: web.BaseRequest, path: str, accepted: str) -> web.Response:
        for media, parameters in negotiation.offers(accepted):
            if parameters.get("as") == "APIGroupDiscoveryList" and media == negotiation.JSON:
                number = parameters.get("v")
                if parameters.get("g") == "apidiscovery.k8s.io" and number in ("v2", "v2beta1"):
                    document = self._discovery.aggregated(number, core=path == "/api")
                    return responses.json(document, content_type=_AGGREGATED.format(version=number))
            elif "as" not in parameters:
                break
        negotiation.check_accepts_text(request)
        if path == "/api":
            return responses.json(self._discovery.core_versions(request.host))
        return responses.json(self._discovery.group_list())


def _version(build: str) -> dict[str, str]:
    """Return the server version for `kubectl version`."""
    return {
        "major": "1",
        "minor": MINOR,
        "gitVersion": f"v1.{MINOR}.0{'+' if build else ''}{build}",
        # Clients require these fields (k8s.io/apimachinery, pkg/version), whatever their values.
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }


def _optional(document: Any) -> web.Response | None:
    return None if document is None else responses.json(document)


def _issuer(request: web.BaseRequest) -> dict[str, Any]:
    return {
        "issuer": ISSUER,
        "jwks_uri": f"https://{request.host}/openid/v1/jwks",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    }


def _paths(discovery: Discovery) -> list[str]:
    groups = [f"/apis/{group['name']}" for group in discovery.group_list()["groups"]]
    others = [_ISSUER, "/api", "/api/v1", "/apis", "/metrics", "/openapi/v2", "/openapi/v3"]
    return sorted([*groups, *others, *HEALTH, "/openid/v1/jwks", "/version"])
