"""Supported features of Gateway API (``status.supportedFeatures``)."""

from __future__ import annotations

from collections.abc import Iterable

_EVERYWHERE = (
    "BackendTLSPolicy",
    "BackendTLSPolicySANValidation",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayPort8080",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteCORS",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteRetryConnectionError",
    "HTTPRouteSchemeRedirect",
    "ListenerSet",
    "ReferenceGrant",
    "TCPRoute",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
    "UDPRoute",
)
_UNTIL_1_6 = ("HTTPRouteRetry", "HTTPRouteRetryBackendTimeout")
_INFRASTRUCTURE, _INFRASTRUCTURE_UNTIL_1_6_2 = (
    "GatewayInfrastructure",
    "GatewayInfrastructurePropagation",
)
_SINCE_1_7 = (
    "GRPCRouteRequestHeaderModifier",
    "GatewayRouteHostnameIntersectionPrecedence",
    "HTTPRouteBackendURLRewrite",
    "HTTPRouteRetryCodes",
)
"""Features by the versions of Gateway API that name them."""


def supported_features(version: tuple[int, ...], optional: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the features that Gatehouse supports, by the names that a version of Gateway API has
    for them. They are sorted, as required by the API.

    ``optional``: features that depend on more than the version.
    """
    renamed = _INFRASTRUCTURE if version >= (1, 6, 3) else _INFRASTRUCTURE_UNTIL_1_6_2
    if version < (1, 7):
        return tuple(sorted((*_EVERYWHERE, renamed, *_UNTIL_1_6)))
    return tuple(sorted((*_EVERYWHERE, renamed, *_SINCE_1_7, *optional)))
