"""Defaults, labels and validation of Jobs and CronJobs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kube_api_server.builtin import cron_schedules, defaults
from kube_api_server.builtin.job_policies import check_policies
from kube_api_server.builtin.pod_specs import check_pod_spec
from kube_api_server.builtin.validation import selects_labels
from kube_api_server.causes import invalid_cause, required_cause, unsupported_cause
from kube_api_server.errors import Cause
from kube_api_server.objects.metadata import check_label_name, check_label_value
from kube_base.types.objects import Object, copy_value

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
"""Key that the selector of a Job selects."""
_UID_LABELS = ("controller-uid", CONTROLLER_UID)
_NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")
_MAX_CRON_JOB_NAME = 52
_MAX_LABEL = _MAX_MANAGER = 63
_INDEXED = "Indexed"
_IMMUTABLE = (
    *("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy"),
    "successPolicy",
)
_DOMAIN_PATH = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[^/?#%]+(/[^/?#%]+)*")


def complete_job(obj: Object) -> None:
    """Set defaults of a Job. Its labels are those of its template."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    per_index = spec.get("backoffLimitPerIndex") is not None
    failures = spec.get("podFailurePolicy") is not None
    for name, value in (
        ("parallelism", 1),
        ("backoffLimit", 2**31 - 1 if per_index else 6),
        ("completionMode", "NonIndexed"),
        ("suspend", False),
        ("podReplacementPolicy", "Failed" if failures else "TerminatingOrFailed"),
        ("manualSelector", False),
    ):
        if spec.get(name) is None:
            spec[name] = value
    labels = _template_labels(spec)
    if _are_texts(labels) and labels and not obj["metadata"].get("labels"):
        obj["metadata"]["labels"] = dict(labels)
    defaults.default_workload(obj)


def select_own_pods(obj: Object) -> None:
    """Set the labels and the selector of a new Job, which has a UID, unless the user does."""
    metadata, spec = obj["metadata"], obj["spec"]
    head = spec["template"].setdefault("metadata", {})
    labels = head.get("labels") or {}
    # Validation reports labels of a wrong type.
    if spec.get("manualSelector") or not _are_texts(labels):
        return
    # Kubernetes copies them only when it reads what it has validated.
    is_label = len(metadata["name"]) <= _MAX_LABEL
    inherits = is_label and metadata.get("labels") in (None, {}, labels)
    own = dict.fromkeys(_NAME_LABELS, metadata["name"]) | dict.fromkeys(
        _UID_LABELS, metadata["uid"]
    )
    head["labels"] = own | labels
    if inherits:
        metadata["labels"] = dict(head["labels"])
    selector = spec.get("selector") or {}
    chosen = {CONTROLLER_UID: metadata["uid"], **(selector.get("matchLabels") or {})}
    spec["selector"] = {**selector, "matchLabels": chosen}


def _are_texts(labels: Mapping[str, Any]) -> bool:
    return all(isinstance(value, str) for value in labels.values())


