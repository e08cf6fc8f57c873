"""Tenants whose Services become upstreams outside of the cluster, and authors of load balancers.

Through any field that the API server admits of an ExternalLoadBalancer, its Service, Node and
EndpointSlice. The controller compiles everything, NGINX of the external machine accepts its files,
and the requests to NGINX Plus contain only names of upstreams and addresses with a port.
"""

from __future__ import annotations

import copy
import os
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fakes import external_objects, hostile_objects, injected, nginx_check, processes
from fakes.load_balancer_world import World, balancer, endpoint, endpoints, node, port, service
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.backends.nginx_plus import generate_upstreams
from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.compiler.ir.load_balancing import LoadBalancer, Machines
from gatehouse.incremental.query import Key

Object = dict[str, Any]
SEED = 20
LONG_SEED = 21
ATTACKS = 80
LONG_ATTACKS = 3_000
NGINX_MEMORY_BYTES = 256 << 20
CONTROLLER_GROWTH_BYTES = 128 << 20
"""Limit of what all objects together add to this process, in which the compiler runs. 3,000 of
them added 10 MiB, most of it code and parsed expressions."""
NAME = re.compile(r"[A-Za-z0-9_.-]+")
ADDRESS = re.compile(r"([0-9.]+|\[[0-9a-f:]+\]):[0-9]{1,5}")
MACHINES = ("ExternalLoadBalancer", "nlk", "machines")
PLUS = ("ExternalLoadBalancer", "nlk", "edge")
VICTIM = ("ExternalLoadBalancer", "nlk", "victim")


def world() -> list[Object]:
    """Return load balancers of both types with a Service, a Node and endpoints."""
    stream = {"nginxinc.io/nlk-tcp": "stream", "nginxinc.io/nlk-udp": "stream"}
    ports = [port("nlk-web"), port("nlk-tcp", 30081), port("nlk-udp", 30082, protocol="UDP")]
    listeners = external_objects.listeners(8080)[:3]
    return [
        balancer("edge", hosts=[{"url": "http://10.1.1.4:9000/api"}]),
        balancer("machines", type="Nginx", hosts=[{"name": "m"}], listeners=listeners),
        service("ingress", *ports, annotations=stream),
        node("n1", "10.0.0.1", zone="a"),
        endpoints("ingress", endpoint("10.9.0.1", "n1", ready=True)),
    ]


def victims() -> list[Object]:
    """Return a load balancer of another tenant, whose Services are in another namespace."""
    return [
        balancer(
            "victim", hosts=[{"url": "http://10.1.1.5/"}], services={"namespaces": ["victim"]}
        ),
        service("victim", port("nlk-victim", 30090), namespace="victim"),
    ]


def of_victim(objects: list[Object]) -> LoadBalancer | Machines | None:
    with World(*objects, *victims()).engine.compile() as ask:
        return ask(front.compile_balancer, VICTIM).balancer


def attacks(number: int, seed: int) -> list[Object]:
    """Return the objects of the world, of which two and an annotation have hostile values."""
    choice = random.Random(f"{seed}/{number}")
    objects = world()
    annotations = objects[2]["metadata"]["annotations"]
    annotations[choice.choice(sorted(annotations))] = choice.choice(hostile_objects.TEXTS)
    for position in choice.sample(range(len(objects)), 2):
        for _ in range(hostile_objects.ATTEMPTS):
            changed = hostile_objects.change(objects[position], choice)
            if hostile_objects.is_admitted(copy.deepcopy(changed)):
                objects[position] = changed
                break
    return objects


def compiled(objects: list[Object]) -> Iterator[LoadBalancer | Machines]:
    attacked = World(*objects)
    with attacked.engine.compile() as ask:
        keys: list[Key] = [PLUS, MACHINES]
        for key in keys:
            result = ask(front.compile_balancer, key)
            front.balancer_status(result, {}, "", (), 1)
            if result.balancer is not None:
                yield result.balancer


@pytest.mark.process
def test_hostile_load_balancers_compile_to_accepted_configuration(tmp_path: Path) -> None:
    attack_all(ATTACKS, SEED, tmp_path)


@pytest.mark.long
@pytest.mark.process
@pytest.mark.timeout(1200)
def test_3000_hostile_load_balancers_compile_to_accepted_configuration(tmp_path: Path) -> None:
    attack_all(LONG_ATTACKS, LONG_SEED, tmp_path)


def attack_all(count: int, seed: int, tmp_path: Path) -> None:
    kinds = {LoadBalancer: 0, Machines: 0}
    before = processes.resident_bytes(os.getpid())
    for number in range(count):
        objects = attacks(number, seed)
        # Nodes serve all Services.
        nodes = [raw for raw in objects if raw["kind"] == "Node"]
        victim = of_victim(objects)
        assert victim is not None
        assert victim == of_victim(nodes), number
        for result in compiled(objects):
            kinds[type(result)] += 1
            if isinstance(result, LoadBalancer):
                check_requests(result)
            else:
                generator = nginx.NginxGenerator(nginx.NginxCapabilities.parse("1.31.3"))
                files = generator.generate(result.gateway).file_set
                directory = tmp_path / str(number)
                directory.mkdir()
                assert injected.in_nginx(files)[0] == [], number
                checked = nginx_check.check(files, directory)
                assert checked.accepted, (number, checked.output)
                assert checked.peak_bytes < NGINX_MEMORY_BYTES, number
                shutil.rmtree(directory)
        assert processes.resident_bytes(os.getpid()) - before < CONTROLLER_GROWTH_BYTES, number
    assert min(kinds.values()) > count // 4


def check_requests(result: LoadBalancer) -> None:
    for host in result.hosts:
        assert urlsplit(host.url).scheme in ("http", "https")
        assert not re.search(r"[\s\0]", host.url)
    for name, upstream in generate_upstreams(result).desired.upstreams.items():
        assert name.context in ("http", "stream")
        assert NAME.fullmatch(name.name), name
        for server in upstream.servers:
            assert ADDRESS.fullmatch(server.server), server
