"""What somebody must be allowed to be taken for another, as Kubernetes' own filter asks. Pure.

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
"""

from __future__ import annotations

import re

import msgspec

from gatehouse.sidecars.reviewer.user_headers import MalformedError, User

MAX_PERMISSIONS = 1000
"""Permissions that one question may need; each is a question to the cluster."""

_ACCOUNT = "system:serviceaccount:"

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAMESPACE = re.compile(_LABEL)
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


class Permission(msgspec.Struct, frozen=True):
    """To ``impersonate`` something."""

    resource: str
    name: str
    group: str = ""
    namespace: str = ""
    subresource: str = ""


def permissions(wanted: User) -> list[Permission]:
    """Give what is needed to be taken for ``wanted``, once each, as Kubernetes' filter does.

    Raises MalformedError if that is too much.
    """
    found = [_of_name(wanted.name)]
    found += [Permission("groups", group) for group in wanted.groups]
    beyond = "authentication.k8s.io"
    if wanted.uid:
        found.append(Permission("uids", wanted.uid, beyond))
    for key, values in wanted.extra:
        # Keys are names of headers, in which case means nothing.
        low = key.lower()
        found += [Permission("userextras", each, beyond, subresource=low) for each in values]
    distinct = list(dict.fromkeys(found))
    if len(distinct) > MAX_PERMISSIONS:
        raise MalformedError(
            f"{len(distinct)} permissions would be needed; {MAX_PERMISSIONS} are asked about"
        )
    return distinct


def _of_name(name: str) -> Permission:
    """Give what the name needs; one that only looks like a service account's is a user's."""
    namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
    if (
        name.startswith(_ACCOUNT)
        and len(namespace) <= 63
        and _NAMESPACE.fullmatch(namespace)
        and len(account) <= 253
        and _NAME.fullmatch(account)
    ):
        return Permission("serviceaccounts", account, namespace=namespace)
    return Permission("users", name)


def refusal(client: User, needed: Permission, reason: str) -> str:
    """Say what a client may not, in the words that users of Kubernetes know."""
    resource = f"{needed.resource}/{needed.subresource}".rstrip("/")
    qualified = f"{needed.resource}.{needed.group}".rstrip(".")
    scope = f'in the namespace "{needed.namespace}"' if needed.namespace else "at the cluster scope"
    return (
        f'{qualified} "{needed.name}" is forbidden: User "{client.name}" cannot impersonate '
        f'resource "{resource}" in API group "{needed.group}" {scope}'
        f"{f': {reason}' if reason else ''}"
    )
