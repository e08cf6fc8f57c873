"""Agent identities: the API server reviews an agent's token, which names its Gateway."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gatehouse.controller.provisioner.reconcile import gateway_of
from gatehouse.kube import client as kube
from gatehouse.transports import server as agents

POD_NAME = "authentication.kubernetes.io/pod-name"
"""Key in ``extra`` of a TokenReview with the Pod name of a bound token."""

_PREFIX = "system:serviceaccount:"

ServiceAccounts = Mapping[tuple[str, str], Mapping[str, Any]]


class Identities:
    """Authenticates agents. The Gateway follows from the token, never from other client data."""

    def __init__(
        self, client: kube.Client, audience: str, service_accounts: Callable[[], ServiceAccounts]
    ) -> None:
        self._client = client
        self._audience = audience
        self._service_accounts = service_accounts

    async def authenticate(self, token: str) -> agents.Identity:
        """Return the identity that ``token`` proves.

        Raises Denied if it proves none, Unavailable if that cannot be determined now.
        """
        try:
            review = await self._client.review_token(token, [self._audience])
        except kube.ApiError as error:
            raise agents.AuthenticationUnavailable(f"token review failed: {error}") from error
        if not review.authenticated:
            raise agents.Denied(review.error or "token is not valid for this audience")
        if not review.username.startswith(_PREFIX):
            raise agents.Denied(f"{review.username} is not a ServiceAccount")
        namespace, _, name = review.username.removeprefix(_PREFIX).partition(":")
        gateway = gateway_of(namespace, name, self._service_accounts())
        if gateway is None:
            # The informer may lag behind: the agent must retry, not give up.
            raise agents.AuthenticationUnavailable(
                f"no Gateway found for ServiceAccount {namespace}/{name}"
            )
        pods = review.extra.get(POD_NAME, ())
        # A data plane's Deployment has the name of its ServiceAccount.
        owner = f"{namespace}_{name}"
        return agents.Identity(gateway=gateway, instance=pods[0] if pods else name, owner=owner)
