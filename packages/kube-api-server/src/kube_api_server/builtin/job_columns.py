"""Columns of `kubectl get` for Jobs and CronJobs."""

from __future__ import annotations

from kube_api_server.builtin.columns import AGE, NAME, TEMPLATE, at, container_fields
from kube_api_server.objects import timestamps
from kube_api_server.objects.served_resource import Column
from kube_base.types.objects import Object

_NONE = "<none>"
_POD = "spec.jobTemplate.spec.template"


def _completions(obj: Object) -> str:
    completions, parallelism = (at(f"spec.{name}")(obj) for name in ("completions", "parallelism"))
    succeeded = at("status.succeeded")(obj) or 0
    if completions is not None:
        return f"{succeeded}/{completions}"
    return f"{succeeded}/1 of {parallelism}" if (parallelism or 0) > 1 else f"{succeeded}/1"


def _status(obj: Object) -> str:
    conditions = at("status.conditions")(obj) or ()
    present = {one.get("type") for one in conditions if one.get("status") == "True"}
    for name in ("Complete", "Failed"):
        if name in present:
            return name
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    others = ("Suspended", "FailureTarget", "SuccessCriteriaMet")
    return next((name for name in others if name in present), "Running")


def _duration(obj: Object) -> str:
    start, end = at("status.startTime")(obj), at("status.completionTime")(obj)
    return timestamps.age(start, end) if start else ""


def _last_schedule(obj: Object) -> str:
    last = at("status.lastScheduleTime")(obj)
    return timestamps.age(last) if last else _NONE


JOB_COLUMNS = (
    NAME,
    Column("Status", _status),
    Column("Completions", _completions),
    Column("Duration", _duration),
    AGE,
    *TEMPLATE,
)
CRON_JOB_COLUMNS = (
    NAME,
    Column("Schedule", lambda obj: str(at("spec.schedule")(obj))),
    Column("Timezone", lambda obj: str(at("spec.timeZone")(obj) or _NONE)),
    Column("Suspend", lambda obj: str(bool(at("spec.suspend")(obj))), "boolean"),
    Column("Active", lambda obj: len(at("status.active")(obj) or ()), "integer"),
    Column("Last Schedule", _last_schedule),
    AGE,
    Column("Containers", container_fields("name", _POD), wide=True),
    Column("Images", container_fields("image", _POD), wide=True),
    # A template never has a selector.
    Column("Selector", lambda _: _NONE, wide=True),
)
