"""ConfigMaps of nginx-loadbalancer-kubernetes (nlk), translated to specs.

One :class:`NlkGeneration` describes each format: 0.x has an entry for each setting, 1.x has the
file ``config.yaml`` in one entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
import yaml

from gatehouse.apis import core
from gatehouse.apis.external_load_balancers import (
    HostSpec,
    HostTlsSpec,
    LoadBalancerSpec,
    LocalSecretRef,
    Nodes,
    ServiceAnnotation,
    ServiceSelection,
)
from gatehouse.apis.selectors import LabelSelector, SelectorRequirement
from gatehouse.compiler.frontends.external_load_balancer.findings import (
    LoadBalancerFinding,
    LoadBalancerReason,
)
from gatehouse.compiler.frontends.external_load_balancer.inputs import (
    NLK_NAME,
    NLK_SERVICES,
)
from gatehouse.incremental.query import Key

CERTIFICATE = "tls.crt"

AUTHORITY, CLIENT = "ca-certificate", "client-certificate"

MODES: dict[str, tuple[str, ...]] = {
    "no-tls": (),
    "ca-tls": (),
    "ca-mtls": (CLIENT,),
    "ss-tls": (AUTHORITY,),
    "ss-mtls": (AUTHORITY, CLIENT),
}
"""Keys of the Secret names that each ``tls-mode`` of 0.x needs."""

CONFIG_FILE = "config.yaml"
"""Entry of the ConfigMap that only 1.x has."""

SERVICE_ANNOTATION = "nginx.com/nginxaas"
"""Annotation of a Service: nlk 1.x selects Services whose value is `service-annotation-match`."""
DEFAULT_ANNOTATION_VALUE = "nginxaas"

API_KEY_SETTING = "nginxaas_dataplane_api_key"
API_KEY_ENTRY = "nginxaasApiKey"
"""Entry of the Secret that the Helm chart of 1.x creates."""

_VERIFY = {"": True, "ca-tls": True, "no-tls": False, "skip-verify-tls": False}
"""Certificate verification of each ``tls-mode`` of 1.x."""

_OLD_CONTROL_PLANE = "node-role.kubernetes.io/master"
"""Label of a Node: only such control plane Nodes are excluded by nlk 1.x."""


class NlkGeneration(msgspec.Struct, frozen=True):
    """A configuration format of nlk."""

    version: str
    fields: str
    """Prefix of a setting's name in messages."""
    read: Callable[[core.ConfigMap], LoadBalancerSpec | LoadBalancerFinding]
    """Returns the spec that a ConfigMap describes, or a finding."""
    findings: Callable[[core.ConfigMap], tuple[LoadBalancerFinding, ...]]
    """Returns findings about settings of a valid ConfigMap."""
    api_key: Callable[[core.ConfigMap], str]
    """Returns the API key in a valid ConfigMap; empty for none."""
    key_secret: Callable[[str], LocalSecretRef | None]
    """Returns the optional Secret with the API key, by the name of the ConfigMap."""


def nlk_generation(config: core.ConfigMap) -> NlkGeneration:
    """Return the generation of nlk that a ConfigMap belongs to."""
    return FILE_GENERATION if CONFIG_FILE in config.data else ENTRY_GENERATION


def is_nlk_config(key: Key, config: object) -> bool:
    """Return whether an object is a configuration of nlk.

    The Helm chart of 1.x derives the name from the release; only the file identifies it then.
    """
    return key[2] == NLK_NAME or (isinstance(config, core.ConfigMap) and CONFIG_FILE in config.data)


def _invalid(message: str) -> LoadBalancerFinding:
    return LoadBalancerFinding(LoadBalancerReason.INVALID, message)


def _hosts(urls: list[str]) -> tuple[HostSpec, ...]:
    return tuple(HostSpec(url) for url in dict.fromkeys(url.strip() for url in urls) if url)


def _read_entries(config: core.ConfigMap) -> LoadBalancerSpec | LoadBalancerFinding:
    data = config.data
    if "nginx-hosts" not in data:
        return _invalid("data.nginx-hosts: must be set")
    mode = data.get("tls-mode", "no-tls").strip()
    if mode not in MODES:
        known = ", ".join(MODES)
        return _invalid(f"data.tls-mode: {mode!r} must be one of {known}")
    secret_names = {}
    for key in MODES[mode]:
        secret_names[key] = data.get(key, "").strip()
        if not secret_names[key]:
            return _invalid(f"data.{key}: must be set for tls-mode {mode}")
    return LoadBalancerSpec(
        hosts=_hosts([url.strip() for url in data["nginx-hosts"].split(",")]),
        tls=_tls(mode, secret_names),
        services=ServiceSelection(namespaces=(NLK_SERVICES,)),
    )


