"""Plug-in of pytest for runs in CI: a test that skips for want of a program or a right fails.

On a machine of a developer such a test skips with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fakes.peer_report import skip_reason

PERMITTED = (
    "has no create token",
    "has no --for=jsonpath and no --subresource",
    "validates by itself",
    "this machine permits no namespaces",
    "this machine permits no control groups",
    "only its owner may enter the directory of this checkout",
)
"""Reasons of skips in CI: the oldest kubectl lacks what the newer one beside it has, a checkout may
be in a private directory, and a machine may not run containers."""


class RequiredTools:
    """Failure of skipped tests, but for those with programs of other projects than Kubernetes, and
    with a module of NGINX that no package has."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """Turn a skip into a failure."""
        report: pytest.TestReport = yield  # type: ignore[assignment]
        skipped = report.skipped and not hasattr(report, "wasxfail")
        peers = item.get_closest_marker("peers") and not item.get_closest_marker("kubernetes")
        optional = peers or item.get_closest_marker("trace_module")
        if skipped and not optional:
            reason = skip_reason(report)
            if not reason.endswith(PERMITTED):
                report.outcome, report.longrepr = "failed", f"skipped in CI: {reason}"
        return report  # type: ignore[return-value]
