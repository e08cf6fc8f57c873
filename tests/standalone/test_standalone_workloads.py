"""Users' Pods on one machine: which are run, with what, and in which network."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gatehouse.standalone.node import images
from gatehouse.standalone.node import pod_networks as wires
from gatehouse.standalone.node.pod_networks import NetworkError, PodNetworks


def pod(*names: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "image": name} for name in names]}}


ECHO = images.Image(("/bin/echo", "hello"))
KNOWN = {"example.com/echo": ECHO, "example.com/exact:v2": ECHO}


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("example.com/echo",), True),
        (("example.com/echo:v1",), True),
        (("example.com/echo@sha256:0123",), True),
        (("example.com/exact:v2",), True),
        (("example.com/exact:v3",), False),
        (("example.com:5000/echo",), False),
        (("example.com/echo", "example.com/echo"), False),
        ((), False),
    ],
)
def test_an_image_is_known_by_its_name(names: tuple[str, ...], found: bool) -> None:
    assert (images.find(KNOWN, pod(*names)) is not None) is found


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({}, ["/bin/echo", "hello"]),
        ({"args": ["-n"]}, ["/bin/echo", "hello", "-n"]),
        ({"command": ["sh"], "args": ["-c"]}, ["sh", "-c"]),
    ],
)
def test_a_containers_command_takes_the_place_of_the_images(
    container: dict[str, Any], words: list[str]
) -> None:
    assert images.command_line(ECHO, container) == words


def test_a_pod_with_more_than_one_container_is_not_known() -> None:
    several = pod("example.com/echo")
    several["spec"]["initContainers"] = [{"name": "first", "image": "example.com/echo"}]
    assert images.find(KNOWN, several) is None


def test_a_file_of_images_is_read_and_errors_name_it(tmp_path: Path) -> None:
    file = tmp_path / "images.yaml"
    file.write_text("example.com/echo:\n  command: [/bin/echo, hello]\n")
    assert images.load(file) == {"example.com/echo": ECHO}
    file.write_text("example.com/echo: {command: 3}\n")
    with pytest.raises(images.ImagesError, match=r"images\.yaml: Expected `array`"):
        images.load(file)
    with pytest.raises(images.ImagesError, match="No such file"):
        images.load(tmp_path / "none")


def test_addresses_are_stable_free_and_run_out() -> None:
    networks = PodNetworks("10.9.8.0/29")
    first = networks.choose("a", ())
    assert first == networks.choose("a", ())
    taken: list[str] = []
    for number in range(5):
        taken.append(networks.choose(str(number), taken))
    assert sorted(taken) == [f"10.9.8.{host}" for host in range(2, 7)]
    with pytest.raises(NetworkError, match=r"no free address in 10\.9\.8\.0/29"):
        networks.choose("more", taken)


def ip(*words: str) -> str:
    return subprocess.run(("ip", *words), check=True, capture_output=True, text=True).stdout


def present(networks: PodNetworks, uid: str) -> bool:
    return Path(f"/run/netns/{networks.name(uid)}").exists()


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and ip")
async def test_a_network_is_made_once_and_leaves_nothing_behind() -> None:
    networks = PodNetworks("10.9.7.0/24")
    address = networks.choose("uid", ())
    try:
        await networks.create("uid", address)
        await networks.create("uid", address)
        assert present(networks, "uid")
        # Another node, after a crash, finds what is nobody's any more.
        again = PodNetworks("10.9.7.0/24")
        await again.create("other", again.choose("other", {address}))
        await again.retain(["uid"])
        assert not present(again, "other")
        assert present(again, "uid")
    finally:
        await networks.remove("uid")
        await networks.close()
    assert not present(networks, "uid")


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and ip")
async def test_what_a_killed_node_left_half_made_is_made_whole() -> None:
    networks = PodNetworks("10.9.5.0/24")
    name, bridge = networks.name("uid"), networks.bridge
    address = networks.choose("uid", ())
    ip("link", "add", bridge, "type", "bridge")
    ip("netns", "add", name)
    try:
        assert await networks.current_address("uid") == ""
        await networks.create("uid", address)
        assert await networks.current_address("uid") == address
        assert "10.9.5.1/24" in ip("addr", "show", bridge)
    finally:
        await networks.remove("uid")
        await networks.close()


def test_capabilities_that_lack_are_named() -> None:
    assert wires._missing_capabilities("Name:\tx\nCapEff:\t000001ffffffffff\n") == []
    assert wires._missing_capabilities("CapEff:\t0000000000001000\n") == ["CAP_SYS_ADMIN"]
    assert wires._missing_capabilities("") == ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]
