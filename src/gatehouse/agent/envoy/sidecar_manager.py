"""Applies sidecar configurations received over ADS and reports rejected ones as NACKs."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from gatehouse.agent.envoy.paths import EnvoyPaths
from gatehouse.agent.envoy.relay import Relay
from gatehouse.agent.sidecars import ConfigRejectedError, SidecarError, SidecarProcess
from gatehouse.dataplane.xds import sidecar_configs
from gatehouse.dataplane.xds.resources import TRIAL_NAME, XdsResource
from kube_base.runtime import private_files

log = structlog.get_logger("gatehouse.agent")

RETRY_SECONDS = 10.0
"""Time in seconds after which a failed sidecar is configured again."""


class SidecarManager:
    """Sidecars of one Envoy. `flush` is called when there is a result to send."""

    def __init__(
        self,
        processes: Sequence[SidecarProcess],
        paths: EnvoyPaths,
        relay: Relay,
        flush: Callable[[], None],
    ) -> None:
        self.processes = processes
        self._paths = paths
        self._relay = relay
        self._flush = flush
        self._woken = asyncio.Event()
        self._applied: Mapping[str, XdsResource] | None = None
        self._served: dict[str, dict[str, XdsResource]] = {
            process.name: {} for process in processes
        }
        """Configurations that each sidecar accepted, by name of the resource."""
        self._failed = False
        """True if a sidecar failed, which says nothing about the validity of its configurations."""

    def wake(self) -> None:
        """Check whether the configurations changed."""
        self._woken.set()

    async def start(self) -> None:
        """Adopt running sidecars and apply the stored configurations."""
        # Running sidecars have already read their configurations, whose resources may be gone.
        shutil.rmtree(self._paths.sidecar_configs, ignore_errors=True)
        for process in self.processes:
            process.adopt()
        await self._apply()

    async def run(self) -> None:
        """Apply configurations whenever they change, until cancelled."""
        while True:
            self._woken.clear()
            if self._relay.sidecar_configs is not self._applied:
                await self._apply()
                continue
            try:
                async with asyncio.timeout(RETRY_SECONDS if self._failed else None):
                    await self._woken.wait()
            except TimeoutError:
                # A new stream makes the control plane send what was rejected because of a failure.
                self._relay.needs_resubscribe = True
                await self._apply()

    async def _apply(self) -> None:
        desired, rejected = self._relay.sidecar_configs, dict[str, str]()
        self._failed = False
        by_sidecar: dict[str, dict[str, XdsResource]] = {
            sidecar.name: {} for sidecar in self.processes
        }
        for name, resource in desired.items():
            if name == TRIAL_NAME:
                continue
            configs = by_sidecar.get(sidecar_configs.sidecar_name(resource))
            reason = "this agent has no such sidecar" if configs is None else self._write(resource)
            if reason:
                rejected[name] = reason
            elif configs is not None:
                configs[name] = resource
        for process in self.processes:
            rejected |= await self._serve(process, by_sidecar[process.name])
        for name, reason in rejected.items():
            log.warning("sidecar configuration rejected", resource=name, reason=reason)
        newest = self._relay.sidecar_configs is desired
        self._relay.on_sidecar_result(desired, rejected)
        self._applied = self._relay.sidecar_configs if newest else desired
        self._sweep(desired)
        self._flush()

    async def _serve(
        self, process: SidecarProcess, desired: dict[str, XdsResource]
    ) -> dict[str, str]:
        """Apply the desired configurations to one sidecar.

        Return reasons of rejected ones by name.
        """
        served = self._served[process.name]
        if not (desired or served or process.running):
            return {}
        try:
            await process.serve(*self._directories(desired))
        except ConfigRejectedError:
            accepted = {name: resource for name, resource in served.items() if name in desired}
            return await self._serve_each(process, accepted, desired)
        except SidecarError as error:
            self._failed = True
            return dict.fromkeys(desired, str(error))
        self._served[process.name] = dict(desired)
        return {}

    async def _serve_each(
        self,
        process: SidecarProcess,
        accepted: dict[str, XdsResource],
        desired: dict[str, XdsResource],
    ) -> dict[str, str]:
        """Apply configurations one by one, after a rejection.

        Return reasons of rejected ones by name.
        """
        rejected: dict[str, str] = {}
        for name, resource in desired.items():
            if accepted.get(name) != resource:
                candidate = {**accepted, name: resource}
                try:
                    await process.serve(*self._directories(candidate))
                    accepted = candidate
                except SidecarError as error:
                    rejected[name] = str(error)
                    self._failed |= not isinstance(error, ConfigRejectedError)
        try:
            await process.serve(*self._directories(accepted))
        except SidecarError as error:
            self._failed = True
            log.warning(f"{process.name} not configured", error=str(error))
        self._served[process.name] = accepted
        return rejected

    def _directories(self, resources: Mapping[str, XdsResource]) -> list[Path]:
        return [self._directory(resource) for _, resource in sorted(resources.items())]

    def _directory(self, resource: XdsResource) -> Path:
        name = hashlib.sha256(f"{resource.name}\0{resource.version}".encode()).hexdigest()[:32]
        return self._paths.sidecar_configs / sidecar_configs.sidecar_name(resource) / name

    def _write(self, resource: XdsResource) -> str:
        """Write a configuration unless it exists. Return why that failed, empty if it did not."""
        directory = self._directory(resource)
        if directory.is_dir():
            return ""
        try:
            files = sidecar_configs.sidecar_files(resource)
            staged = directory.with_suffix(".new")
            shutil.rmtree(staged, ignore_errors=True)
            private_files.make_private_dir(staged)
            for path, content in files.items():
                private_files.make_private_dir((staged / path).parent)
                private_files.write_private_file(staged / path, content)
            # The system's CA certificates have the same name in every configuration.
            system_trust = staged / self._paths.system_trust.name
            if not system_trust.exists():
                system_trust.symlink_to(self._paths.system_trust)
            staged.rename(directory)
        except ValueError as error:
            return str(error)
        except OSError as error:
            self._failed = True
            return f"{error.strerror}: {error.filename}"
        return ""

    def _sweep(self, applied: Mapping[str, XdsResource]) -> None:
        """Remove configurations that no sidecar uses."""
        used = [applied, self._relay.sidecar_configs, *self._served.values()]
        used_directories = {
            self._directory(resource) for resources in used for resource in resources.values()
        }
        for directory in self._paths.sidecar_configs.glob("*/*"):
            if directory not in used_directories:
                shutil.rmtree(directory, ignore_errors=True)
