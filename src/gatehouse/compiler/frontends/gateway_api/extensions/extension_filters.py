"""Kinds of filters that a rule names by ``extensionRef``.

A new kind is one record here: its view, its translation, and with them its informer, permissions
and status.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gatehouse.apis import nginx_authentication, nginx_gateway
from gatehouse.apis.gateway_parameters import GATEHOUSE_GROUP
from gatehouse.apis.meta import KubernetesObject
from gatehouse.apis.nginx_gateway import NGINX_GATEWAY_GROUP
from gatehouse.compiler.frontends.gateway_api.compiled_filters import Filters
from gatehouse.compiler.frontends.gateway_api.extensions import authentication, snippets
from gatehouse.compiler.frontends.gateway_api.inputs import (
    rejected_by_proxy,
    rejected_credential,
)
from gatehouse.incremental.query import Ask, Key
from kube_base.types.resource import Resource


class ExtensionFilter(msgspec.Struct, frozen=True):
    """A kind of filters."""

    view: type[KubernetesObject]
    """Type of decoded objects. The kind has its name."""
    translate: Callable[[Ask, Key], Filters | str]
    """Query: the translation of a filter, or the problem."""
    group: str = GATEHOUSE_GROUP
    version: str = "v1alpha1"

    @property
    def resource(self) -> Resource:
        """Resource of the kind."""
        kind = self.view.__name__
        return Resource(self.group, self.version, f"{kind.lower()}s", kind)


EXTENSION_FILTERS = {
    extension.resource.kind: extension
    for extension in (
        ExtensionFilter(
            nginx_gateway.SnippetsFilter, snippets.translate_snippets_filter, NGINX_GATEWAY_GROUP
        ),
        ExtensionFilter(
            nginx_authentication.AuthenticationFilter,
            authentication.translate_authentication_filter,
            NGINX_GATEWAY_GROUP,
        ),
    )
}
"""All kinds, by name."""


def translated_filter(ask: Ask, key: Key) -> Filters | str:
    """Return the translation of a filter, or the problem, wherever it is used."""
    kind = EXTENSION_FILTERS[key[0]]
    if not isinstance(ask.read(key), kind.view):
        return f"{key[0]} {key[1]}/{key[2]} is invalid"
    return kind.translate(ask, key)


def filter_at(ask: Ask, gateway: Key, key: Key) -> Filters | str:
    """Return the translation of a filter at a Gateway, or the problem.

    The proxy of a Gateway may have rejected the filter, or a secret that it refers to.
    """
    return filter_rejection(ask, gateway, key) or ask(translated_filter, key)


def filter_rejection(ask: Ask, gateway: Key, key: Key, *, tried: bool = False) -> str:
    """Return why a Gateway leaves a filter out whose proxy rejected it or a secret of it.

    Empty if it does not. ``tried``: also while the proxy tests it again, for a status.
    """
    if why := rejected_by_proxy(ask, gateway, key, tried=tried):
        return why
    translated = ask(translated_filter, key)
    for secret in translated.secrets if isinstance(translated, Filters) else ():
        if why := rejected_credential(ask, gateway, secret.name, tried=tried):
            return f"{secret.origin}: {why}"
    return ""
