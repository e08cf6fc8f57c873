"""Options, paths, and configuration on disk."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.agent.channel import Token
from gatehouse.agent.error_log import ErrorLog, emergency_messages
from gatehouse.agent.nginx import main_conf, paths
from gatehouse.agent.nginx.binary import (
    NginxBinary,
    NginxMissingError,
    find_nginx_binary,
    probe_nginx,
)
from gatehouse.agent.nginx.coalescing_queue import CoalescingQueue
from gatehouse.agent.nginx.file_overview import Overviews
from gatehouse.agent.nginx.manifests import Manifest, ManifestEntry, entry_of
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.agent.options import (
    KEYS,
    AgentOptionsError,
    load_options,
    options_from_environment,
)
from gatehouse.agent.run_directory import MAX_SOCKET_PATH_BYTES
from gatehouse.cli.agent import agent_command, option_name
from gatehouse.dataplane.file_set import base64_sha256
from gatehouse.transports.agents import main_file
from gatehouse.wire.mpi.v1 import files_pb2
from kube_base.runtime.private_files import UnsafePathError

REQUIRED = {
    "NGINX_AGENT_COMMAND_SERVER_HOST": "control.plane",
    "NGINX_AGENT_COMMAND_SERVER_PORT": "8443",
}


def entry(path: str, content: bytes, permissions: str = "0644") -> ManifestEntry:
    return entry_of(f"/etc/nginx/{path}", base64_sha256(content), len(content), permissions)


def stage(store: RevisionStore, version: str, files: dict[str, bytes]) -> int:
    entries = tuple(entry(path, content) for path, content in files.items())
    for missing in store.missing(entries):
        store.put(missing, files[missing.path])
    return store.stage(Manifest(version, entries), {"nginx.conf": f"# {version}\n"})


@pytest.fixture
def store(tmp_path: Path) -> RevisionStore:
    revisions = RevisionStore(tmp_path)
    revisions.prepare()
    return revisions


def test_flags_override_environment_and_environment_overrides_file(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("command: {server: {host: a, port: 1}}\nlog: {level: DEBUG}\nlabels: {x: y}\n")
    environ = {"NGINX_AGENT_COMMAND_SERVER_HOST": "b", "NGINX_AGENT_COMMAND_SERVER_PORT": "2"}
    options = load_options(environ, file=file, flags={"command.server.host": "c"})
    assert (options.server_host, options.server_port) == ("c", 2)
    assert (options.log_level, dict(options.labels)) == ("debug", {"x": "y"})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"NGINX_AGENT_COMMAND_SERVER_HOST": ""}, "command.server.host"),
        ({"NGINX_AGENT_COMMAND_SERVER_PORT": "70000"}, "command.server.port"),
        ({"NGINX_AGENT_COMMAND_AUTH_TOKENPATH": "/t"}, "command.tls.ca"),
        ({"NGINX_AGENT_COMMAND_AUTH_TOKEN": "t"}, "command.tls.ca"),
        (
            {"NGINX_AGENT_COMMAND_TLS_CERT": "/c"},
            "command.tls.cert: must be set together with command.tls.key",
        ),
        ({"NGINX_AGENT_COMMAND_TLS_SKIP_VERIFY": "true"}, "command.tls.skip_verify"),
        ({"NGINX_AGENT_COMMAND_TLS_SKIP_VERIFY": "maybe"}, "command.tls.skip_verify"),
        ({"NGINX_AGENT_COMMAND_SERVER_TYPE": "http"}, "command.server.type"),
        ({"NGINX_AGENT_FEATURES": "metrics"}, "features"),
        ({"NGINX_AGENT_ALLOWED_DIRECTORIES": "/etc/nginx,/"}, "allowed_directories"),
        ({"NGINX_AGENT_ALLOWED_DIRECTORIES": "etc/nginx"}, "allowed_directories"),
        ({"NGINX_AGENT_LOG_LEVEL": "loud"}, "log.level"),
        (
            {"GATEHOUSE_LOG_FORMAT": "xml"},
            "gatehouse.log_format: 'xml' must be auto, text, json or console",
        ),
        ({"NGINX_AGENT_LABELS": "a=b,c"}, "labels"),
        ({"GATEHOUSE_AGENT_WORKERS": "0"}, "gatehouse.workers"),
        ({"GATEHOUSE_AGENT_RUN_DIR": '/run/"; x'}, "gatehouse.run_dir"),
        ({"GATEHOUSE_AGENT_STATE_DIR": "/lib/$x"}, "gatehouse.state_dir"),
    ],
)
def test_invalid_option_is_named(change: dict[str, str], named: str) -> None:
    with pytest.raises(AgentOptionsError, match=named):
        options_from_environment(REQUIRED | change)


def test_nginx_agent_file_is_accepted_and_unsupported_keys_are_named(tmp_path: Path) -> None:
    file = tmp_path / "nginx-agent.conf"
    file.write_text(
        """
