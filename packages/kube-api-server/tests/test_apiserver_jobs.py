"""Jobs: labels and selector of their Pods, and what may change."""

from __future__ import annotations

from typing import Any

import pytest

from kube_api_server.builtin.jobs import CONTROLLER_UID, check_job, complete_job, select_own_pods
from kube_base.types.objects import Object, copy_value

TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}
UID = "11111111-1111-4111-8111-111111111111"
OWN = {
    "batch.kubernetes.io/job-name": "one",
    "job-name": "one",
    CONTROLLER_UID: UID,
    "controller-uid": UID,
}


def job(**spec: Any) -> Object:
    """Build a Job as it is stored."""
    obj: Object = {
        "metadata": {"name": "one", "uid": UID},
        "spec": {"template": copy_value(TEMPLATE), **spec},
    }
    complete_job(obj)
    select_own_pods(obj)
    return obj


def fields(obj: Object, old: Object | None = None) -> set[str]:
    return {cause.field for cause in check_job(obj, old)}


def test_new_job_selects_pods_with_its_uid() -> None:
    obj = job()
    assert obj["spec"]["selector"] == {"matchLabels": {CONTROLLER_UID: UID}}
    assert obj["spec"]["template"]["metadata"]["labels"] == OWN
    assert obj["metadata"]["labels"] == OWN
    assert fields(obj) == set()


def test_labels_of_the_user_stay() -> None:
    labels = {"app": "web", "job-name": "other"}
    obj = job(template={**TEMPLATE, "metadata": {"labels": labels}})
    assert obj["spec"]["template"]["metadata"]["labels"] == {**OWN, **labels}
    assert fields(obj) == {"spec.template.metadata.labels[job-name]"}


@pytest.mark.parametrize("value", [1, None, {}, ["b"]])
def test_labels_of_another_type_are_not_copied(value: Any) -> None:
    obj = job(template={**TEMPLATE, "metadata": {"labels": {"app": value}}})
    assert "labels" not in obj["metadata"]
    assert obj["spec"]["template"]["metadata"]["labels"] == {"app": value}


def test_manual_selector_stays() -> None:
    chosen = {"matchLabels": {"app": "web"}}
    template = {**TEMPLATE, "metadata": {"labels": {"app": "web"}}}
    obj = job(manualSelector=True, selector=chosen, template=template)
    assert obj["spec"]["selector"] == chosen
    assert obj["spec"]["template"]["metadata"]["labels"] == {"app": "web"}
    assert fields(obj) == set()


@pytest.mark.parametrize(
    ("change", "rejected"),
    [
        ({"parallelism": 3}, set()),
        ({"suspend": True}, set()),
        ({"completions": 3}, {"spec.completions"}),
        ({"completionMode": "Indexed"}, {"spec.completionMode"}),
        ({"managedBy": "a.example/b"}, {"spec.managedBy"}),
    ],
)
def test_most_of_a_job_does_not_change(change: Object, rejected: set[str]) -> None:
    old = job()
    new = copy_value(old)
    new["spec"] |= change
    assert fields(new, old) == rejected


@pytest.mark.parametrize("suspended", [True, False])
def test_suspended_job_may_get_other_nodes(suspended: bool) -> None:
    old = job(suspend=suspended)
    new = copy_value(old)
    new["spec"]["template"]["spec"]["nodeSelector"] = {"zone": "a"}
    assert fields(new, old) == (set() if suspended else {"spec.template"})
    new["spec"]["template"]["spec"]["containers"][0]["image"] = "i:2"
    assert fields(new, old) == {"spec.template"}
    old["status"] = {"startTime": "2026-01-01T00:00:00Z"}
    assert fields(new, old) == {"spec.template"}


def test_indexed_job_grows_with_its_parallelism() -> None:
    old = job(completionMode="Indexed", completions=2, parallelism=2)
    new = copy_value(old)
    new["spec"]["completions"] = 4
    assert fields(new, old) == {"spec.completions"}
    new["spec"]["parallelism"] = 4
    assert fields(new, old) == set()


def test_job_of_an_earlier_version_can_be_changed() -> None:
    """It was stored without labels, a selector and most defaults."""
    old: Object = {
        "metadata": {"name": "one", "uid": UID},
        "spec": {"template": copy_value(TEMPLATE), "backoffLimit": 6},
    }
    new = copy_value(old)
    new["metadata"]["labels"] = {"a": "b"}
    complete_job(new)
    assert fields(new, old) == set()


@pytest.mark.parametrize(
    ("indexes", "count", "rejected"),
    [
        ("0-1,3", 3, ""),
        ("", None, ""),
        ("0-4", None, "succeededIndexes"),
        ("1,0", None, "succeededIndexes"),
        ("00", None, "succeededIndexes"),
        ("0-1", 3, "succeededCount"),
        (None, 5, "succeededCount"),
        (None, -1, "succeededCount"),
    ],
)
def test_indexes_of_success_are_those_of_the_job(
    indexes: str | None, count: int | None, rejected: str
) -> None:
    rule = {"succeededIndexes": indexes, "succeededCount": count}
    policy = {"rules": [{key: value for key, value in rule.items() if value is not None}]}
    obj = job(completionMode="Indexed", completions=4, successPolicy=policy)
    place = "spec.successPolicy.rules[0]"
    assert fields(obj) == ({f"{place}.{rejected}"} if rejected else set())
