"""An API server in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType

import yaml

from kube_api_server.extension import NO_EXTENSION, Extension
from kube_api_server.main import ApiServerOptions, run_api_server
from kube_api_server.rbac.authorizer import MASTERS
from kube_api_server.testing.local_certificates import CertificateFiles, LocalAuthority
from kube_base.runtime import private_files


class LocalApiServer:
    """A running API server at a port of 127.0.0.1, and the credentials of an administrator.

    It starts and stops as a context manager. Objects are in a database of the directory, where a
    later server serves them again, with other certificates. A missing directory is created.
    Port 0 is a free one.
    """

    def __init__(
        self, directory: Path, extension: Extension = NO_EXTENSION, *, port: int = 0
    ) -> None:
        if not directory.is_dir():
            private_files.make_private_dir(directory)
        authority = LocalAuthority(directory)
        server = authority.issue("server")
        self.admin: CertificateFiles = authority.issue("admin", organization=MASTERS)
        self.kubeconfig = directory / "kubeconfig"
        """File for kubectl and client libraries, once the server has started."""
        self.url = ""
        self._options = ApiServerOptions(
            storage=str(directory / "storage"),
            bind=f"127.0.0.1:{port}",
            tls_cert=server.cert,
            tls_key=server.key,
            client_ca=server.ca,
            extension=extension,
        )
        self._port: Future[int] = Future()
        self._stop: Future[None] = Future()
        # As a daemon it prevents no exit of a program that forgets to stop it.
        self._thread = threading.Thread(target=self._run, name="kube-apiserver", daemon=True)

    def __enter__(self) -> LocalApiServer:
        self._thread.start()
        self.url = f"https://127.0.0.1:{self._port.result()}"
        text = yaml.safe_dump(self._kubeconfig(), sort_keys=False)
        private_files.replace_private_file(self.kubeconfig, text.encode())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set_result(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._port.done():
                raise
            self._port.set_exception(error)

    async def _serve(self) -> None:
        stop = asyncio.Event()
        asyncio.wrap_future(self._stop).add_done_callback(lambda _: stop.set())
        await run_api_server(self._options, stop, self._port.set_result)

    def _kubeconfig(self) -> dict[str, object]:
        name, files = "local", self.admin
        cluster = {"server": self.url, "certificate-authority": str(files.ca)}
        user = {"client-certificate": str(files.cert), "client-key": str(files.key)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [
                {"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}
            ],
            "current-context": name,
        }
