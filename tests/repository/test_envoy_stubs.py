"""Stubs of Envoy's messages and services, as `make env-dev` writes them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from envoy.service.discovery.v3 import discovery_pb2

SCRIPT = Path(__file__).parents[2] / "scripts" / "envoy_stubs.py"


def write(directory: Path) -> None:
    # It imports all messages, and other tests need a process with few of them.
    subprocess.run([sys.executable, str(SCRIPT), str(directory)], check=True)


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("stubs") / "typings"
    write(directory)
    return directory


def declared(path: Path) -> dict[str, ast.stmt]:
    """Return the declarations of a stub by qualified name."""
    statements: dict[str, ast.stmt] = {}

    def visit(prefix: str, body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                statements[f"{prefix}{node.name}"] = node
                visit(f"{prefix}{node.name}.", node.body)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                statements[f"{prefix}{node.name}"] = node

    visit("", ast.parse(path.read_text()).body)
    return statements


def test_stub_declares_the_messages_of_its_module(stubs: Path) -> None:
    stub = declared(stubs / "envoy/service/discovery/v3/discovery_pb2.pyi")
    assert set(discovery_pb2.DESCRIPTOR.message_types_by_name) <= set(stub)


def test_stub_of_a_service_has_the_types_of_its_messages(stubs: Path) -> None:
    stub = declared(stubs / "envoy/service/ratelimit/v3/rls_pb2_grpc.pyi")
    method = stub["RateLimitServiceServicer.ShouldRateLimit"]
    assert isinstance(method, ast.AsyncFunctionDef)
    assert method.returns is not None
    assert ast.unparse(method.returns) == "envoy.service.ratelimit.v3.rls_pb2.RateLimitResponse"


def test_stub_of_a_streaming_method_has_iterators(stubs: Path) -> None:
    stub = declared(stubs / "envoy/service/discovery/v3/ads_pb2_grpc.pyi")
    method = stub["AggregatedDiscoveryServiceServicer.DeltaAggregatedResources"]
    assert isinstance(method, ast.FunctionDef)
    assert method.returns is not None
    module = "envoy.service.discovery.v3.discovery_pb2"
    assert ast.unparse(method.returns) == f"AsyncIterator[{module}.DeltaDiscoveryResponse]"


def test_stubs_hide_no_packages_of_other_distributions(stubs: Path) -> None:
    assert not (stubs / "google" / "__init__.pyi").exists()
    assert not (stubs / "google" / "protobuf").exists()


def test_stubs_replace_older_ones(stubs: Path) -> None:
    (stubs / "old.pyi").touch()
    before = {path for path in stubs.rglob("*.pyi") if path.name != "old.pyi"}
    write(stubs)
    assert set(stubs.rglob("*.pyi")) == before


def test_stub_of_a_message_accepts_only_what_mypy_checks(stubs: Path) -> None:
    stub = declared(stubs / "envoy/config/core/v3/address_pb2.pyi")
    types = {}
    for name in ("Address", "SocketAddress"):
        method = stub[f"{name}.__init__"]
        assert isinstance(method, ast.FunctionDef)
        for argument in method.args.args[1:]:
            assert argument.annotation is not None
            types[argument.arg] = ast.unparse(argument.annotation)
    assert types["socket_address"] == "_Optional[_Union[SocketAddress]]"
    assert types["protocol"] == "_Optional[_Union[SocketAddress.Protocol]]"
