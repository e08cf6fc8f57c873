"""XBackendTrafficPolicy of ``gateway.networking.x-k8s.io/v1alpha1`` (GEP-1619, GEP-3388)."""

from __future__ import annotations

from gatehouse.apis.meta import View
from gatehouse.apis.nginx_gateway import TargetsPolicy, TargetsSpec
from gatehouse.apis.routes import SessionPersistence


class RetryBudgetSpec(View, frozen=True):
    """Share of retries among the requests of an interval."""

    percent: int = 20
    interval: str = "10s"


class RetryRateSpec(View, frozen=True):
    """Rate of retries that the budget permits in any case."""

    count: int = 10
    interval: str = "1s"


class RetryConstraintSpec(View, frozen=True):
    """Limit of retries to a backend."""

    budget: RetryBudgetSpec = RetryBudgetSpec()
    min_retry_rate: RetryRateSpec = RetryRateSpec()


class BackendTrafficSpec(TargetsSpec, frozen=True, kw_only=True):
    """``spec`` of an XBackendTrafficPolicy."""

    retry_constraint: RetryConstraintSpec | None = None
    session_persistence: SessionPersistence | None = None


class XBackendTrafficPolicy(TargetsPolicy, frozen=True):
    """An XBackendTrafficPolicy."""

    spec: BackendTrafficSpec = BackendTrafficSpec()
