"""File sets that rely on a main file of the data plane, as those of NGINX Gateway Fabric do."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from fakes.agent_control_plane import ControlPlane, answering
from fakes.loopback import free_port
from gatehouse.agent.nginx import existing_main, main
from gatehouse.agent.nginx.file_overview import Overviews
from gatehouse.agent.nginx.manifests import unmanaged_path
from gatehouse.agent.nginx.upstreams import only_endpoints_differ
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.wire.mpi.v1 import files_pb2

PATHS = {"conf.d/http.conf", "secrets/a.pem", "main-includes/main.conf"}
HTTP = ['proxy_temp_path "/run/proxy";', "server { listen unix:/run/v.sock; }"]

in_revision = partial(existing_main.resolve_in_revision, paths=PATHS)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("/etc/nginx/conf.d/http.conf", "conf.d/http.conf"),
        ("/etc/nginx/conf.d/*.conf", "conf.d/*.conf"),
        ("/etc/nginx/*.conf", "/etc/nginx/*.conf"),
        ("/etc/nginx/stream-conf.d/*.conf", "/etc/nginx/stream-conf.d/*.conf"),
        ("/etc/nginx/mime.types", "/etc/nginx/mime.types"),
        ("/srv/etc/nginx/conf.d/http.conf", "/srv/etc/nginx/conf.d/http.conf"),
        ("conf.d/http.conf", "conf.d/http.conf"),
    ],
)
def test_path_is_relative_to_revision_if_a_file_of_the_set_matches(
    word: str, expected: str
) -> None:
    assert in_revision(word) == expected


def test_paths_are_replaced_as_whole_words_and_not_in_comments() -> None:
    path, other = "/etc/nginx/secrets/a.pem", "secrets/a.pem"
    text = (
        f'# {path}\nssl_certificate {path}; ssl_certificate_key "{path}";\n'
        f"return 200 'see {path} \\' {path}'; x ${{a}}{path} a\\;{path};"
    )
    assert existing_main.replace_paths(text, in_revision) == (
        f'# {path}\nssl_certificate {other}; ssl_certificate_key "{other}";\n'
        f"return 200 'see {path} \\' {path}'; x ${{a}}{path} a\\;{path};"
    )


@pytest.mark.parametrize("text", ["", "a", 'a "b', "a 'b;\n}", "}}{", "a\\", "# only", "{;}"])
def test_malformed_main_file_stays_as_it_is_for_nginx_to_reject(text: str) -> None:
    adapted = existing_main.adapt_main_file(text, [], [], lambda word: word)
    assert adapted == f"{text}\nhttp {{\n}}\n"


def test_process_settings_of_main_file_are_those_of_the_agent() -> None:
    text = (
        "daemon on; user www; pid /run/nginx.pid;\nerror_log stderr info;\n"
        "events { worker_connections 9; }\n"
        "http { proxy_temp_path /var/x; include mime.types; server { pid_like on; } }\n"
    )
    resolve = partial(
        existing_main.resolve_in_main_file,
        paths=PATHS,
        exists=lambda path: path == "/etc/nginx/mime.types",
    )
    adapted = existing_main.adapt_main_file(text, ["pid /own.pid;", "user root;"], HTTP, resolve)
    assert adapted.splitlines() == [
        "pid /own.pid;",
        "user root;",
        "",
        "error_log stderr info;",
        "events { worker_connections 9; }",
        "http {",
        '    proxy_temp_path "/run/proxy";',
        "    server { listen unix:/run/v.sock; }",
        " include /etc/nginx/mime.types; server { pid_like on; } }",
    ]


def test_unread_files_are_those_not_dumped_by_nginx() -> None:
    dump = "# configuration file /r/7/nginx.conf:\n\n# configuration file /r/7/conf.d/http.conf:\n"
    assert existing_main.unread_files(dump, "/r/7", PATHS) == ["main-includes/main.conf"]


def test_overview_has_unmanaged_files_of_the_directory_only() -> None:
    names = ("/etc/nginx/nginx.conf", "/etc/nginx/../passwd", "/srv/x", "/etc/nginx//a")
    files = [files_pb2.File(file_meta=files_pb2.FileMeta(name=n), unmanaged=True) for n in names]
    with_main = Overviews().read(files_pb2.FileOverview(files=files))
    assert with_main.unmanaged == ("nginx.conf",)
    without = Overviews().read(files_pb2.FileOverview(files=files[1:]))
    assert not with_main.same(without)
    assert not only_endpoints_differ(with_main, without)
    assert unmanaged_path("/etc/nginx/a/b") == "a/b"


@pytest.mark.process
async def test_file_that_own_main_file_does_not_include_is_rejected(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port, stop = free_port(), asyncio.Event()
    options = main.options_from_environment(control_plane.environment(tmp_path))
    stray = f"server {{ listen 127.0.0.1:{port}; return 200 stray; }}\n"
    async with asyncio.TaskGroup() as group:
        group.create_task(main.run_nginx_agent(options, stop))
        control_plane.server.publish("shop/web", FileSet([File.make("conf.d/http.conf", stray)]))
        report = await control_plane.until(lambda report: bool(report.error))
        assert "/etc/nginx/conf.d/http.conf: NGINX would not read it" in report.error
        assert not report.programmed
        await control_plane.programmed(answering(port, "one"))
        stop.set()
