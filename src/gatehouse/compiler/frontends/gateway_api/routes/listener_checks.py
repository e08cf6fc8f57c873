"""Checks of all requests to a listener, by the authorization server of its filter (GEP-5224)."""

from __future__ import annotations

import msgspec

from gatehouse.apis.gateway import ListenerSpec
from gatehouse.compiler.frontends.gateway_api.attachment.parent_refs import ListenerKey
from gatehouse.compiler.frontends.gateway_api.cluster_key import ClusterKey
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.listeners.listener_filters import FILTERS_FIELD
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import own_listeners
from gatehouse.compiler.frontends.gateway_api.routes.external_auth import translate_external_auth
from gatehouse.compiler.ir.authentication import ExternalAuth
from gatehouse.incremental.query import Ask, Key


class ListenerCheck(msgspec.Struct, frozen=True):
    """The check of the requests to an accepted listener."""

    external_auth: ExternalAuth | None = None
    cluster: ClusterKey | None = None
    """The authorization server."""
    findings: tuple[Finding, ...] = ()
    """Why requests cannot be checked; they are answered 500."""


NO_CHECK = ListenerCheck()


def listener_check(ask: Ask, gateway: Key, listener: ListenerKey) -> ListenerCheck:
    """Return the check of an accepted listener of a Gateway."""
    owner, name = listener
    for spec in ask(_filtering_listeners, owner):
        auth = spec.filters.requests[0].external_auth
        if spec.name != name or auth is None:
            continue
        where = f"listener {name}: {FILTERS_FIELD}[0].externalAuth"
        translated = translate_external_auth(ask, (gateway, owner), auth, where)
        if translated.findings:
            return ListenerCheck(findings=tuple(map(_of_listener, translated.findings)))
        return ListenerCheck(translated.route.external_auth, translated.clusters[0])
    return NO_CHECK


def _filtering_listeners(ask: Ask, owner: Key) -> tuple[ListenerSpec, ...]:
    """Return the listeners of a Gateway or ListenerSet with filters, which few have."""
    return tuple(spec for spec in ask(own_listeners, owner) if spec.filters.requests)


def _of_listener(finding: Finding) -> Finding:
    """Return a finding about the filter of a route as one about the filter of a listener.

    "A cross-namespace ExternalAuth.backendRef without a matching ReferenceGrant MUST have
    ResolvedRefs=False, Reason=RefNotPermitted", and others InvalidListenerFilterRef (GEP-5224).
    """
    if finding.reason is Reason.REF_NOT_PERMITTED:
        return finding
    return Finding(Reason.INVALID_LISTENER_FILTER_REF, finding.message)
