"""Throughput of Gatehouse's NGINX configuration, compared with a handwritten one.

`make bench-throughput`: wrk (Debian's package) makes the load on the same machine; NGINX has one
worker, the backend is another NGINX. Each figure is the median of rounds in which the
configurations take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import msgspec

from gatehouse.agent.nginx import binary as nginx_binary
from gatehouse.agent.nginx import main_conf
from gatehouse.agent.nginx.nameserver import HOST as HOST_OF_NAMES
from gatehouse.agent.nginx.nameserver import Nameserver
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Oidc
from gatehouse.dataplane import connection_counts, request_log
from gatehouse.dataplane.endpoints import WeightedEndpoint
from gatehouse.sidecars.authenticator import config as authenticating
from gatehouse.sidecars.authenticator import cookies
from gatehouse.sidecars.authenticator.sessions import LoginSession, SessionCodec
from gatehouse.sidecars.base import control
from gatehouse.sidecars.tls_connector import config as connecting
from gatehouse.standalone.pki import InstallationCertificate, Pki, issue

ADDRESS, PORT, BACKEND = "127.88.0.1", 8080, 9080
RESOLVER = 18_053
ADDRESS_OF_NAMES = f"{HOST_OF_NAMES}:{RESOLVER}"
HOST = "bench.test"
SECRET = b"of the benchmark"
SERVER_NAME, OTHER_NAME = "front.test", "real.test"

HEADERS = """
    proxy_http_version 1.1;
    proxy_set_header Host $http_host;
    proxy_set_header X-Real-IP $remote_addr;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header X-Forwarded-Proto $scheme;
    proxy_set_header X-Forwarded-Host $http_host;
    proxy_set_header X-Forwarded-Port $server_port;
    proxy_set_header Connection "";
