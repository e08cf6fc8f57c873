"""Image references of chart and Dockerfile: one version each, with a digest where possible."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

import gatehouse
from gatehouse.controller.options import IMAGES

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
DOCKERFILE = (ROOT / "images" / "Dockerfile").read_text(encoding="utf-8")

OF_ONE_VERSION = re.compile(r"[a-z0-9./:-]+:v?\d+\.\d+(\.\d+)?[a-z0-9.-]*(@sha256:[0-9a-f]{64})?")


def images(text: str) -> set[str]:
    return set(re.findall(r"(?:image: |--(?:envoy|nginx)-image=)(\S+)", text))


def test_base_images_are_pinned_to_one_version() -> None:
    bases = dict(re.findall(r"^ARG (\w+)=(\S+)$", DOCKERFILE, re.MULTILINE))
    assert bases
    for base in bases.values():
        assert OF_ONE_VERSION.fullmatch(base), base


def test_every_build_stage_uses_a_named_base_or_another_stage() -> None:
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)
    assert len(stages) == len(re.findall(r"^FROM ", DOCKERFILE, re.MULTILINE))
    named = {name for _, name in stages} | {"${DEBIAN}", "${NGINX}"}
    assert {base for base, _ in stages} <= named
    assert not re.search(r"^# *syntax=", DOCKERFILE, re.MULTILINE), "the builder would float"


def test_chart_images_are_pinned_to_one_version() -> None:
    result = images((HERE / "expected" / "defaults.yaml").read_text(encoding="utf-8"))
    assert len(result) == 3
    for image in result:
        assert OF_ONE_VERSION.fullmatch(image), image


def test_digest_applies_to_every_container_and_data_plane() -> None:
    text = (HERE / "expected" / "images-by-digest.yaml").read_text(encoding="utf-8")
    assert len(images(text)) == 3
    assert all("@sha256:" in image for image in images(text))


def test_default_images_have_the_version_of_the_controller() -> None:
    chart = yaml.load((ROOT / "charts" / "gatehouse" / "Chart.yaml").read_text(), yaml.CSafeLoader)
    assert chart["appVersion"] == gatehouse.__version__
    for image in IMAGES.values():
        assert image.endswith(f":{gatehouse.__version__}")


def test_default_images_are_in_no_public_registry() -> None:
    values = yaml.load(
        (ROOT / "charts" / "gatehouse" / "values.yaml").read_text(), yaml.CSafeLoader
    )
    names = [values["image"], values["dataPlanes"]["nginx"], values["dataPlanes"]["envoy"]]
    repositories = [name["repository"] for name in names]
    assert all(name.startswith("localhost/") for name in (*repositories, *IMAGES.values()))


def test_page_builds_images_before_it_installs_them() -> None:
    page = (ROOT / "docs" / "getting-started" / "install.md").read_text()
    order = ("docker build", "docker push", "helm install", "kubectl apply -f examples/")
    places = [page.index(command) for command in order]
    assert places == sorted(places)
    install = page[places[2] : places[3]]
    for option in ("image", "dataPlanes.nginx", "dataPlanes.envoy"):
        assert f"{option}.repository=" in install