command:
  server: {host: control.svc, port: 443, type: grpc}
  auth: {tokenpath: /var/run/token}
  tls: {cert: /tls.crt, key: /tls.key, ca: /ca.crt, server_name: control, skip_verify: false}
labels: {owner-name: shop_web, owner-type: Deployment}
log: {level: warn, path: /var/log}
allowed_directories: [/etc/nginx/, /usr/share/nginx]
features: [configuration, certificates, metrics]
data_plane_config: {nginx: {treat_warnings_as_errors: true, reload_monitoring_period: 5s}}
collector: {log: {path: stdout}}
"""
    )
    options = load_options({}, file=file)
    assert (options.server_host, options.server_port) == ("control.svc", 443)
    assert options.token_path == Path("/var/run/token")
    assert (options.cert, options.key, options.ca) == (
        Path("/tls.crt"),
        Path("/tls.key"),
        Path("/ca.crt"),
    )
    assert dict(options.labels) == {"owner-name": "shop_web", "owner-type": "Deployment"}
    assert options.log_level == "warning"
    assert options.allowed_directories == ("/etc/nginx", "/usr/share/nginx")
    assert options.treat_warnings_as_errors
    assert options.ignored == (
        "log.path",
        "data_plane_config.nginx.reload_monitoring_period",
        "collector.log.path",
        "features.certificates",
        "features.metrics",
    )


def test_every_option_has_a_flag_and_an_environment_variable() -> None:
    flags = {parameter.name for parameter in agent_command.params}
    assert {option_name(key).replace("-", "_") for key in KEYS} | {"config"} == flags
    assert len(set(KEYS.values())) == len(KEYS)
    assert KEYS["command.tls.server_name"] == "NGINX_AGENT_COMMAND_TLS_SERVER_NAME"


def test_files_outside_allowed_directories_are_rejected() -> None:
    overview = files_pb2.FileOverview()
    for path in ("a/x", "b/y"):
        about = overview.files.add().file_meta
        about.name, about.hash, about.permissions = f"/etc/nginx/{path}", base64_sha256(b""), "0644"
    assert len(Overviews().read(overview).entries) == 2
    with pytest.raises(UnsafePathError, match=r"/etc/nginx/b/y: not in an allowed directory"):
        Overviews(("/etc/nginx/a", "/usr/share/nginx")).read(overview)


@pytest.mark.parametrize("log_format", ["", "auto", "text", "json", "console", "JSON"])
def test_supported_log_format_is_accepted(log_format: str) -> None:
    options = options_from_environment(REQUIRED | {"GATEHOUSE_LOG_FORMAT": log_format})
    assert options.log_format == log_format.lower()


@pytest.mark.parametrize("content", [b"", b" \n", b"two\nlines", "schl\u00fcssel".encode()])
def test_invalid_token_file_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(OSError, match="no valid token in the file"):
        Token(file).read()


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "/etc/nginx/nginx.conf",
        "/etc/nginx/../nginx/a/b",
        "/etc/nginx/gatehouse/../../b",
        "/etc/nginx//gatehouse/b",
        "/etc/nginxx/gatehouse/b",
        "gatehouse/b",
    ],
)
def test_file_outside_file_set_directories_is_rejected(name: str) -> None:
    with pytest.raises(UnsafePathError):
        entry_of(name, base64_sha256(b""), 0, "0644")


def test_content_with_wrong_hash_is_rejected(store: RevisionStore) -> None:
    requested = entry("gatehouse/a", b"right")
    with pytest.raises(UnsafePathError, match="gatehouse/a"):
        store.put(requested, b"wrong")
    assert store.missing([requested]) == [requested]


def test_revisions_share_contents_and_obsolete_contents_are_removed(
    store: RevisionStore, tmp_path: Path
) -> None:
    one = stage(store, "v1", {"gatehouse/a": b"a", "gatehouse/b": b"b"})
    store.activate(one)
    two = stage(store, "v2", {"gatehouse/a": b"a", "gatehouse/c": b"c"})
    shared = [store.directory(number) / "gatehouse/a" for number in (one, two)]
    assert shared[0].samefile(shared[1])
    assert store.current() == one
    store.activate(two)
    store.sweep({two})
    assert (store.current(), store.numbers()) == (two, [two])
    assert len(list((tmp_path / "objects").iterdir())) == 2
    assert (tmp_path / "current" / "gatehouse" / "c").read_bytes() == b"c"


def test_previous_revision_has_other_files(store: RevisionStore) -> None:
    """The agent applies a configuration a second time to remove seeds."""
    numbers = []
    for version in ("v1", "v2", "v2", "v2"):
        numbers.append(stage(store, version, {"gatehouse/a": version.encode()}))
        store.activate(numbers[-1])
        store.keep(numbers[-1])
    assert store.numbers() == [numbers[0], numbers[-1]]


def contents(directory: Path) -> dict[str, object]:
    """Return the content of a revision, without the version in its manifest."""
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mode)
        for path in directory.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }


PATHS = ("gatehouse/a", "gatehouse/b/c", "gatehouse/secrets/s", "gatehouse/tls/k", "other/d")
FILES = st.dictionaries(st.sampled_from(PATHS), st.sampled_from([b"1", b"2", b"3"]))


@settings(deadline=None)
@given(st.lists(st.tuples(FILES, st.sampled_from(["served", "refused", "amended"])), max_size=8))
def test_revision_built_from_spare_equals_new_revision(
    history: list[tuple[dict[str, bytes], str]],
) -> None:
    with tempfile.TemporaryDirectory() as root, tempfile.TemporaryDirectory() as apart:
        store, oracle = RevisionStore(Path(root)), RevisionStore(Path(apart))
        store.prepare()
        for turn, (given_files, outcome) in enumerate(history):
            # A content has one mode, wherever it is.
            files = {path: path.encode() + content for path, content in given_files.items()}
            oracle.prepare()
            number, whole = (_made(target, turn, files) for target in (store, oracle))
            carried = {
                path
                for path in contents(store.directory(number)).keys() - files.keys()
                if path.startswith("gatehouse/secrets/")
            }
            stored = contents(store.directory(number))
            assert {path: body for path, body in stored.items() if path not in carried} == contents(
                oracle.directory(whole)
            )
            shutil.rmtree(oracle.directory(whole))
            if outcome == "refused":
                store.remove(number)
                continue
            if outcome == "amended" and "other/d" in files:
                changed = {**files, "other/d": b"4"}
                store.put(entry("other/d", b"4"), b"4")
                store.update_in_place(number, Manifest(f"{turn} amended", _entries(changed)))
            store.activate(number)
            store.keep(number)
            named = {
                manifest_entry.digest
                for n in store.numbers()
                for manifest_entry in store.manifest(n).entries
            }
            assert {path.name for path in (Path(root) / "objects").iterdir()} == named
            spare = [path for path in (Path(root) / "spare").rglob("*") if path.is_file()]
            assert not [path for path in spare if path.name in ("k", "s")]


def _entries(files: dict[str, bytes]) -> tuple[ManifestEntry, ...]:
    return tuple(
        entry(
            path, content, "0600" if path in ("gatehouse/tls/k", "gatehouse/secrets/s") else "0644"
        )
        for path, content in files.items()
    )


def _made(store: RevisionStore, turn: int, files: dict[str, bytes]) -> int:
    entries = _entries(files)
    for missing in store.missing(entries):
        store.put(missing, files[missing.path])
    own: dict[str, str | Path] = {
        "nginx.conf": f"# {turn}\n",
        "seeds/same/servers.conf": "seed\n",
        f"seeds/{turn % 3}/servers.conf": f"seed {turn % 2}\n",
    }
    return store.stage(Manifest(str(turn), entries), own)


def test_revision_with_one_changed_file_writes_one_file(
    store: RevisionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"gatehouse/{number}": b"same" for number in range(1000)}
    for version in ("one", "two"):
        number = stage(store, version, files | {"gatehouse/x": version.encode()})
        store.activate(number)
        store.keep(number)
    links, link = list[Any](), os.link

    def noted(source: Path, target: Path) -> None:
        links.append(target)
        link(source, target)

    store.keep(stage(store, "three", files | {"gatehouse/x": b"three"}))
    store.activate(store.numbers()[-1])
    store.keep(store.numbers()[-1])
    monkeypatch.setattr("os.link", noted)
    stage(store, "four", files | {"gatehouse/x": b"four"})
    assert len(links) == 1


def test_unchanged_seeds_of_the_agent_are_not_written_again(store: RevisionStore) -> None:
    """A file system creates a file much more slowly than a link to one."""
    nodes = []
    for number in range(4):
        seeds: dict[str, str | Path] = {f"seeds/{name}/s.conf": "seed" for name in range(number)}
        staged = store.stage(Manifest(str(number), ()), seeds)
        store.activate(staged)
        store.keep(staged)
        directory = store.directory(staged) / "seeds"
        nodes.append({path.parent.name: path.stat().st_ino for path in directory.rglob("*.conf")})
    assert [len(inodes) for inodes in nodes] == [0, 1, 2, 3]
    assert all(old.items() <= new.items() for old, new in itertools.pairwise(nodes))


def test_directories_of_former_seeds_are_removed(store: RevisionStore) -> None:
    for number in range(4):
        staged = store.stage(Manifest(str(number), ()), {f"seeds/{number}/s.conf": "seed"})
        store.activate(staged)
        store.keep(staged)
        assert [path.name for path in (store.directory(staged) / "seeds").iterdir()] == [
            str(number)
        ]
    staged = store.stage(Manifest("4", ()), {})
    assert [path.name for path in store.directory(staged).iterdir()] == ["manifest.json"]


def test_incomplete_files_of_interrupted_run_are_removed(
    store: RevisionStore, tmp_path: Path
) -> None:
    number = stage(store, "v1", {"gatehouse/a": b"a"})
    store.activate(number)
    (tmp_path / "generations" / ".9").mkdir()
    half = tmp_path / "objects" / f".{'0' * 64}"
    half.write_bytes(b"")
    again = RevisionStore(tmp_path)
    again.prepare()
    assert (again.current(), again.numbers()) == (number, [number])
    assert again.manifest(number).version == "v1"
    assert not half.exists()
    assert not (tmp_path / "generations" / ".9").exists()


def test_keys_are_readable_only_by_owner(store: RevisionStore) -> None:
    key = entry("gatehouse/k", b"k", "0600")
    store.put(key, b"k")
    number = store.stage(Manifest("v", (key,)), {})
    assert (store.directory(number) / "gatehouse/k").stat().st_mode & 0o777 == 0o600


def test_run_directory_too_long_for_sockets_gets_stable_substitute(tmp_path: Path) -> None:
    long = tmp_path / ("x" * MAX_SOCKET_PATH_BYTES)
    assert paths.nginx_paths(tmp_path, long) == paths.nginx_paths(tmp_path, long)
    assert len(bytes(paths.nginx_paths(tmp_path, long).version_socket)) <= MAX_SOCKET_PATH_BYTES
    assert paths.nginx_paths(tmp_path, Path("/run/g")).run == Path("/run/g")


@pytest.mark.parametrize(("version", "expected"), [("1.22.1", False), ("1.27.4", True)])
def test_keepalive_min_timeout_is_set_only_when_supported(version: str, expected: bool) -> None:
    binary = NginxBinary(Path("/nginx"), version, "")
    text = main_conf.render_main_conf(
        binary, paths.nginx_paths(Path("/r"), Path("/run/g")), "v=", [], shutdown=60
    )
    assert ("keepalive_min_timeout" in text) is expected
    assert "include" not in text


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], "events { worker_connections 4096; }"),
        (["gatehouse/events.conf"], "events { include gatehouse/events.conf; }"),
    ],
)
def test_events_of_file_set_replace_the_default(files: list[str], expected: str) -> None:
    binary = NginxBinary(Path("/nginx"), "1.31.3", "")
    at = paths.nginx_paths(Path("/r"), Path("/run/g"))
    for text in (
        main_conf.render_main_conf(binary, at, "v=", files, shutdown=60),
        main_file.render_main_file("nginx/1.31.3", files),
    ):
        assert expected in text.splitlines()


def test_version_with_special_characters_is_rejected() -> None:
    binary = NginxBinary(Path("/nginx"), "1.31.3", "")
    for version in ('"; }', "$pid", "a b", "a\nb", "\\"):
        with pytest.raises(ValueError, match="version"):
            main_conf.render_main_conf(
                binary, paths.nginx_paths(Path("/r"), Path("/run/g")), version, [], shutdown=60
            )


def test_nginx_is_found_and_other_binaries_are_rejected() -> None:
    assert probe_nginx(find_nginx_binary(None)).numbers >= (1, 27, 4)
    with pytest.raises(NginxMissingError, match="/no/such"):
        find_nginx_binary("/no/such/nginx")


def test_error_log_is_read_in_complete_lines_across_truncation(tmp_path: Path) -> None:
    path = tmp_path / "error.log"
    log = ErrorLog(path)
    assert (log.position(), log.lines(0)) == (0, ([], 0))
    path.write_text("2026/11/20 22:00:00 [emerg] 7#7: bind() failed\nhalf")
    lines, position = log.lines(0)
    assert emergency_messages(lines) == ["bind() failed"]
    path.write_text("new\n")
    assert log.lines(position) == (["new"], 4)


def test_queue_keeps_only_newest_waiting_request() -> None:
    box: CoalescingQueue[str] = CoalescingQueue()
    assert box.put("a") is None
    assert box.start_next() == "a"
    assert box.put("b") is None
    assert box.put("c") == "b"
    assert box.start_next() is None
    box.finish()
    assert box.start_next() == "c"


def test_runtime_files_are_kept_for_one_further_revision(store: RevisionStore) -> None:
    def held(number: int) -> set[str]:
        return {path.name for path in (store.directory(number) / "gatehouse/secrets").iterdir()}

    store.activate(stage(store, "v1", {"gatehouse/secrets/a": b"a"}))
    second = stage(store, "v2", {"gatehouse/secrets/b": b"b"})
    assert held(second) == {"a", "b"}
    assert [entry.path for entry in store.manifest(second).entries] == ["gatehouse/secrets/b"]
    store.activate(second)
    assert held(stage(store, "v3", {"gatehouse/secrets/c": b"c"})) == {"b", "c"}
