"""Permissions needed to impersonate a user, as in Kubernetes' impersonation filter. No I/O.

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
"""

from __future__ import annotations

import re

import msgspec

from gatehouse.sidecars.reviewer.user_headers import MalformedHeaderError, ReviewedUser

MAX_PERMISSIONS = 1000
"""Maximum number of permissions per request; each requires a review."""

_ACCOUNT = "system:serviceaccount:"

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAMESPACE = re.compile(_LABEL)
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


class ImpersonationPermission(msgspec.Struct, frozen=True):
    """A resource on which the verb ``impersonate`` must be allowed."""

    resource: str
    name: str
    group: str = ""
    namespace: str = ""
    subresource: str = ""


def permissions(target: ReviewedUser) -> list[ImpersonationPermission]:
    """Return the distinct permissions needed to impersonate ``target``, as Kubernetes' filter does.

    Raises MalformedHeaderError for too many.
    """
    needed = [_of_name(target.name)]
    needed += [ImpersonationPermission("groups", group) for group in target.groups]
    api_group = "authentication.k8s.io"
    if target.uid:
        needed.append(ImpersonationPermission("uids", target.uid, api_group))
    for key, values in target.extra:
        # Keys are header names, which are case-insensitive.
        name = key.lower()
        needed += [
            ImpersonationPermission("userextras", value, api_group, subresource=name)
            for value in values
        ]
    distinct = list(dict.fromkeys(needed))
    if len(distinct) > MAX_PERMISSIONS:
        raise MalformedHeaderError(
            f"{len(distinct)} permissions needed, the maximum is {MAX_PERMISSIONS}"
        )
    return distinct


def _of_name(name: str) -> ImpersonationPermission:
    """Return the permission for the name. An invalid service account name counts as a user."""
    namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
    if (
        name.startswith(_ACCOUNT)
        and len(namespace) <= 63
        and _NAMESPACE.fullmatch(namespace)
        and len(account) <= 253
        and _NAME.fullmatch(account)
    ):
        return ImpersonationPermission("serviceaccounts", account, namespace=namespace)
    return ImpersonationPermission("users", name)


def denial(client: ReviewedUser, needed: ImpersonationPermission, reason: str) -> str:
    """Return the message for a missing permission in Kubernetes' wording."""
    resource = f"{needed.resource}/{needed.subresource}".rstrip("/")
    qualified = f"{needed.resource}.{needed.group}".rstrip(".")
    scope = f'in the namespace "{needed.namespace}"' if needed.namespace else "at the cluster scope"
    return (
        f'{qualified} "{needed.name}" is forbidden: User "{client.name}" cannot impersonate '
        f'resource "{resource}" in API group "{needed.group}" {scope}'
        f"{f': {reason}' if reason else ''}"
    )
