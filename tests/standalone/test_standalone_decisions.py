"""Decisions of the node and the state directory, without processes."""

from __future__ import annotations

import ipaddress
import socket
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.standalone import pki
from gatehouse.standalone.node import load_balancer_ips, pods
from gatehouse.standalone.state_directory import State, StateError, split_address

POOL = ipaddress.IPv4Network("127.100.0.0/29")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def service(address: str = "", created: str = "2026", kind: str = "LoadBalancer") -> dict[str, Any]:
    status = {"loadBalancer": {"ingress": [{"ip": address}]}} if address else {}
    return {
        "metadata": {"creationTimestamp": created},
        "spec": {"type": kind},
        "status": status,
    }


def test_assigned_address_is_kept_and_new_address_is_unused() -> None:
    services = {("a", "x"): service("127.100.0.3"), ("a", "y"): service()}
    given_ = load_balancer_ips.assign(services, POOL)
    assert given_[("a", "x")] == "127.100.0.3"
    assert given_[("a", "y")] != "127.100.0.3"
    assert ipaddress.ip_address(given_[("a", "y")]) in POOL


def test_older_service_keeps_a_duplicate_address() -> None:
    services = {
        ("a", "young"): service("127.100.0.3", "2026"),
        ("b", "old"): service("127.100.0.3", "2025"),
    }
    given_ = load_balancer_ips.assign(services, POOL)
    assert given_[("b", "old")] == "127.100.0.3"
    assert given_[("a", "young")] != "127.100.0.3"


def test_only_load_balancers_get_addresses_and_foreign_ones_are_replaced() -> None:
    services = {("a", "ip"): service(kind="ClusterIP"), ("a", "far"): service("10.0.0.1")}
    given_ = load_balancer_ips.assign(services, POOL)
    assert given_.keys() == {("a", "far")}
    assert given_[("a", "far")].startswith("127.100.0.")


def test_exhausted_pool_error_names_the_service() -> None:
    services = {("a", str(number)): service() for number in range(7)}
    with pytest.raises(load_balancer_ips.PoolExhausted, match="a/"):
        load_balancer_ips.assign(services, POOL)


@given(st.lists(st.tuples(st.text("ab", max_size=2), st.text("xy", max_size=2)), max_size=6))
def test_addresses_are_distinct_and_stable(names: list[tuple[str, str]]) -> None:
    services = {name: service() for name in names}
    first = load_balancer_ips.assign(services, POOL)
    assert len(set(first.values())) == len(first)
    later = {name: service(address) for name, address in first.items()}
    assert load_balancer_ips.assign(later, POOL) == first


def deployment(**container: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "web", "namespace": "ns", "uid": "u", "generation": 3},
        "spec": {
            "replicas": 1,
            "template": {
                "metadata": {
                    "labels": {"a": "b"},
                    "annotations": {"gatehouse.dev/service-name": "svc"},
                },
                "spec": {"containers": [{"name": "c", "image": "i", **container}]},
            },
        },
    }


def test_pod_name_depends_on_deployment_and_template() -> None:
    first, again = pods.pod_for(deployment(), "n"), pods.pod_for(deployment(), "n")
    changed = pods.pod_for(deployment(command=["x"]), "n")
    assert first == again
    assert first["metadata"]["name"] != changed["metadata"]["name"]
    assert len(first["metadata"]["name"].split("-")) == 3
    assert pods.service_of(deployment()) == "svc"


