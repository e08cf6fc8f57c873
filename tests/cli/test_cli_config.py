"""`gatehouse config` for data planes in a cluster: read by a command in their Pods."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from fakes import inprocess
from fakes.pod_exec import ClusterWithPods
from gatehouse.agent.envoy.resource_cache import AcceptedChange
from gatehouse.agent.envoy.resource_store import ResourceStore
from gatehouse.agent.nginx.manifests import Manifest, ManifestEntry
from gatehouse.apis import resources
from gatehouse.cli.config import config
from gatehouse.cli.support_collection import collect_support
from gatehouse.dataplane.xds import sidecar_configs
from gatehouse.kube import client as kube
from gatehouse.standalone.state_directory import State
from kube_base.types.resource import Resource

NAMESPACE, KEY = "default", "-----BEGIN PRIVATE KEY-----"
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")


def write_revision(root: Path, number: int, text: str, key: str = KEY) -> None:
    """Write a revision as the NGINX agent does, and make it the current one."""
    directory = root / "generations" / str(number)
    files = {"gatehouse/http.conf": text, "gatehouse/tls/web.key": key}
    entries = []
    for path, content in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(content)
        digest = hashlib.sha256(content.encode()).hexdigest()
        entries.append(ManifestEntry(path, digest, len(content), secret=path.endswith(".key")))
    manifest = Manifest(str(number), tuple(entries))
    (directory / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    for link in ("current", "proven"):
        (root / link).unlink(missing_ok=True)
        (root / link).symlink_to(directory)


class World:
    """A cluster with data planes, and a user on a workstation."""

    def __init__(self, cluster: ClusterWithPods, client: kube.Client, directory: Path) -> None:
        self.cluster = cluster
        self.client = client
        self._directory = directory

    async def add_gateway(self, name: str) -> None:
        spec = {
            "gatewayClassName": "gatehouse",
            "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
        }
        metadata = {"name": name, "namespace": NAMESPACE}
        await self.client.create(resources.GATEWAYS, {"metadata": metadata, "spec": spec})

    async def add_pod(self, gateway: str, name: str, proxy: str = "nginx") -> Path:
        """Create a data plane. Return the state directory of its agent."""
        labels = {
            "app.kubernetes.io/managed-by": "gatehouse",
            "gateway.networking.k8s.io/gateway-name": gateway,
        }
        metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
        containers = [{"name": "mesh", "image": "m"}, {"name": proxy, "image": "i"}]
        await self.client.create(
            resources.PODS, {"metadata": metadata, "spec": {"containers": containers}}
        )
        directory = self._directory / name
        directory.mkdir()
        self.cluster.variables[name] = {"GATEHOUSE_AGENT_STATE_DIR": str(directory)}
        return directory

    async def token(self, *rules: dict[str, list[str]]) -> str:
        """Return the token of a user with rules of a Role."""
        account = {"metadata": {"name": "user", "namespace": NAMESPACE}}
        await self.client.create(resources.SERVICE_ACCOUNTS, account)
        metadata = {"metadata": {"name": "user", "namespace": NAMESPACE}}
        await self.client.create(ROLES, {**metadata, "rules": [*rules]})
        subject = {"kind": "ServiceAccount", "name": "user", "namespace": NAMESPACE}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "user"}
        await self.client.create(BINDINGS, {**metadata, "roleRef": role, "subjects": [subject]})
        return (await self.client.create_token(NAMESPACE, "user", ()))[0]

    async def config(self, *words: str, token: str = "") -> Any:
        """Run `gatehouse config` on a machine without data planes."""
        kubeconfig = self.cluster.kubeconfig(self._directory / "kubeconfig", token)
        arguments = [*words, "--kubeconfig", str(kubeconfig)]
        variables = {"XDG_STATE_HOME": str(self._directory / "none")}
        return await asyncio.to_thread(CliRunner(env=variables).invoke, config, arguments)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    server = inprocess.Server(State(tmp_path / "server"))
    cluster = ClusterWithPods(server)
    async with server.running(), cluster.running(), server.client() as client:
        result = World(cluster, client, tmp_path)
        await result.add_gateway("web")
        yield result


GET = {"apiGroups": ["", "gateway.networking.k8s.io"], "resources": ["pods", "gateways"],
       "verbs": ["get", "list"]}  # fmt: skip
EXEC = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]}


async def test_files_of_a_data_plane_in_a_cluster_are_printed_without_secrets(world: World) -> None:
    write_revision(await world.add_pod("web", "web-1"), 1, "listen 80;\n")
    result = await world.config("default/web")
    assert result.exit_code == 0, result.output
    assert "# gatehouse/http.conf\nlisten 80;\n" in result.stdout
    assert f"# gatehouse/tls/web.key\n[redacted] ({len(KEY)} bytes, digest " in result.stdout
    assert KEY not in result.stdout
    ((pod, command),) = world.cluster.commands
    assert (pod, command[:2]) == ("web-1", ["gatehouse", "agent-config"])


async def test_secret_header_is_replaced_by_a_digest(world: World) -> None:
    text = (
        'proxy_set_header "Authorization" "Basic dXNlcjpwYXNz";\n'
        "proxy_set_header Authorization $http_authorization;\n"
        "add_header Set-Cookie a=b;\n"
    )
    write_revision(await world.add_pod("web", "web-1"), 1, text)
    output = (await world.config("default/web")).stdout
    assert "dXNlcjpwYXNz" not in output
    assert "a=b" not in output
    assert output.count("[redacted] (digest ") == 2
    assert "proxy_set_header Authorization $http_authorization;\n" in output


async def test_diff_shows_how_data_planes_differ_also_in_secrets(world: World) -> None:
    write_revision(await world.add_pod("web", "web-1"), 1, "old;\n", "k1")
    write_revision(await world.add_pod("web", "web-2"), 1, "new;\n", "k2")
    lines = (await world.config("default/web", "--diff")).stdout.splitlines()
    assert lines[:2] == [
        "--- default/web-1: gatehouse/http.conf",
        "+++ default/web-2: gatehouse/http.conf",
    ]
    assert {"-old;", "+new;"} <= {*lines}
    keys = [line for line in lines if "digest" in line]
    assert [line[:12] for line in keys] == ["-[redacted] ", "+[redacted] "]
    assert keys[0][1:] != keys[1][1:]


async def test_diff_of_equal_data_planes_shows_the_last_change(world: World) -> None:
    for name in ("web-1", "web-2"):
        directory = await world.add_pod("web", name)
        write_revision(directory, 1, "old;\n")
        write_revision(directory, 2, "new;\n")
    lines = (await world.config("default/web", "--diff")).stdout.splitlines()
    assert lines == [
        "--- default/web-1 (previous): gatehouse/http.conf",
        "+++ default/web-1: gatehouse/http.conf",
        "@@ -1 +1 @@",
        "-old;",
        "+new;",
    ]


async def test_diff_of_a_first_configuration_is_an_error(world: World) -> None:
    write_revision(await world.add_pod("web", "web-1"), 1, "first;\n")
    result = await world.config("default/web", "--diff")
    assert result.exit_code == 1
    assert "no previous configuration is stored" in str(result.exception)


async def test_diff_with_compares_data_planes_of_two_gateways(world: World) -> None:
    await world.add_gateway("canary")
    write_revision(await world.add_pod("web", "web-1"), 1, "old;\n")
    write_revision(await world.add_pod("canary", "canary-1"), 1, "old;\n")
    same = await world.config("default/web", "--diff-with", "default/canary")
    assert same.stdout == "no difference\n"


async def test_resources_of_an_envoy_in_a_cluster_are_printed(world: World) -> None:
    directory = await world.add_pod("web", "web-1", "envoy")
    store = ResourceStore(directory / "envoy.db")
    resource = sidecar_configs.resource("authenticator", "realm", {"users": b"a:passwd"})
    store.write([AcceptedChange((resource,), ())])
    output = (await world.config("default/web")).stdout
    store.close()
    assert output.startswith("Companion:\n  authenticator/realm:\n")
    assert "[redacted] (8 bytes, digest " in output


async def test_user_needs_permission_for_commands_in_pods(world: World) -> None:
    write_revision(await world.add_pod("web", "web-1"), 1, "listen 80;\n")
    result = await world.config("default/web", token=await world.token(GET))
    assert result.exit_code == 1
    assert 'default/web-1: pods "web-1" is forbidden: cannot get pods/exec' in result.stderr
    assert "permission to get and create pods/exec in namespace default" in result.stderr
    assert world.cluster.commands == []


async def test_permission_for_commands_in_pods_suffices(world: World) -> None:
    write_revision(await world.add_pod("web", "web-1"), 1, "listen 80;\n")
    result = await world.config("default/web", token=await world.token(GET, EXEC))
    assert "listen 80;" in result.stdout


async def test_unreadable_data_plane_does_not_hide_others(world: World) -> None:
    await world.add_pod("web", "web-1")
    write_revision(await world.add_pod("web", "web-2"), 1, "listen 80;\n")
    result = await world.config("default/web")
    assert result.exit_code == 0
    assert "listen 80;" in result.stdout
    assert "not read: default/web-1: gatehouse agent-config: " in result.stderr
    assert "has no configuration yet" in result.stderr


async def test_support_bundle_has_configurations_of_data_planes_in_a_cluster(
    world: World, tmp_path: Path
) -> None:
    write_revision(await world.add_pod("web", "web-1"), 1, "listen 80;\n")
    kubeconfig = world.cluster.kubeconfig(tmp_path / "kubeconfig")
    files = (await collect_support(kubeconfig, State(tmp_path / "none"))).files
    directory = "data-planes/default/web-1/config/gatehouse"
    assert files[f"{directory}/http.conf"] == "listen 80;\n"
    assert "[redacted]" in files[f"{directory}/tls/web.key"]
    assert KEY not in str(files)


OUTPUTS = {
    "older image": ("echo \"Error: No such command 'agent-config'.\" >&2; exit 2", "is older"),
    "no JSON": ("echo hello", "invalid output of gatehouse agent-config"),
    "other JSON": ("""echo '{"served": 1}'""", "invalid output of gatehouse agent-config"),
    "controls": ("""printf '\\033[2J' >&2; exit 1""", "\\x1b[2J"),
}


@pytest.mark.parametrize("case", OUTPUTS)
async def test_invalid_output_of_a_pod_is_an_error(world: World, tmp_path: Path, case: str) -> None:
    script, message = OUTPUTS[case]
    await world.add_pod("web", "web-1")
    _replace_command(world, tmp_path, script)
    result = await world.config("default/web")
    assert result.exit_code == 1
    assert message in result.stderr
    assert "\x1b" not in result.output


async def test_control_characters_of_a_pod_are_escaped(world: World, tmp_path: Path) -> None:
    await world.add_pod("web", "web-1")
    output = r'{"served": {"texts": {"a\u001b.conf": "b\u001b\tc\n"}}}'
    _replace_command(world, tmp_path, f"cat <<'EOF'\n{output}\nEOF")
    assert (await world.config("default/web")).stdout == "# a\\x1b.conf\nb\\x1b\tc\n\n"


def _replace_command(world: World, directory: Path, script: str) -> None:
    """Let the Pod have another `gatehouse`."""
    command = directory / "bin" / "gatehouse"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    world.cluster.variables["web-1"] = {"PATH": f"{command.parent}:/usr/bin:/bin"}
