"""Requests that are answered without storage: token and access reviews, and token requests."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from kube_api_server import errors
from kube_api_server.causes import invalid_cause
from kube_api_server.errors import Cause
from kube_api_server.http import typed_bodies
from kube_api_server.identity.authentication import Authenticator
from kube_api_server.identity.service_account_tokens import API_AUDIENCE, ServiceAccountTokens
from kube_api_server.identity.users import User
from kube_api_server.objects import timestamps
from kube_api_server.objects.served_resource import ServedResource
from kube_api_server.rbac.authorizer import Authorizer
from kube_api_server.rbac.rules import Attributes
from kube_base.types.objects import Object


class Reviews:
    """Handler of reviews."""

    def __init__(self, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._authenticator, self._authorizer = authenticator, authorizer
        self._answers: dict[str, Callable[[Object, User, str], Object]] = {
            "tokenreviews": self._token,
            "selfsubjectreviews": self._oneself,
            "subjectaccessreviews": self._access,
            "localsubjectaccessreviews": self._access,
            "selfsubjectaccessreviews": self._own_access,
            "selfsubjectrulesreviews": self._own_rules,
        }

    def answer(self, served: ServedResource, body: Any, user: User, namespace: str) -> Object:
        """Return the review with its status. Raises ApiError."""
        resource = served.resource
        plural, kind, api_version = resource.plural, resource.kind, resource.api_version
        body = typed_bodies.check_types(body, kind, served.compiled)
        review = {"kind": kind, "apiVersion": api_version, **body}
        review["metadata"] = {**(body.get("metadata") or {})}
        if kind == "SelfSubjectReview":
            review["metadata"]["creationTimestamp"] = timestamps.now()
        review["status"] = self._answers[plural](body.get("spec") or {}, user, namespace)
        return review

    def _token(self, spec: Object, _: User, __: str) -> Object:
        audiences = list(spec.get("audiences") or [API_AUDIENCE])
        result = self._authenticator.user_of(str(spec.get("token", "")), audiences)
        if isinstance(result, str):
            return {"user": {}, "error": f"invalid bearer token: {result}"}
        user, common = result
        return {"authenticated": True, "user": user.user_info(), "audiences": common}

    def _oneself(self, _: Object, user: User, __: str) -> Object:
        return {"userInfo": user.user_info()}

    def _own_access(self, spec: Object, user: User, _: str) -> Object:
        return self._decide(user, spec)

    def _access(self, spec: Object, _: User, namespace: str) -> Object:
        name, groups = spec.get("user") or "", tuple(spec.get("groups") or ())
        if not name and not groups:
            why = "at least one of user or group must be specified"
            cause = invalid_cause("spec.user", "", why)
            raise errors.invalid_error("SubjectAccessReview", "authorization.k8s.io", "", [cause])
        requested = (spec.get("resourceAttributes") or {}).get("namespace", "")
        if namespace and requested != namespace:
            field = "spec.resourceAttributes.namespace"
            cause = invalid_cause(field, requested, "must match metadata.namespace")
            group = "authorization.k8s.io"
            raise errors.invalid_error("LocalSubjectAccessReview", group, "", [cause])
        return self._decide(User(name, spec.get("uid") or "", groups), spec)

    def _decide(self, user: User, spec: Object) -> Object:
        resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if (resource is None) == (path is None):
            message = (
                "Invalid value: exactly one of nonResourceAttributes or resourceAttributes must be "
                "specified"
            )
            cause = Cause("FieldValueInvalid", message, "spec")
            raise errors.invalid_error("SubjectAccessReview", "authorization.k8s.io", "", [cause])
        if path is not None:
            requested = Attributes(path.get("verb", ""), path=path.get("path", ""))
        else:
            names = ("verb", "group", "resource", "subresource", "namespace", "name")
            requested = Attributes(*[str((resource or {}).get(name) or "") for name in names])
        allowed, reason = self._authorizer.authorize(user, requested)
        return {"allowed": allowed, **({"reason": reason} if reason else {})}

    def _own_rules(self, spec: Object, user: User, _: str) -> Object:
        if not spec.get("namespace"):
            raise errors.bad_request("no namespace on request")
        rules = self._authorizer.rules_for(user, spec["namespace"])
        resources, paths = [], []
        for rule in rules:
            if rule.get("nonResourceURLs"):
                paths.append({key: rule[key] for key in ("verbs", "nonResourceURLs")})
            else:
                fields = ("verbs", "apiGroups", "resources", "resourceNames")
                resources.append({key: rule[key] for key in fields if rule.get(key)})
        return {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}


def token_request(body: Any, account: Object, tokens: ServiceAccountTokens) -> Object:
    """Sign a token for a ServiceAccount. Raises ApiError."""
    schema = typed_bodies.of_kind("authentication.v1.TokenRequest")
    body = typed_bodies.check_types(body, "TokenRequest", schema)
    spec = body.get("spec") or {}
    token, ends = tokens.issue(account, spec)
    moment = datetime.fromtimestamp(ends, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": account["metadata"]["name"],
            "namespace": account["metadata"]["namespace"],
            "creationTimestamp": None,
        },
        "spec": {"audiences": [API_AUDIENCE], "expirationSeconds": 3600, **spec},
        "status": {"token": token, "expirationTimestamp": moment},
    }
