"""Who an agent is: its ServiceAccount token, reviewed by the API server, names its Gateway."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gatehouse.controller.provisioner.reconcile import gateway_of
from gatehouse.kube import client as kube
from gatehouse.transports import server as agents

POD_NAME = "authentication.kubernetes.io/pod-name"
"""Key of TokenReview's ``extra`` under which a bound token names its Pod."""

_PREFIX = "system:serviceaccount:"

ServiceAccounts = Mapping[tuple[str, str], Mapping[str, Any]]


class Identities:
    """Authenticates agents. The Gateway follows from the token, never from what a client says."""

    def __init__(
        self, client: kube.Client, audience: str, service_accounts: Callable[[], ServiceAccounts]
    ) -> None:
        self._client = client
        self._audience = audience
        self._service_accounts = service_accounts

    async def authenticate(self, token: str) -> agents.Identity:
        """Give the identity behind ``token``; raises Denied, or Unavailable when unsure."""
        try:
            review = await self._client.review_token(token, [self._audience])
        except kube.ApiError as error:
            raise agents.Unavailable(f"the token could not be reviewed: {error}") from error
        if not review.authenticated:
            raise agents.Denied(review.error or "the token is not valid for this audience")
        if not review.username.startswith(_PREFIX):
            raise agents.Denied(f"{review.username} is no ServiceAccount")
        namespace, _, name = review.username.removeprefix(_PREFIX).partition(":")
        gateway = gateway_of(namespace, name, self._service_accounts())
        if gateway is None:
            # The informer may be behind: the agent shall try again, not give up.
            raise agents.Unavailable(
                f"ServiceAccount {namespace}/{name} belongs to no known Gateway"
            )
        pods = review.extra.get(POD_NAME, ())
        # A data plane's Deployment has the name of its ServiceAccount.
        owner = f"{namespace}_{name}"
        return agents.Identity(gateway=gateway, instance=pods[0] if pods else name, owner=owner)
