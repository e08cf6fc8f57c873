"""Generated files of a node proxy: configurations, manifests, zones; and rejected options."""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
from pathlib import Path

import dns.rdatatype
import dns.zone
import msgspec
import pytest
import yaml
from click.testing import CliRunner

from fakes.loopback import free_port
from gatehouse.cli.errors import CLIError
from gatehouse.cli.main import command
from gatehouse.nodeproxy import coredns, haproxy, nginx, proxies, socket_stats
from gatehouse.nodeproxy.options import (
    NodeProxyOptions,
    NodeProxyOptionsError,
    parse_addresses,
    parse_gateway,
)
from gatehouse.runtime import envoy_server

FOUR, SIX = "10.1.2.3", "fd00::3"


def options(gateway: str = "192.0.2.2:8443", **more: object) -> NodeProxyOptions:
    return NodeProxyOptions(
        addresses=parse_addresses((FOUR, SIX)),
        gateway=parse_gateway(gateway),
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--address", "10.1.2"], "--address: '10.1.2' is not an IP address"),
        (["--address", "127.0.0.1"], "--address: 127.0.0.1 cannot be"),
        (["--address", "fe80::1"], "--address: fe80::1 cannot be"),
        (["--address", FOUR, "--address", "10.1.2.4"], "at most one of IPv4 and one of IPv6"),
        (["--gateway", "api.example.com"], "--gateway: 'api.example.com' must be host:port"),
        (["--gateway", "api.example.com:0"], "must be host:port"),
        (["--gateway", "api_1;evil:8443"], "must be a DNS name or an IP address"),
        (["--gateway", 'a"; } http { :8443'], "must be a DNS name or an IP address"),
        (["--gateway", "fd00::9:8443"], "write the IPv6 address in brackets: [fd00::9]:8443"),
        (["--gateway", f"{FOUR}:8443"], "--gateway: must not be an advertised address"),
        (["--port", "70000"], "--port: 70000 must be between"),
        (["--interface", "lo"], "--interface: lo is not supported"),
        (["--interface", "a b"], "--interface: 'a b' is not an interface name"),
        (
            ["--interface", "sixteen-letters-"],
            "--interface: 'sixteen-letters-' is not an interface name",
        ),
        (["--check-interval", "0"], "--check-interval: 0.0 must be above 0"),
        (["--max-connections", "0"], "--max-connections: 0 must be at least 1"),
        (["--transport", "connect", "--proxy", "nginx"], "--proxy: nginx cannot send CONNECT"),
        (["--proxy", "envoy"], "--proxy: envoy is supported only with --transport connect"),
        (["--destination", "a"], "--destination: needs --transport connect"),
        (["--transport", "connect", "--destination", 'a"\r\nX: b'], "must have only letters"),
    ],
)
def test_invalid_option_is_named(flags: list[str], message: str) -> None:
    arguments = ["node-proxy", "setup", *flags]
    if "--address" not in flags:
        arguments += ["--address", FOUR]
    if "--gateway" not in flags:
        arguments += ["--gateway", "192.0.2.2:8443"]
    result = CliRunner().invoke(command, arguments)
    assert isinstance(result.exception, CLIError), result.output
    assert message in str(result.exception)


def test_gateway_name_is_resolved_by_node_name_servers() -> None:
    agent_options = options("api.example.com:8443")
    servers = nginx.nameservers("search x\nnameserver 10.0.0.2\nnameserver fd00::53\nnameserver\n")
    text = nginx.nginx_configuration(agent_options, servers)
    assert "resolver 10.0.0.2 [fd00::53];" in text
    assert "proxy_pass $gateway;" in text
    with pytest.raises(nginx.NoNameServerError):
        nginx.nginx_configuration(agent_options, [])
    assert "server gateway api.example.com:8443 send-proxy-v2 resolvers node" in (
        haproxy.haproxy_configuration(agent_options, "/run/figures.sock")
    )


