"""Images of Gatehouse and of the cluster's own Pods, built once for each state of the sources."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cluster import layout, nodes
from cluster.archives import Image, write_archive
from fakes import image_roots
from gatehouse.agent.nginx import binary as nginx_binary

DEBIAN = layout.HOME / "debian"
LAYERS = layout.HOME / "layers"
COREDNS_IMAGE = "gatehouse.test/coredns:1"
ECHO_IMAGES = (
    "registry.k8s.io/gateway-api/echo-basic:v1.5.1",
    "registry.k8s.io/gateway-api/conformance/echo-basic:v0.1.0",
    "registry.k8s.io/gateway-api/conformance/echo-basic:v0.2.0",
)
"""Backend of the example, and of the conformance suite, whose manifests have two tags."""
NOT_IN_BASE = (
    *("./opt", "./src", "./proc/*", "./sys/*", "./var/cache/*", "./var/lib/apt/lists"),
    # Debian's slim images lack manuals and translations; only the stage `build` has python3-venv.
    *("./usr/share/doc", "./usr/share/man", "./usr/share/locale", "./usr/share/info"),
    *("./usr/share/python-wheels", "./usr/lib/python3.11/ensurepip"),
)
"""Files of the build that images lack."""
MAX_MIB = {"gatehouse/controller": 260, "gatehouse/nginx": 230, "gatehouse/envoy": 340}
"""Limit of the size of each image's uncompressed layers, in MiB."""
NGINX_USER = ("nginx:x:101:101:nginx:/nonexistent:/bin/false", "nginx:x:101:")
"""Lines of /etc/passwd and /etc/group, as the image of nginx.org has them."""


class Variant(NamedTuple):
    """An image of the Dockerfile."""

    repository: str
    extra: str
    user: str
    entrypoint: tuple[str, ...]


VARIANTS = (
    Variant("gatehouse/controller", "controller", "65532:65532", ("gatehouse",)),
    Variant("gatehouse/nginx", "agent-nginx", "101:101", ("gatehouse", "agent")),
    Variant(
        "gatehouse/envoy", "agent-envoy", "101:101", ("gatehouse", "agent", "--proxy", "envoy")
    ),
)


def build(tags: Mapping[str, Path]) -> Path:
    """Build all images, with Gatehouse's for each tag from its sources. Return their archive."""
    layout.IMAGES.mkdir(parents=True, exist_ok=True)
    LAYERS.mkdir(exist_ok=True)
    base = _base_layer()
    images = [
        Image(nodes.PAUSE_IMAGE, (base,), {"Entrypoint": ["/bin/sleep", "infinity"]}),
        _static("coredns", COREDNS_IMAGE, layout.BINARIES / "coredns"),
        *(_static("echo", name, layout.BINARIES / "echo-basic") for name in ECHO_IMAGES),
    ]
    for tag, sources in tags.items():
        for variant, layer in _layers(sources).items():
            images += _gatehouse(variant, tag, (base, layer))
    used = {layer for image in images for layer in image.layers}
    for old in set(LAYERS.glob("*.tar")) - used:
        old.unlink()
    archive = layout.IMAGES / "images.tar"
    write_archive(archive, images)
    return archive


def sizes() -> dict[str, float]:
    """Return the size of the checkout's images in MiB, uncompressed, by repository."""
    layers = _layers(layout.ROOT)
    base = _base_layer().stat().st_size
    return {
        variant.repository: (base + layer.stat().st_size) / 2**20
        for variant, layer in layers.items()
    }


def _layers(sources: Path) -> Mapping[Variant, Path]:
    """Return the layer of each image of these sources, built if they are new."""
    digest = _digest(sources)
    layers = {variant: LAYERS / f"{variant.extra}-{digest}.tar" for variant in VARIANTS}
    missing = {variant: layer for variant, layer in layers.items() if not layer.exists()}
    if missing:
        image_roots.copy_sources(DEBIAN, sources)
    for variant, layer in missing.items():
        _install(variant.extra, layer)
    return layers


