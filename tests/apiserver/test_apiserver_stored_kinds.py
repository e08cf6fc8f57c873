"""Built-in kinds that the server stores or refuses, because nothing acts on them."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.inprocess import Server

SIGNING_REQUEST = (
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIS01ITUNBUUF3RVRFUE1BMEdBMVVFQXd3R2NHRn"
    "lhWFI1TUZrd0V3WUhLb1pJemowQ0FRWUlLb1pJemowRApBUWNEUWdBRVBPYzZzTnhWNXJjMXFwTnk0d3hwcWRBditB"
    "Y0RSc2NSOTFtR2t5WVJzMzMzcTJkUVhvZmJ5a3ZECmhBWDJrMU9Mak5mUDhNdlNOUmJLUExhZnRRdzNkcUFBTUFvR0"
    "NDcUdTTTQ5QkFNQ0EwY0FNRVFDSURiOE80SDMKRFc3c2ZHUTlSMVgwOHQrSGx0bXNveVIrM1R1eFZtK3FaWTZ5QWlB"
    "eTFtenlkZytacDRpTFB0aFYrL05qTjc1MApkTVN3N3ZZemJvY2d1cndPd3c9PQotLS0tLUVORCBDRVJUSUZJQ0FURS"
    "BSRVFVRVNULS0tLS0K"
)
CORE = "/api/v1/namespaces/default"
NETWORKING = "/apis/networking.k8s.io/v1"
FLOW_CONTROL = "/apis/flowcontrol.apiserver.k8s.io/v1"
DEVICES = "/apis/resource.k8s.io/v1"
GPU, POOL = {"deviceClassName": "gpu"}, {"name": "p", "generation": 1, "resourceSliceCount": 1}
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
LABELS = {"app": "web"}
TEMPLATE = {
    "metadata": {"labels": LABELS},
    "spec": {"containers": [{"name": "c", "image": "i:1"}]},
}

STORED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (f"{CORE}/podtemplates", {"template": TEMPLATE}, {"Images": "i:1", "Pod Labels": "app=web"}),
    (
        f"{CORE}/replicationcontrollers",
        {"spec": {"template": TEMPLATE}},
        {"Desired": 1, "Current": 0, "Selector": "app=web"},
    ),
    (
        f"{CORE}/persistentvolumeclaims",
        {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": "gold",
            }
        },
        {"StorageClass": "gold", "VolumeMode": "Filesystem", "Capacity": ""},
    ),
    (
        f"{NETWORKING}/namespaces/default/ingresses",
        {"spec": {"ingressClassName": "nginx", "rules": [{"host": "a.example"}]}},
        {"Class": "nginx", "Hosts": "a.example", "Ports": "80"},
    ),
    (
        f"{NETWORKING}/ingressclasses",
        {
            "spec": {
                "controller": "example.com/c",
                "parameters": {"kind": "P", "apiGroup": "example.com", "name": "p"},
            }
        },
        {"Controller": "example.com/c", "Parameters": "P.example.com/p"},
    ),
    (
        f"{FLOW_CONTROL}/flowschemas",
        {"spec": {"priorityLevelConfiguration": {"name": "exempt"}}},
        {"PriorityLevel": "exempt", "MatchingPrecedence": 1000, "MissingPL": "?"},
    ),
    (
        f"{FLOW_CONTROL}/prioritylevelconfigurations",
        {"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}},
        {"Type": "Limited", "NominalConcurrencyShares": 30, "Queues": "<none>"},
    ),
    (
        f"{DEVICES}/namespaces/default/resourceclaims",
        {"spec": {"devices": {"requests": [{"name": "a", "exactly": GPU}]}}},
        {"State": "pending"},
    ),
    (
        f"{DEVICES}/namespaces/default/resourceclaimtemplates",
        {"spec": {"spec": {"devices": {"requests": [{"name": "a", "exactly": GPU}]}}}},
        {},
    ),
    (f"{DEVICES}/deviceclasses", {"spec": {}}, {}),
    (
        f"{DEVICES}/resourceslices",
        {"spec": {"driver": "d.example", "pool": POOL, "nodeName": "n", "devices": []}},
        {"Node": "n", "Driver": "d.example", "Pool": "p"},
    ),
    ("/apis/node.k8s.io/v1/runtimeclasses", {"handler": "runc"}, {"Handler": "runc"}),
    (
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"value": 10},
        {"Value": 10, "Global-Default": False, "PreemptionPolicy": "PreemptLowerPriority"},
    ),
    ("/apis/storage.k8s.io/v1/csinodes", {"spec": {"drivers": []}}, {"Drivers": 0}),
    (
        "/apis/storage.k8s.io/v1/storageclasses",
        {"provisioner": "example.com/p"},
        {"Provisioner": "example.com/p", "ReclaimPolicy": "Delete"},
    ),
    (
        "/apis/certificates.k8s.io/v1/certificatesigningrequests",
        {
            "spec": {
                "signerName": "example.com/s",
                "request": SIGNING_REQUEST,
                "usages": ["client auth"],
            }
        },
        {"SignerName": "example.com/s", "Condition": "Pending"},
    ),
    (f"{ADMISSION}/validatingwebhookconfigurations", {}, {"Webhooks": 0}),
    (f"{ADMISSION}/mutatingwebhookconfigurations", {}, {"Webhooks": 0}),
    (
        "/apis/apiregistration.k8s.io/v1/apiservices",
        {"spec": {"group": "x", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}},
        {"Service": "Local", "Available": "Unknown"},
    ),
]


@pytest.mark.parametrize(("path", "body", "cells"), STORED, ids=[path for path, _, _ in STORED])
async def test_kind_is_stored_with_defaults_and_columns(
    server: Server, path: str, body: dict[str, Any], cells: dict[str, Any]
) -> None:
    async with server.raw() as http:
        async with http.post(path, json={"metadata": {"name": "one"}, **body}) as response:
            assert response.status == 201, await response.text()
        async with http.get(f"{path}/one", headers=TABLE) as response:
            table = await response.json()
        names = [column["name"] for column in table["columnDefinitions"]]
        row = dict(zip(names, table["rows"][0]["cells"], strict=True))
        assert row == {**row, "Name": "one", **cells}
        async with http.delete(f"{path}/one") as response:
            assert response.status == 200


SERVICE = {"name": "s", "namespace": "default"}
WEBHOOK = {
    "name": "a.example.com",
    "clientConfig": {"url": "https://a.example.com/"},
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (f"{ADMISSION}/validatingwebhookconfigurations", {"webhooks": [WEBHOOK]}, "webhooks"),
    (f"{ADMISSION}/mutatingwebhookconfigurations", {"webhooks": [WEBHOOK]}, "webhooks"),
    (
        "/apis/apiregistration.k8s.io/v1/apiservices",
        {
            "spec": {
                "group": "x",
                "version": "v1",
                "groupPriorityMinimum": 1,
                "versionPriority": 1,
                "service": SERVICE,
            }
        },
        "spec.service",
    ),
]


@pytest.mark.parametrize(("path", "body", "field"), REFUSED, ids=[path for path, _, _ in REFUSED])
async def test_webhooks_and_api_servers_that_would_not_be_called_are_refused(
    server: Server, path: str, body: dict[str, Any], field: str
) -> None:
    async with (
        server.raw() as http,
        http.post(path, json={"metadata": {"name": "one"}, **body}) as response,
    ):
        answer = await response.json()
    assert (response.status, answer["details"]["causes"][0]["field"]) == (422, field), answer