@pytest.mark.parametrize("gateway", ["192.0.2.2:8443", "[2001:db8::2]:8443", "localhost:8443"])
@pytest.mark.parametrize("proxy", ["nginx", "haproxy"])
def test_proxies_accept_generated_configurations(
    tmp_path: Path, proxy: str, gateway: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if proxy == "haproxy" and not shutil.which("haproxy"):
        pytest.skip("no haproxy")
    resolv = tmp_path / "resolv.conf"
    resolv.write_text("nameserver 127.0.0.1\n")
    monkeypatch.setattr(proxies, "RESOLV_CONF", resolv)
    # The proxies' tests bind, so the addresses must exist on this machine.
    here = (ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"))
    agent_options = options(gateway, proxy=proxy, directory=tmp_path, port=free_port())
    result = proxies.choose(msgspec.structs.replace(agent_options, addresses=here))
    (tmp_path / result.file).write_text(result.text)
    done = subprocess.run(result.check(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_packaged_envoy_opens_tunnels_when_path_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = proxies.choose(options(transport="connect", directory=tmp_path))
    assert (result.kind, result.path.name) == ("envoy", "envoy")
    (tmp_path / result.file).write_text(result.text)
    done = subprocess.run(result.check(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    monkeypatch.setattr(envoy_server, "envoy_executable", lambda: None)
    with pytest.raises(NodeProxyOptionsError, match="connect needs envoy"):
        proxies.choose(options(transport="connect", directory=tmp_path))


def test_zone_has_only_one_name() -> None:
    zone = dns.zone.from_text(coredns.service_zone(parse_addresses((FOUR, SIX))), relativize=False)
    assert str(zone.origin) == "kubernetes.default.svc.cluster.local."
    assert zone.origin is not None
    assert [str(record) for record in zone.find_rdataset(zone.origin, "A")] == [FOUR]
    assert [str(record) for record in zone.find_rdataset(zone.origin, "AAAA")] == [SIX]
    soa = zone.find_rdataset(zone.origin, dns.rdatatype.SOA)[0]
    assert (soa.serial, soa.refresh, soa.retry, soa.expire, soa.minimum) == (
        2017042745,
        1209600,
        1209600,
        1209600,
        30,
    )
    assert "kubernetes.default.svc.cluster.local.:8053 {" in coredns.corefile()


def test_sockets_are_counted_from_proc_net_tcp() -> None:
    tables = (
        "  sl  local_address rem_address   st tx_queue\n"
        "   0: 0302010A:01BB 00000000:0000 0A 00000000\n"
        "   1: 0302010A:01BB 0400000A:D431 01 00000000\n"
        "   2: 0302010A:01BC 0400000A:D432 01 00000000\n"
        "   3: 000000FD000000000000000003000000:01BB 00000000:0000 01 00000000\n"
    )
    addresses = parse_addresses((FOUR, SIX))
    assert list(socket_stats.count("01", addresses, 443, tables).values()) == [1, 1]
    assert list(socket_stats.count("0A", addresses, 443, tables).values()) == [1, 0]


def manifests(*more: str) -> list[dict[str, object]]:
    result = CliRunner().invoke(
        command,
        [
            *("node-proxy", "manifests", "--address", FOUR, "--address", SIX),
            *("--gateway", "api.example.com:8443", "--image", "registry.example.com/g:1", *more),
        ],
    )
    assert result.exit_code == 0, result.output
    return list(yaml.safe_load_all(result.output))


def test_daemon_set_has_minimal_capabilities() -> None:
    account, daemon_set = manifests(
        "--max-connections", "500", "--cleanup", "--pull-secret", "pull"
    )
    assert account["automountServiceAccountToken"] is False
    pod = daemon_set["spec"]["template"]["spec"]  # type: ignore[index]
    assert pod["hostNetwork"] is True
    assert pod["automountServiceAccountToken"] is False
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    for container, capabilities in (
        (pod["initContainers"][0], ["NET_ADMIN"]),
        (pod["containers"][0], ["NET_ADMIN", "NET_BIND_SERVICE"]),
    ):
        assert container["securityContext"]["capabilities"] == {
            "drop": ["ALL"],
            "add": capabilities,
        }
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
    flags = pod["containers"][0]["args"]
    assert flags[:2] == ["node-proxy", "run"]
    # The command accepts the flags in the manifest.
    result = CliRunner().invoke(command, [*flags[:1], "manifests", *flags[2:], "--image", "i"])
    assert result.exit_code == 0, result.output
    again = list(yaml.safe_load_all(result.output))[1]
    assert again["spec"]["template"]["spec"]["containers"][0]["args"] == flags


def test_master_service_and_zone_are_optional() -> None:
    assert [manifest["kind"] for manifest in manifests()] == ["ServiceAccount", "DaemonSet"]
    result = manifests("--kubernetes-service-mode", "service")[2:]
    assert [document["kind"] for document in result] == [
        "Service",
        "EndpointSlice",
        "EndpointSlice",
    ]
    assert [document.get("addressType") for document in result] == [None, "IPv4", "IPv6"]
    assert result[1]["endpoints"] == [{"addresses": [FOUR], "conditions": {"ready": True}}]
    data = manifests("--kubernetes-service-mode", "names", "--domain", "example.org")[2]["data"]
    assert isinstance(data, dict)
    assert "kubernetes.default.svc.example.org.:8053" in data["Corefile"]
    dns.zone.from_text(data["kubernetes.zone"], relativize=False)
