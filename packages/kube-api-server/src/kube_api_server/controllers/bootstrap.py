"""Initial objects of a server: namespaces, roles, CRDs, token keys."""

from __future__ import annotations

import structlog

from kube_api_server.controllers import definitions, rbac
from kube_api_server.controllers.context import ControllerContext
from kube_api_server.extension import Extension, OwnNames
from kube_api_server.fairness.suggested_objects import GROUP, suggested_objects
from kube_api_server.identity import signing_keys as token_keys
from kube_api_server.identity.signing_keys import Keys
from kube_base.types.objects import Object

log = structlog.get_logger("apiserver")

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_MANAGER = "kube-apiserver"
_FLOW_CONTROL_MANAGER = "api-priority-and-fairness-config-producer-v1"

ROTATION_SECONDS = 3600.0
"""Interval in seconds of the check whether a new key is due."""


async def prepare(context: ControllerContext, extension: Extension) -> None:
    """Create missing initial objects, also those of the extension. Raises DefinitionError."""
    for name in (*_NAMESPACES, *extension.namespaces):
        await context.create("", "namespaces", {"metadata": {"name": name}}, _MANAGER)
    for plural, obj in suggested_objects():
        await context.create(GROUP, plural, obj, _FLOW_CONTROL_MANAGER, checked=True)
    await rbac.create_default_roles(context, extension.roles())
    if extension.definitions is not None:
        digest = extension.names.definition_digest
        await definitions.install_definitions(
            context, extension.definitions, digest, checked=extension.definitions_are_checked
        )


def follow_keys(context: ControllerContext, keys: Keys, names: OwnNames) -> None:
    """Reload the keys whenever their Secret changes."""
    key = context.kind("", "secrets").key(token_keys.NAMESPACE, names.signing_keys)

    def load(secret: Object | None) -> None:
        if secret is not None:
            keys.load(secret)

    context.store.listen(
        key,
        lambda event: load(event.now.value if event.now else None) if event.key == key else None,
    )
    entry = context.store.get(key)
    load(entry.value if entry else None)


async def rotate_keys(
    context: ControllerContext, keys: Keys, names: OwnNames, pem: bytes | None = None
) -> None:
    """Add a new key if one is due. `pem` is used as the first key."""
    now = token_keys.clock()
    if not keys.due(now):
        return
    served = context.kind("", "secrets")
    secret = token_keys.empty_secret(names.signing_keys, names.signing_keys_type)
    call = context.call(served, secret, _MANAGER)
    if context.store.latest(call.key) is None:
        desired = token_keys.with_new_key(secret, now, pem)
        await context.create("", "secrets", desired, _MANAGER)
    else:
        await context.verbs.change(
            call, lambda obj: token_keys.with_new_key(obj, now) if keys.due(now) else obj
        )
    log.info("token key created", keys=len(keys.jwks()["keys"]))
