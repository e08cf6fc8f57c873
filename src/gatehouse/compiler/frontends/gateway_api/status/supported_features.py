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
_UNTIL_1_6 = ("GatewayInfrastructurePropagation", "HTTPRouteRetry", "HTTPRouteRetryBackendTimeout")
_SINCE_1_7 = (
    "GRPCRouteRequestHeaderModifier",
    "GatewayInfrastructure",
    "GatewayRouteHostnameIntersectionPrecedence",
    "HTTPRouteBackendURLRewrite",
    "HTTPRouteRetryCodes",
)
"""Features by the versions of Gateway API that name them."""


def supported_features(version: tuple[int, int], optional: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the features that Gatehouse supports, by the names that a version of Gateway API has
    for them. They are sorted, as required by the API.

    ``optional``: features that depend on more than the version.
    """
    if version < (1, 7):
        return tuple(sorted(_EVERYWHERE + _UNTIL_1_6))
    return tuple(sorted((*_EVERYWHERE, *_SINCE_1_7, *optional)))
