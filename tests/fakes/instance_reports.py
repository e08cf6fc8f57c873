"""Reports of a data plane with one instance."""

from __future__ import annotations

from gatehouse.dataplane.delivery import DataPlaneReport, InstanceReport, Rejection


def instance_report(
    version: str,
    *,
    rejected: bool = False,
    serving: bool = False,
    trials: bool = False,
    resources: tuple[Rejection, ...] = (),
) -> InstanceReport:
    """Return the report of an instance that tested a version.

    ``rejected``: an NGINX rejects the version; ``resources``: an Envoy rejects some of it.
    """
    return InstanceReport(
        "i",
        desired=version,
        confirmed="" if rejected else version,
        proxy="nginx/1.31.3",
        rejected=resources,
        rejected_version=version if rejected else "",
        rejection="bad" if rejected else "",
        serving=serving,
        takes_trials=trials,
    )


def data_plane_report(instance: InstanceReport) -> DataPlaneReport:
    """Return the report of a Gateway with this instance."""
    return DataPlaneReport("ns/gw", instance.desired, (instance,))