def test_environment_is_expanded_like_kubelet() -> None:
    secret = {"name": "s", "key": "k"}
    env = [
        {"name": "UNSUPPORTED", "valueFrom": {"secretKeyRef": secret}},
        {"name": "PHASE", "valueFrom": {"fieldRef": {"fieldPath": "status.phase"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "HEALTH", "value": "$(IP):9114"},
        {"name": "LITERAL", "value": "$$(IP) $(UNKNOWN)"},
    ]
    pod = pods.pod_for(deployment(env=env), "n")
    environment = pods.container_environment(pod, "127.1.2.3")
    assert (environment["UNSUPPORTED"], environment["PHASE"]) == ("", "")
    assert environment["HEALTH"] == "127.1.2.3:9114"
    assert environment["LITERAL"] == "$(IP) $(UNKNOWN)"
    assert environment["NAME"] == pod["metadata"]["name"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/var/run/x/token", "/d/token/token"),
        ("/var/run/x", "/d/token"),
        ("/var/run/xy", "/var/run/xy"),
        ("/var/run/x/deep/file", "/d/deep/file"),
        ("plain", "plain"),
    ],
)
def test_mount_paths_are_relocated_to_volume_directories(value: str, expected: str) -> None:
    mounts = {"/var/run/x": "/d/token", "/var/run/x/deep": "/d/deep"}
    assert pods.relocate(value, mounts) == expected


def test_transition_time_changes_only_with_the_condition() -> None:
    pod = pods.pod_for(deployment(), "n")
    ready = pods.ProcessState(running=True, ready=True)
    pod["status"] = pods.pod_status(pod, "127.0.0.1", ready, NOW)
    later = pods.pod_status(pod, "127.0.0.1", ready, NOW + timedelta(hours=1))
    assert later == pod["status"]
    failed = pods.pod_status(pod, "127.0.0.1", pods.ProcessState(), NOW + timedelta(hours=1))
    turned = {c["type"]: c["lastTransitionTime"] for c in failed["conditions"]}
    assert (turned["Ready"], turned["PodScheduled"]) == (
        "2026-01-01T01:00:00Z",
        "2026-01-01T00:00:00Z",
    )


def test_deployment_status_reports_replicas_that_do_not_run() -> None:
    obj = deployment()
    obj["spec"]["replicas"] = 3
    status = pods.deployment_status(obj, ready=True, now=NOW)
    assert (status["readyReplicas"], status["unavailableReplicas"]) == (1, 2)
    assert "only one of 3 replicas" in status["conditions"][0]["message"]


def test_certificates_are_created_once_private_and_renewed_before_expiry(tmp_path: Path) -> None:
    authority = pki.Pki(tmp_path / "pki")
    authority.ensure(now=NOW)
    pair = authority.leaf(pki.APISERVER)
    first = pair.cert.read_bytes()
    assert stat.S_IMODE(pair.key.stat().st_mode) == 0o600
    authority.ensure(now=NOW + timedelta(days=300))
    assert pair.cert.read_bytes() == first
    authority.ensure(now=NOW + timedelta(days=310))
    renewed = x509.load_pem_x509_certificate(pair.cert.read_bytes())
    assert renewed.not_valid_after_utc > NOW + timedelta(days=600)
    renewed.verify_directly_issued_by(
        x509.load_pem_x509_certificate(authority.ca().cert.read_bytes())
    )


def test_state_directory_has_one_owner_and_keeps_its_addresses(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    state.acquire()
    with pytest.raises(StateError, match="in use"):
        State(tmp_path / "state").acquire()
    chosen = state.addresses("127.0.0.1:0", "127.0.0.1:7001")
    assert state.addresses("127.0.0.1:0", "127.0.0.1:7001") == chosen
    assert chosen.agent == "127.0.0.1:7001"
    with socket.socket() as probe:
        probe.bind(split_address(chosen.api))


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:70000"])
def test_invalid_address_is_rejected(address: str) -> None:
    with pytest.raises(StateError, match="host:port"):
        split_address(address)


@pytest.mark.parametrize(
    ("container", "seconds"),
    [
        ({}, 0.0),
        ({"lifecycle": {"preStop": {"sleep": {"seconds": 3}}}}, 3.0),
        ({"lifecycle": {"preStop": {"exec": {"command": ["sleep", "9"]}}}}, 0.0),
        ({"lifecycle": {"postStart": {"sleep": {"seconds": 3}}}}, 0.0),
    ],
)
def test_only_sleep_action_is_a_pre_stop_delay(container: dict[str, Any], seconds: float) -> None:
    assert pods.pre_stop_seconds(pods.pod_for(deployment(**container), "n")) == seconds


def test_daemon_set_owns_its_pod_and_counts_one_replica() -> None:
    workload = {
        "kind": "DaemonSet",
        "metadata": {"name": "d", "namespace": "n", "uid": "u", "generation": 4},
        "spec": {"template": {"metadata": {}, "spec": {"containers": []}}},
    }
    pod = pods.pod_for(workload, "local")
    [owner] = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("DaemonSet", "d")
    status = pods.daemon_set_status(workload, ready=True)
    assert (status["observedGeneration"], status["numberReady"]) == (4, 1)
    assert pods.daemon_set_status(workload, ready=False)["numberUnavailable"] == 1


@pytest.mark.parametrize(
    ("stated", "seconds"), [({}, 30.0), ({"terminationGracePeriodSeconds": 5}, 5.0)]
)
def test_grace_period_is_that_of_the_pod_or_default(stated: dict[str, Any], seconds: float) -> None:
    assert pods.grace({"spec": stated}, 30.0) == seconds
