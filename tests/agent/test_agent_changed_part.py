"""A change of virtual hosts or upstreams: what changed is tested, the reload finds the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fakes.agent_control_plane import GATEWAY, ControlPlane
from fakes.loopback import free_port
from fakes.nginx_agent import get, master_pid, running
from gatehouse.agent.nginx import main
from gatehouse.agent.nginx import master as masters
from gatehouse.agent.nginx.changed_part import WideChangeError, changed_part, write_part
from gatehouse.agent.nginx.manifests import Manifest, ManifestEntry
from gatehouse.agent.sidecars import NGINX_SIDECARS
from gatehouse.dataplane.endpoints import WeightedEndpoint
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.runtime import procfs

HTTP = "gatehouse/http.conf"
HOST = "gatehouse/servers/a.conf"
OTHER = "gatehouse/servers/b.conf"
UPSTREAM = "gatehouse/upstreams/up.conf"


def manifest(**digests: str) -> Manifest:
    paths = {"http": HTTP, "host": HOST, "other": OTHER, "upstream": UPSTREAM}
    paths |= {"endpoints": "gatehouse/endpoints/up.json", "key": "gatehouse/tls/a.key"}
    paths |= {spec.name: spec.file for spec in NGINX_SIDECARS}
    paths |= {"crt": "gatehouse/tls/b.crt", "stream": "gatehouse/streams/443.conf"}
    entries = (ManifestEntry(paths[name], text, 1, False) for name, text in digests.items())
    return Manifest("v", tuple(entries))


LOADED = manifest(http="1", host="1", other="1", upstream="1", endpoints="1", key="1")


@pytest.mark.parametrize(
    ("new", "part"),
    [
        (LOADED, set()),
        (manifest(http="1", host="2", other="1", upstream="1", endpoints="1", key="1"), {HOST}),
        (manifest(http="1", host="1", other="1", upstream="1", endpoints="2", key="1"), set()),
        (manifest(http="1", host="2", upstream="2", key="1"), {HOST, UPSTREAM}),
        (manifest(http="2", host="2", other="1", upstream="1", endpoints="1", key="1"), {HOST}),
        (manifest(host="2", other="1", upstream="1", endpoints="1", key="1", stream="1"), {HOST}),
        (manifest(http="1", host="2", other="1", upstream="1", key="1", crt="1"), {HOST}),
    ],
    ids=["nothing", "host", "endpoints", "removed", "shared", "removed-shared", "new-file"],
)
def test_part_is_what_changed(new: Manifest, part: set[str]) -> None:
    assert changed_part(LOADED, new) == frozenset(part)


KEY = "virtual hosts may read gatehouse/tls/a.key (1 such files changed)"


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (manifest(http="1", host="2", other="1", upstream="1", endpoints="1", key="2"), KEY),
        (manifest(http="1", host="2", other="1", upstream="1", endpoints="1"), KEY),
        (Manifest("v", LOADED.entries, nameserver=53), "the port of the name server changed"),
        (
            Manifest("v", LOADED.entries, unmanaged=("nginx.conf",)),
            "nginx.conf is that of the data plane",
        ),
    ],
    ids=["key", "removed-key", "name-server", "main-file"],
)
def test_reason_is_known_if_unchanged_hosts_must_be_tested(new: Manifest, reason: str) -> None:
    with pytest.raises(WideChangeError, match=re.escape(reason)):
        changed_part(LOADED, new)


@pytest.mark.parametrize("name", [spec.name for spec in NGINX_SIDECARS])
def test_files_of_sidecars_make_no_difference(name: str) -> None:
    before, after = manifest(host="1", **{name: "1"}), manifest(host="2", **{name: "2"})
    assert changed_part(before, after) == {HOST}
    assert changed_part(after, manifest(host="2")) == frozenset()


def test_seeds_make_no_difference() -> None:
    seeds = {"up": (WeightedEndpoint("10.0.0.1", 80),)}
    assert changed_part(LOADED, Manifest("v", LOADED.entries, seeds=seeds)) == frozenset()


def test_part_has_named_upstreams_and_shared_files(tmp_path: Path) -> None:
    texts = {
        "nginx.conf": "",
        HTTP: "",
        "gatehouse/tls/a.key": "",
        HOST: "proxy_pass http://up.1;",
        OTHER: "proxy_pass http://up-2;",
        "gatehouse/upstreams/up.1.conf": "",
        "gatehouse/upstreams/up-2.conf": "",
        "gatehouse/upstreams/up.conf": "",
    }
    revision = tmp_path / "revision"
    for path, text in texts.items():
        (revision / path).parent.mkdir(parents=True, exist_ok=True)
        (revision / path).write_text(text)
    part = tmp_path / "part"
    write_part(revision, [HOST], part)
    upstream = "gatehouse/upstreams/up.1.conf"
    files = [f"include {revision / path};\n" for path in (HOST, upstream)]
    assert (part / "gatehouse/servers/part.conf").read_text() == "".join(files)
    for path in ("nginx.conf", HTTP, "gatehouse/tls/a.key"):
        assert (part / path).read_text() == texts[path]


@pytest.mark.parametrize("name", ["a*.conf", "[a].conf", "a b.conf", "a;b.conf", 'a".conf'])
def test_path_that_may_be_a_pattern_is_not_tested_by_itself(tmp_path: Path, name: str) -> None:
    revision = tmp_path / "revision"
    (revision / "gatehouse/servers").mkdir(parents=True)
    (revision / "gatehouse/servers" / name).write_text("")
    with pytest.raises(WideChangeError, match="may be a pattern"):
        write_part(revision, [f"gatehouse/servers/{name}"], tmp_path / "part")


def hosts(port: int, **texts: str) -> FileSet:
    """Return a file set in which each host answers with a text, or has its own directives."""
    files = [
        File.make(HTTP, "include gatehouse/upstreams/*.conf;\ninclude gatehouse/servers/*.conf;\n")
    ]
    for name, text in texts.items():
        if not text.endswith("\n"):
            text = f'    location / {{ return 200 "{text}"; }}\n'
        server = f"server {{\n    listen 127.0.0.1:{port};\n    server_name {name};\n{text}}}\n"
        files.append(File.make(f"gatehouse/servers/{name}.conf", server))
    return FileSet(files)


@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("    no_such_directive;\n", 'unknown directive "no_such_directive"'),
        ("    proxy_cache_path;\n", '"proxy_cache_path" directive is not allowed here'),
    ],
)
async def test_error_in_a_changed_host_is_reported_by_the_test(
    control_plane: ControlPlane, tmp_path: Path, text: str, error: str
) -> None:
    port = free_port()
    async with running(main.options_from_environment(control_plane.environment(tmp_path))):
        await control_plane.until(lambda report: bool(report.instances))
        good = hosts(port, a="a1", b="b1")
        await control_plane.programmed(good)
        workers = procfs.children(master_pid(tmp_path))
        control_plane.server.publish(GATEWAY, hosts(port, a="a1", b=text))
        report = await control_plane.until(lambda report: bool(report.error))
        assert f"{error} in gatehouse/servers/b.conf:4" in report.error
        assert report.instances[0].confirmed == good.version
        assert procfs.children(master_pid(tmp_path)) == workers, "NGINX was not reloaded"
        assert await get(port) == (200, "a1")


@pytest.mark.process
async def test_conflict_with_an_unchanged_host_is_found_by_the_reload(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port, other = free_port(), free_port()
    server = f"server {{\n    listen 127.0.0.1:{other};\n    return 200 a1;\n"
    zone = f"}}\nlimit_req_zone $uri zone=z:%s rate=1r/s;\n{server}"
    async with running(main.options_from_environment(control_plane.environment(tmp_path))):
        await control_plane.until(lambda report: bool(report.instances))
        good = hosts(port, a=zone % "1m", b="b1")
        await control_plane.programmed(good)
        control_plane.server.publish(GATEWAY, hosts(port, a=zone % "1m", b=zone % "2m"))
        report = await control_plane.until(lambda report: bool(report.error))
        assert 'shared memory zone "z" conflicts with already declared size' in report.error
        assert "in gatehouse/servers/b.conf:5" in report.error
        assert report.instances[0].confirmed == good.version
        current = (tmp_path / "root" / "current" / OTHER).read_text()
        assert "b1" in current, "the next master must not get the rejected file"
        await control_plane.programmed(hosts(port, a=zone % "1m", b="b2"))
        assert not (tmp_path / "root" / "test").exists()


@pytest.mark.process
async def test_reloads_leave_as_many_workers_as_before(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    environ = control_plane.environment(tmp_path) | {"GATEHOUSE_AGENT_NGINX_WORKERS": "4"}
    async with running(main.options_from_environment(environ)):
        await control_plane.until(lambda report: bool(report.instances))
        await control_plane.programmed(hosts(port, a="0"))
        master = master_pid(tmp_path)
        workers = len(procfs.children(master))
        for number in range(1, 21):
            before = procfs.children(master)
            await control_plane.programmed(hosts(port, a=str(number)))
            assert await get(port) == (200, str(number))
            accepting = set(filter(masters.is_worker, procfs.children(master)))
            assert len(accepting) == workers
            assert accepting.isdisjoint(before)
        assert "exited" not in (tmp_path / "run" / "error.log").read_text()