"""

SCRIPT = """
const rules = %s;
function choose(r) {
    for (let i = 0; i < rules.length; i++) {
        const rule = rules[i];
        if (r.method === "GET" && r.headersIn["x-rule"] === rule && r.args["q"] === rule) {
            r.internalRedirect("@rule" + i);
            return;
        }
    }
    r.return(404);
}
export default { choose };
"""


def ours(rules: int, *, named: bool = False, logged: bool = False) -> dict[str, bytes]:
    """Return the files that Gatehouse writes for a plain route, or for some matches on one path.

    ``named``: with endpoints that NGINX asks for. ``logged``: with the access log.
    """
    forward = ir.Forward((ir.Backend("c-bench"),))
    matches = [
        ir.Match(
            ir.PathPrefix("/"),
            "GET",
            (ir.ValueMatch("x-rule", f"v{n}"),),
            (ir.ValueMatch("q", f"v{n}"),),
        )
        for n in range(rules)
    ] or [ir.Match()]
    routes = tuple(
        ir.Route(f"a/b/{n}/0", route_match, forward) for n, route_match in enumerate(matches)
    )
    listener = ir_gateway.Listener(PORT, "HTTP", (ir.VirtualHost(HOST, routes),))
    gateway = ir_gateway.GatewayConfiguration(
        "a/b",
        bind_address=ADDRESS,
        listeners=(listener,),
        clusters=(ir.Cluster("c-bench", (ir.Endpoint(ADDRESS, BACKEND),)),),
    )
    capabilities = nginx.NginxCapabilities.parse("1.31.3", named_endpoints=named, access_log=logged)
    generated = nginx.NginxGenerator(capabilities).generate(gateway)
    return {path: file.content for path, file in generated.file_set.files.items()}


def secured(pki: Pki, *names: ir.SubjectName) -> dict[str, bytes]:
    """Return the files of a route whose TLS backend has a certificate for one of ``names``."""
    tls = ir.BackendTls(SERVER_NAME, "bench", names)
    cluster = ir.Cluster("c-bench", (ir.Endpoint(ADDRESS, BACKEND + 1),), "http", tls)
    route = ir.Route("a/b/0/0", ir.Match(), ir.Forward((ir.Backend("c-bench"),)))
    listener = ir_gateway.Listener(PORT, "HTTP", (ir.VirtualHost(HOST, (route,)),))
    gateway = ir_gateway.GatewayConfiguration(
        "a/b",
        bind_address=ADDRESS,
        listeners=(listener,),
        clusters=(cluster,),
        trust_bundles=(ir_gateway.TrustBundle("bench", pki.ca().cert.read_bytes()),),
    )
    capabilities = nginx.NginxCapabilities.parse("1.31.3", connectors=True)
    generated = nginx.NginxGenerator(capabilities).generate(gateway)
    return {path: file.content for path, file in generated.file_set.files.items()}


def guarded(pki: Pki) -> dict[str, bytes]:
    """Return the files of a plain route whose users log in at a provider."""
    oidc = Oidc(
        owner="a/users", issuer="https://id.test", metadata_url="https://id.test/config",
        client_id="bench", secret="client", trust="authority", callback="/callback",
    )  # fmt: skip
    route = ir.Route(
        "a/b/0/0", ir.Match(), ir.Forward((ir.Backend("c-bench"),)), authentication=oidc
    )
    secrets = {"client": SECRET, "authority": pki.ca().cert.read_bytes()}
    gateway = ir_gateway.GatewayConfiguration(
        "a/b",
        bind_address=ADDRESS,
        listeners=(ir_gateway.Listener(PORT, "HTTP", (ir.VirtualHost(HOST, (route,)),)),),
        clusters=(ir.Cluster("c-bench", (ir.Endpoint(ADDRESS, BACKEND),)),),
        secrets=tuple(
            ir_gateway.SecretFile(name, ir_gateway.SecretBytes(content))
            for name, content in secrets.items()
        ),
    )
    modules = ("http_auth_request_module",)
    capabilities = nginx.NginxCapabilities.parse("1.31.3", modules, authenticators=True)
    generated = nginx.NginxGenerator(capabilities).generate(gateway)
    return {path: file.content for path, file in generated.file_set.files.items()}


def session(files: dict[str, bytes]) -> str:
    """Return the cookies of a logged-in user."""
    (party,) = msgspec.json.decode(
        files[authenticating.AUTHENTICATORS_FILE], type=list[authenticating.Party]
    )
    now = time.time()
    login = LoginSession("alice", now, now + 3600, now + 3600, {}, "sid", "refresh" * 100)
    parts = cookies.split(party.cookie, SessionCodec(party, SECRET).encode_session(login))
    return "; ".join(f"{name}={value}" for name, value in parts)


def by_hand() -> dict[str, bytes]:
    """Return a handwritten configuration equivalent to that of Gatehouse for a plain route."""
    text = f"""
    upstream bench {{ server {ADDRESS}:{BACKEND}; keepalive 32; }}
    {HEADERS}
    server {{ listen {ADDRESS}:{PORT} default_server; return 404; }}
    server {{ listen {ADDRESS}:{PORT}; server_name {HOST};
        location / {{ proxy_pass http://bench; }} }}
    """
    return {"gatehouse/http.conf": text.encode()}


def by_script(rules: int) -> dict[str, bytes]:
    """Return a configuration that matches in njs."""
    names = [f"v{n}" for n in range(rules)]
    locations = "".join(f"location @rule{n} {{ proxy_pass http://bench; }}" for n in range(rules))
    text = f"""
    js_import main from rules.js;
    upstream bench {{ server {ADDRESS}:{BACKEND}; keepalive 32; }}
    {HEADERS}
    server {{ listen {ADDRESS}:{PORT} default_server; return 404; }}
    server {{ listen {ADDRESS}:{PORT}; server_name {HOST};
        location / {{ js_content main.choose; }} {locations} }}
    """
    script = SCRIPT % str(names).replace("'", '"')
    return {"gatehouse/http.conf": text.encode(), "rules.js": script.encode()}


def answer_names(ready: threading.Event) -> None:
    """Be the name server for as long as the process lives."""

    async def serve() -> None:
        server = Nameserver()
        await server.start(RESOLVER)
        if server.port != RESOLVER:
            sys.exit(f"port {RESOLVER} is taken")
        server.publish({"c-bench": (WeightedEndpoint(ADDRESS, BACKEND),)})
        ready.set()
        await asyncio.Event().wait()

    asyncio.run(serve())


class Nginx:
    """An NGINX with one worker, over some files."""

    def __init__(self, directory: Path, files: dict[str, bytes], *, counts: bool = True) -> None:
        """``counts``: True if requests and connections are logged for metrics."""
        for path, content in files.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(content)
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temp = " ".join(f"{kind}_temp_path {directory}/{kind};" for kind in kinds)
        logs = []
        if "gatehouse/access_log.conf" in files:
            logs += ["include gatehouse/access_log.conf;"]
        if counts and "gatehouse/request_log.conf" in files:
            logs += [main_conf.request_log_directive(directory / request_log.FILE)]
        logs = logs or ["access_log off;"]
        if "gatehouse/request_log.conf" in files:
            # It defines a variable of the access log, too.
            logs = ["include gatehouse/request_log.conf;", *logs]
        # By default workers of a root master run as another user, which cannot enter the directory.
        user = "user root; " if os.geteuid() == 0 else ""
        stream = ""
        if "gatehouse/stream.conf" in files:
            stream = f"stream {{ resolver {ADDRESS_OF_NAMES}; include gatehouse/stream.conf; "
            if counts and "gatehouse/connection_log.conf" in files:
                connection_log = directory / connection_counts.CONNECTIONS_FILE
                stream += main_conf.connection_log_directive(connection_log)
            stream += "}"
        http = "include gatehouse/http.conf;" if "gatehouse/http.conf" in files else ""
        (directory / "nginx.conf").write_text(
            f"{user}worker_processes 1; daemon off; pid {directory}/pid; "
            f"working_directory {directory}; error_log {directory}/error.log; "
            "events { worker_connections 1024; } "
            f"http {{ {temp} resolver {ADDRESS_OF_NAMES}; {http} {' '.join(logs)} }} {stream}"
        )
        binary = str(nginx_binary.find_nginx_binary(None))
        self._process = subprocess.Popen(
            [binary, "-p", str(directory), "-c", str(directory / "nginx.conf"), "-e", "stderr"],
            stdout=(directory / "access.log").open("ab"),
        )
        self._companion: subprocess.Popen[bytes] | None = None
        if connecting.CONNECTORS_FILE in files:
            self._accompany("tls_connector", directory, connecting.CONNECTOR_SOCKETS)
        if authenticating.AUTHENTICATORS_FILE in files:
            self._accompany("authenticator", directory, authenticating.AUTHENTICATOR_SOCKETS)
        while not (directory / "pid").exists():
            if self._process.poll() is not None:
                self._fail("NGINX does not start")
            time.sleep(0.05)

    @property
    def pid(self) -> int:
        """Process of the master."""
        return self._process.pid

    def _accompany(self, companion: str, directory: Path, where: str) -> None:
        sockets = directory / where
        sockets.mkdir()
        program = [sys.executable, "-P", "-m", "gatehouse.sidecars", companion, str(sockets), "60"]
        self._companion = subprocess.Popen(program)
        while control.pid(sockets) is None:
            if self._companion.poll() is not None:
                self._fail(f"the {companion} does not start")
            time.sleep(0.05)
        if error := asyncio.run(control.send_request(sockets, [directory])):
            self._fail(error)

    def _fail(self, reason: str) -> NoReturn:
        """End it, so that no process keeps the output open, and then the benchmark."""
        self.stop()
        sys.exit(reason)

    def stop(self) -> None:
        """End it."""
        for process in (self._process, self._companion):
            if process is not None:
                process.terminate()
                process.wait()


def answering(pki: Pki) -> dict[str, bytes]:
    """Return the backend: plain text and TLS, with small responses and responses of 1 MB."""
    pki.ensure()
    leaf = InstallationCertificate("backend", "backend", dns=(SERVER_NAME, OTHER_NAME), server=True)
    pair = pki.leaf(leaf)
    issue(pki.ca(), leaf, pair, datetime.now(UTC))
    text = f"""
    server {{
        listen {ADDRESS}:{BACKEND}; listen {ADDRESS}:{BACKEND + 1} ssl;
        ssl_certificate {pair.cert}; ssl_certificate_key {pair.key};
        keepalive_requests 1000000;
        location / {{ return 200 ok; }}
        location /large {{ root assets; }}
    }}
    """
    return {"gatehouse/http.conf": text.encode(), "assets/large": bytes(1 << 20)}


def load(
    seconds: int, rules: int, path: str, cookie: str, address: str = ADDRESS
) -> tuple[float, float]:
    """Return requests per second and the 99th percentile in milliseconds for the last rule."""
    return parse(wrk(seconds, rules, path, cookie, address))


def wrk(
    seconds: int,
    rules: int = 0,
    path: str = "/",
    cookie: str = "",
    address: str = ADDRESS,
    *,
    reuse_connections: bool = True,
) -> str:
    """Return the output of wrk."""
    last = f"v{rules - 1}"
    command = ["wrk", "-t1", "-c32", f"-d{seconds}", "--latency", "-H", f"Host: {HOST}"]
    command += ["-H", f"Cookie: {cookie}"] if cookie else []
    command += [] if reuse_connections else ["-H", "Connection: close"]
    command += ["-H", f"x-rule: {last}", f"http://{address}:{PORT}{path}?q={last}"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in answer:
        sys.exit(f"requests failed:\n{answer}")
    return answer


def parse(answer: str) -> tuple[float, float]:
    """Return requests per second and the 99th percentile in milliseconds."""
    rate = re.search(r"Requests/sec:\s+([\d.]+)", answer)
    tail = re.search(r"^ +99% +([\d.]+)([a-z]+)$", answer, re.MULTILINE)
    assert rate is not None
    assert tail is not None
    milliseconds = {"us": 0.001, "ms": 1.0, "s": 1000.0}[tail[2]]
    return float(rate[1]), float(tail[1]) * milliseconds


def compare(
    variants: dict[str, dict[str, bytes]], rules: int, seconds: int, rounds: int, path: str = "/"
) -> None:
    """Let the variants take turns, and print a row of the table for each."""
    result: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, files in variants.items():
            with tempfile.TemporaryDirectory() as directory:
                server = Nginx(Path(directory), files)
                try:
                    cookie = session(files) if authenticating.AUTHENTICATORS_FILE in files else ""
                    load(1, rules, path, cookie)
                    result[name].append(load(seconds, rules, path, cookie))
                finally:
                    server.stop()
    base = statistics.median(rate for rate, _ in next(iter(result.values())))
    for name, results in result.items():
        rate = statistics.median(rate for rate, _ in results)
        tail = statistics.median(tail for _, tail in results)
        print(f"| {name} | {rate:,.0f} | {rate / base:.2f} | {tail:.1f} ms |", flush=True)


def routes(seconds: int, rounds: int) -> None:
    """Measure routes: a plain one, and many matches on one path."""
    plain = {
        "a plain route, by hand": by_hand(),
        "a plain route, by Gatehouse": ours(0),
        "a plain route, endpoints by name": ours(0, named=True),
    }
    compare(plain, 0, seconds, rounds)
    for rules in (1, 20, 200):
        named = {
            f"{rules} matches, in njs": by_script(rules),
            f"{rules} matches, by Gatehouse": ours(rules),
        }
        compare(named, rules, seconds, max(1, rounds // 2))


def names(pki: Pki, seconds: int, rounds: int) -> None:
    """Measure backends over TLS: checked for the handshake's name, and for another."""
    other = ir.SubjectName("dns", OTHER_NAME)
    for size in ("small", "large"):
        variants = {
            f"{size} answers over TLS, by NGINX": secured(pki),
            f"{size} answers over TLS, by a connector": secured(pki, other),
        }
        compare(variants, 0, seconds, rounds, f"/{size}")


def users(pki: Pki, seconds: int, rounds: int) -> None:
    """Measure a plain route for everybody, and for users who are logged in."""
    variants = {"for everybody": ours(0), "for a user with a session": guarded(pki)}
    compare(variants, 0, seconds, rounds)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--part", choices=("routes", "names", "users"), help="without: all")
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("wrk is needed: install Debian's package wrk")
    ready = threading.Event()
    threading.Thread(target=answer_names, args=(ready,), daemon=True).start()
    ready.wait(5)
    with tempfile.TemporaryDirectory() as directory:
        pki = Pki(Path(directory) / "pki")
        backend = Nginx(Path(directory), answering(pki))
        try:
            print("| configuration | requests/s | ratio | p99 |\n| --- | ---: | ---: | ---: |")
            if options.part in (None, "routes"):
                routes(options.seconds, options.rounds)
            if options.part in (None, "names"):
                names(pki, options.seconds, options.rounds)
            if options.part in (None, "users"):
                users(pki, options.seconds, options.rounds)
        finally:
            backend.stop()


if __name__ == "__main__":
    main()