def load(archive: Path, enter: Any) -> None:
    """Import images into the containerd of each node; ``enter`` gives a command of the cluster."""
    words = ("-n", "k8s.io", "images", "import", str(archive))
    imports = [
        subprocess.Popen(enter("ctr", "-a", nodes.socket(node), *words), stdout=subprocess.DEVNULL)
        for node in layout.NODES
    ]
    results = [process.wait() for process in imports]
    assert not any(results), results


def _base_layer() -> Path:
    layer = LAYERS / "debian.tar"
    if not layer.exists():
        shutil.rmtree(DEBIAN, ignore_errors=True)
        image_roots.create_debian(DEBIAN)
        _tar(layer, DEBIAN, ".", exclude=NOT_IN_BASE)
    return layer


def _digest(sources: Path) -> str:
    """Return a digest of everything that `copy_sources` copies, except documents."""
    names = (
        "pyproject.toml",
        "hatch_build.py",
        "requirements",
        "proto",
        "packages/kube-base",
        "src",
        "images",
    )
    digest = hashlib.sha256()
    for name in names:
        path = sources / name
        for file in sorted(path.rglob("*")) if path.is_dir() else (path,):
            if file.is_file() and not {"__pycache__", "wire"} & set(file.parts):
                digest.update(str(file.relative_to(sources)).encode() + b"\0")
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _install(extra: str, layer: Path) -> None:
    """Install an extra and write its layer: its directory, and for NGINX the proxy, too."""
    root = image_roots.install(DEBIAN, extra)
    content = LAYERS / extra
    shutil.rmtree(content, ignore_errors=True)
    shutil.copytree(DEBIAN / root.directory[1:], content / root.directory[1:], symlinks=True)
    if extra == "agent-nginx":
        _add_nginx(content)
    _tar(layer, content, ".")
    shutil.rmtree(content)


def _add_nginx(content: Path) -> None:
    for directory in ("usr/sbin", "etc/nginx", "var/cache/nginx"):
        (content / directory).mkdir(parents=True)
    shutil.copy(nginx_binary.find_nginx_binary(None), content / "usr/sbin/nginx")
    shutil.chown(content / "var/cache/nginx", 101, 101)
    for name, line in zip(("passwd", "group"), NGINX_USER, strict=True):
        text = (DEBIAN / "etc" / name).read_text()
        (content / "etc" / name).write_text(f"{text}{line}\n")


def _gatehouse(variant: Variant, tag: str, layers: tuple[Path, ...]) -> list[Image]:
    """Return an image under the default name of the chart, and under that of older charts."""
    directory = image_roots.DIRECTORIES[variant.extra]
    command, *words = variant.entrypoint
    config = {
        "User": variant.user,
        "Entrypoint": [f"{directory}/bin/{command}", *words],
        "Env": [
            f"PATH={directory}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONDONTWRITEBYTECODE=1",
        ],
    }
    registries = ("localhost", "docker.io")
    return [Image(f"{name}/{variant.repository}:{tag}", layers, config) for name in registries]


def _static(name: str, image: str, binary: Path) -> Image:
    """Return an image that has one static program only."""
    layer = LAYERS / f"{name}.tar"
    _tar(layer, binary.parent, binary.name)
    return Image(image, (layer,), {"Entrypoint": [f"/{binary.name}"], "User": "65532:65532"})


def _tar(path: Path, directory: Path, *names: str, exclude: Iterable[str] = ()) -> None:
    """Pack files with their owners and modes."""
    options = [f"--exclude={pattern}" for pattern in exclude]
    staged = path.with_suffix(".new")
    command = ["tar", "--numeric-owner", "-C", str(directory), *options, "-cf", str(staged)]
    subprocess.run([*command, *names], check=True)
    staged.rename(path)