def check_job(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield the violations of a Job, whose Pods and selector mostly do not change."""
    # Jobs of earlier versions of this server have neither a selector nor all defaults.
    former = _completed(old)
    spec, before = obj.get("spec") or {}, former.get("spec") or {}
    yield from _job_spec("spec", spec, before)
    if old is None or before.get("selector") is not None:
        yield from _selector(obj, spec)
    if old is not None:
        yield from _changes(spec, before, former.get("status") or {})


def _completed(old: Object | None) -> Object:
    """Return a former state with all defaults; empty if there is none."""
    if old is None:
        return {}
    former: Object = copy_value(old)
    complete_job(former)
    return former


def _selector(obj: Object, spec: Mapping[str, Any]) -> Iterator[Cause]:
    selector, labels = spec.get("selector"), _template_labels(spec)
    place = "spec.template.metadata.labels"
    if selector is None:
        yield required_cause("spec.selector")
        return
    if not spec.get("manualSelector"):
        uid, name = obj["metadata"].get("uid"), obj["metadata"]["name"]
        own = dict.fromkeys(_UID_LABELS, uid) | dict.fromkeys(_NAME_LABELS, name)
        for key, value in own.items():
            if labels.get(key) != value:
                yield invalid_cause(f"{place}[{key}]", dict(labels), f"must be '{value}'")
        if not selects_labels(selector, own):
            yield invalid_cause("spec.selector", selector, "`selector` not auto-generated")
    if not selects_labels(selector, dict(labels)):
        why = "`selector` does not match template `labels`"
        yield invalid_cause(place, dict(labels), why)


def _changes(
    spec: Mapping[str, Any], before: Mapping[str, Any], status: Mapping[str, Any]
) -> Iterator[Cause]:
    immutable = "field is immutable"
    completions, parallelism = spec.get("completions"), spec.get("parallelism")
    if completions != before.get("completions"):
        if spec.get("completionMode") != _INDEXED:
            yield invalid_cause("spec.completions", completions, immutable)
        elif completions is not None and completions != parallelism:
            why = "can only be modified in tandem with spec.parallelism"
            yield invalid_cause("spec.completions", completions, why)
    for name in _IMMUTABLE:
        if spec.get(name) != before.get(name) and (name != "selector" or name in before):
            yield invalid_cause(f"spec.{name}", spec.get(name), immutable)
    has_not_started = before.get("suspend") and not status.get("startTime")
    new, old = (_fixed(one.get("template"), is_free=has_not_started) for one in (spec, before))
    if new != old:
        yield invalid_cause("spec.template", spec.get("template"), immutable)


def _fixed(template: Any, *, is_free: Any) -> Object:
    """Return what never changes of a template. A Job `is_free` before its first start."""
    fixed: Object = copy_value(template or {})
    if is_free:
        fixed.pop("metadata", None)
        spec = fixed.get("spec") or {}
        for name in ("nodeSelector", "tolerations", "schedulingGates"):
            spec.pop(name, None)
        if affinity := spec.pop("affinity", None):
            affinity.pop("nodeAffinity", None)
            spec |= {"affinity": affinity} if affinity else {}
    return fixed


def check_cron_job(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield the violations of a CronJob."""
    spec, before = obj.get("spec") or {}, (old or {}).get("spec") or {}
    name, schedule = obj["metadata"]["name"], spec.get("schedule") or ""
    if old is None and len(name) > _MAX_CRON_JOB_NAME:
        why = f"must be no more than {_MAX_CRON_JOB_NAME} characters"
        yield invalid_cause("metadata.name", name, why)
    if schedule != before.get("schedule"):
        yield from _schedule("spec.schedule", schedule)
    zone = spec.get("timeZone")
    if zone is not None and zone != before.get("timeZone"):
        yield from _zone("spec.timeZone", zone)
    place = "spec.jobTemplate.spec"
    job, job_before = ((one.get("jobTemplate") or {}).get("spec") or {} for one in (spec, before))
    yield from _job_spec(place, job, job_before)
    if (selector := job.get("selector")) is not None:
        yield invalid_cause(f"{place}.selector", selector, "`selector` will be auto-generated")
    if job.get("manualSelector"):
        yield unsupported_cause(f"{place}.manualSelector", True, ("nil", "false"))


def _schedule(field: str, schedule: str) -> Iterator[Cause]:
    if not schedule:
        yield required_cause(field)
    elif problem := cron_schedules.schedule_problem(schedule):
        yield invalid_cause(field, schedule, problem)
    if "TZ" in schedule:
        why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        yield invalid_cause(field, schedule, why)


def _zone(field: str, zone: str) -> Iterator[Cause]:
    if problem := cron_schedules.zone_problem(zone):
        yield invalid_cause(field, zone, problem)


def _job_spec(field: str, spec: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[Cause]:
    mode, manager = spec.get("completionMode"), spec.get("managedBy")
    per_index, failed = spec.get("backoffLimitPerIndex"), spec.get("maxFailedIndexes")
    if failed is not None and per_index is None:
        yield required_cause(f"{field}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if manager is not None and (not _DOMAIN_PATH.fullmatch(manager) or len(manager) > _MAX_MANAGER):
        why = 'must be a domain-prefixed path (such as "acme.io/foo")'
        yield invalid_cause(f"{field}.managedBy", manager, why)
    if mode == _INDEXED and spec.get("completions") is None:
        yield required_cause(f"{field}.completions", f"when completion mode is {_INDEXED}")
    if mode == _INDEXED and failed is not None and failed > (spec.get("completions") or 0):
        why = "must be less than or equal to completions"
        yield invalid_cause(f"{field}.maxFailedIndexes", failed, why)
    if mode in (None, "NonIndexed"):
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(name) is not None:
                yield invalid_cause(
                    f"{field}.{name}", spec[name], "requires indexed completion mode"
                )
    yield from check_policies(field, spec)
    if spec.get("template") != before.get("template"):
        pod = (spec.get("template") or {}).get("spec") or {}
        yield from check_pod_spec(pod, f"{field}.template.spec")
    for key, value in _template_labels(spec).items():
        yield from check_label_name(key, f"{field}.template.labels")
        yield from check_label_value(value, f"{field}.template.labels")
    yield from _restart_policy(f"{field}.template.spec.restartPolicy", spec)


def _restart_policy(field: str, spec: Mapping[str, Any]) -> Iterator[Cause]:
    policy = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy")
    if policy in (None, "Always"):
        yield required_cause(field, 'valid values: "OnFailure", "Never"')
    elif spec.get("podFailurePolicy") is not None and policy == "OnFailure":
        why = 'only "Never" is supported when podFailurePolicy is specified'
        yield invalid_cause(field, policy, why)


def _template_labels(spec: Mapping[str, Any]) -> Mapping[str, str]:
    return ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
