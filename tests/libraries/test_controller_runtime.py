"""A controller written in Go with controller-runtime, as most of this world's controllers are."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client as k8s

from fakes import patience
from fakes.process import ApiServer, environment
from fakes.python_clients import official_client

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

SOURCE = Path(__file__).with_name("controller_runtime")
ROUTES = ("gateway.networking.k8s.io", "v1", "default", "httproutes")


@pytest.fixture(scope="module")
def binary(cache: Path) -> Path:
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go on this machine")
    target = cache / "mirror"
    subprocess.run([go, "build", "-p", "2", "-o", str(target), "."], cwd=SOURCE, check=True)
    return target


class Replica:
    def __init__(self, binary: Path, server: ApiServer, log: Path, name: str) -> None:
        self.log = log
        env = environment(KUBECONFIG=str(server.kubeconfig), HOME=str(log.parent))
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [str(binary), "-id", name], env=env, stdout=out, stderr=subprocess.STDOUT
            )

    @property
    def leads(self) -> bool:
        return b"leading " in self.log.read_bytes() and self.process.poll() is None

    def end(self, number: signal.Signals) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(patience.SECONDS)


def until(test: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + patience.SECONDS
    while True:
        try:
            result = test()
        except Exception as error:
            result, what = None, f"{what}: {error}"
        if result:
            return result
        assert time.monotonic() < deadline, what
        patience.pause_thread()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    result = ApiServer(tmp_path / "s")
    result.start()
    yield result
    result.stop()


@pytest.fixture
def replicas(binary: Path, server: ApiServer, tmp_path: Path) -> Iterator[list[Replica]]:
    result = [Replica(binary, server, tmp_path / f"{name}.log", name) for name in ("one", "two")]
    yield result
    for replica in result:
        replica.end(signal.SIGKILL)


@pytest.fixture
def core(server: ApiServer) -> Iterator[k8s.CoreV1Api]:
    with official_client(server.kubeconfig) as api:
        yield k8s.CoreV1Api(api)


def mirrored(core: k8s.CoreV1Api, name: str, **data: str) -> None:
    body = {"metadata": {"name": name, "labels": {"mirror": "true"}}, "data": data}
    core.create_namespaced_config_map("default", body)


def secrets(core: k8s.CoreV1Api) -> dict[str, Any]:
    result = core.list_namespaced_secret("default").items
    return {secret.metadata.name: secret.data for secret in result}


@pytest.mark.long
def test_controller_reconciles_and_standby_takes_over(
    server: ApiServer, replicas: list[Replica], core: k8s.CoreV1Api
) -> None:
    until(lambda: any(r.leads for r in replicas), "nobody leads")
    mirrored(core, "a", k="v")
    until(lambda: secrets(core) == {"a": {"k": "dg=="}}, "no secret")
    core.patch_namespaced_config_map("a", "default", {"data": {"k": "w"}})
    until(lambda: secrets(core) == {"a": {"k": "dw=="}}, "the secret did not follow")
    core.delete_namespaced_secret("a", "default")
    until(lambda: secrets(core) == {"a": {"k": "dw=="}}, "the secret did not come back")
    events = until(lambda: core.list_namespaced_event("default").items, "no event")
    assert "Mirrored" in {event.reason for event in events}
    assert sum(replica.leads for replica in replicas) == 1

    leader = next(replica for replica in replicas if replica.leads)
    leader.end(signal.SIGKILL)
    until(lambda: any(r.leads for r in replicas), "nobody took over")
    mirrored(core, "b", k="v")
    until(lambda: set(secrets(core)) == {"a", "b"}, "the other one does nothing")
    core.delete_namespaced_config_map("a", "default")
    until(lambda: set(secrets(core)) == {"b"}, "the secret was not collected")

    server.kill()
    server.start()
    mirrored(core, "c", k="v")
    until(lambda: set(secrets(core)) == {"b", "c"}, "nothing after the server came back")
    last = next(replica for replica in replicas if replica.leads)
    assert last.end(signal.SIGTERM) == 0


@pytest.mark.long
def test_metadata_informers_and_server_side_apply_work(
    replicas: list[Replica], core: k8s.CoreV1Api
) -> None:
    until(lambda: any(r.leads for r in replicas), "nobody leads")
    custom = k8s.CustomObjectsApi(core.api_client)
    body = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "r"},
        "spec": {"rules": [{"backendRefs": [{"name": "s", "port": 80}]}]},
    }
    custom.create_namespaced_custom_object(*ROUTES, body)

    def annotated() -> Any:
        result = custom.get_namespaced_custom_object(*ROUTES, "r")
        return result if (result["metadata"].get("annotations") or {}) else None

    result = until(annotated, "no annotation")
    assert result["metadata"]["annotations"] == {"example.com/seen": "true"}
    owners = {entry["manager"]: entry["operation"] for entry in result["metadata"]["managedFields"]}
    assert owners["mirror"] == "Apply"
    assert result["metadata"]["generation"] == 1