def _tls(mode: str, secret_names: dict[str, str]) -> HostTlsSpec:
    authority, client = (
        LocalSecretRef(secret_names[key], CERTIFICATE) if key in secret_names else None
        for key in (AUTHORITY, CLIENT)
    )
    # ``no-tls`` disables authentication only: HTTPS is still used for https URLs.
    return HostTlsSpec("SkipVerify" if mode == "no-tls" else "Verify", authority, client)


class _FileSettings(msgspec.Struct, frozen=True):
    """Settings of ``config.yaml`` that have an effect."""

    hosts: list[str]
    tls_mode: str
    annotation: str
    api_key: str


def _file_settings(config: core.ConfigMap) -> _FileSettings | LoadBalancerFinding:
    where = f"data[{CONFIG_FILE}]"
    if "nginx-hosts" in config.data:
        return _invalid(f"data.nginx-hosts: must not be set together with {where}")
    try:
        # Every scalar stays a string, as nlk reads them.
        tree = yaml.load(config.data[CONFIG_FILE], yaml.BaseLoader)  # noqa: S506
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark else ""
        return _invalid(f"{where}: must be YAML{line}")
    if not isinstance(tree, dict):
        return _invalid(f"{where}: must be a mapping")
    settings = {str(key).lower(): value for key, value in tree.items()}
    hosts = settings.pop("nginx-hosts", "")
    if isinstance(hosts, str):
        hosts = re.split(r"[\s,]+", hosts)
    if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
        return _invalid(f"{where}.nginx-hosts: must be a URL or a list of URLs")
    if not any(host.strip() for host in hosts):
        return _invalid(f"{where}.nginx-hosts: must be set")
    names = ("tls-mode", "service-annotation-match", API_KEY_SETTING)
    for name in names:
        if not isinstance(settings.get(name, ""), str):
            return _invalid(f"{where}.{name}: must be a string")
    return _FileSettings(hosts, *(settings.get(name, "") for name in names))


def _read_file(config: core.ConfigMap) -> LoadBalancerSpec | LoadBalancerFinding:
    settings = _file_settings(config)
    if isinstance(settings, LoadBalancerFinding):
        return settings
    annotation = settings.annotation or DEFAULT_ANNOTATION_VALUE
    not_old = SelectorRequirement(_OLD_CONTROL_PLANE, "DoesNotExist")
    return LoadBalancerSpec(
        hosts=_hosts(settings.hosts),
        tls=HostTlsSpec("Verify" if _VERIFY.get(settings.tls_mode, True) else "SkipVerify"),
        services=ServiceSelection(
            namespaces=("*",),
            annotation=ServiceAnnotation(SERVICE_ANNOTATION, annotation),
            port_names="Context",
            load_balancer_servers="Ingress",
        ),
        nodes=Nodes(LabelSelector(match_expressions=(not_old,)), control_plane=True),
    )


def _file_findings(config: core.ConfigMap) -> tuple[LoadBalancerFinding, ...]:
    settings = _file_settings(config)
    if isinstance(settings, LoadBalancerFinding) or settings.tls_mode in _VERIFY:
        return ()
    known = ", ".join(mode for mode in _VERIFY if mode)
    message = f"data[{CONFIG_FILE}].tls-mode: {settings.tls_mode!r} must be one of {known}"
    return (_invalid(f"{message}; certificates are verified"),)


def _file_api_key(config: core.ConfigMap) -> str:
    settings = _file_settings(config)
    return "" if isinstance(settings, LoadBalancerFinding) else settings.api_key


def _file_key_secret(name: str) -> LocalSecretRef:
    # The chart truncates the name in the same way.
    release = name.removesuffix(NLK_NAME)
    return LocalSecretRef(f"{release}nginxaas-api-key"[:63].rstrip("-"), API_KEY_ENTRY)


ENTRY_GENERATION = NlkGeneration(
    "0.x", "data.", _read_entries, lambda _: (), lambda _: "", lambda _: None
)
FILE_GENERATION = NlkGeneration(
    "1.x",
    f"data[{CONFIG_FILE}].",
    _read_file,
    _file_findings,
    _file_api_key,
    _file_key_secret,
)
