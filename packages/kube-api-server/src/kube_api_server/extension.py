"""Additions of an installation to the API server of Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources.abc import Traversable

import msgspec

from kube_api_server.fairness.schemas import SystemUsers
from kube_api_server.objects.admission import Admission, PlugIn
from kube_api_server.rbac.authorizer import Authorizer
from kube_api_server.storage.names import StorageNames
from kube_api_server.storage.store import ObjectStore
from kube_base.types.objects import Object


class ExtendedServer(msgspec.Struct, frozen=True):
    """Components of a server to which an extension adds its checks of writes."""

    store: ObjectStore
    authorizer: Authorizer
    admission: Admission

    def check_writes(self, plural: str, check: PlugIn) -> None:
        """Call `check` with every write of the kinds with a plural name, of any group."""
        self.admission.finishing.setdefault(plural, []).append(check)


class OwnNames(msgspec.Struct, frozen=True, kw_only=True):
    """Names of what a server stores and reports of its own.

    A server that is started with other names does not find what it has stored.
    """

    signing_keys: str = "service-account-token-keys"
    """Secret in `kube-system` with the keys that sign ServiceAccount tokens."""
    signing_keys_type: str = "service-account-signing-keys"
    controllers: str = "apiserver-controllers"
    """Lease in `kube-system` of the server that runs the controllers."""
    definition_digest: str = "apiserver/bundled-digest"
    """Annotation of a CRD that the server has installed: digest of its spec as installed.

    A newer server updates CRDs that users have not changed.
    """
    storage: StorageNames = StorageNames()
    """Names of files and keys of the storage."""
    metrics: str = "kube_api_server"
    """Prefix of metrics that kube-apiserver does not have."""


class Extension(msgspec.Struct, frozen=True, kw_only=True):
    """Kinds, roles and checks that a server has beside those of Kubernetes."""

    build: str = ""
    """Build metadata in the version of the server, such as `shop.0.1.0`."""
    names: OwnNames = OwnNames()
    definitions: Traversable | None = None
    """Directory of CRDs in YAML or JSON, which the server installs and updates at start."""
    definitions_are_checked: bool = False
    """True if all CRDs are known to be valid.

    A check compiles the CEL rules. With hundreds of them it takes a third of the first start.
    """
    namespaces: Sequence[str] = ()
    """Namespaces that the server creates at start."""
    roles: Callable[[], Sequence[Object]] = tuple
    """ClusterRoles and bindings that the server creates at start, as `rbac.role_objects` builds."""
    register_checks: Sequence[Callable[[ExtendedServer], None]] = ()
    """Functions that add checks of writes."""
    system_users: SystemUsers = SystemUsers()
    """Users whose requests have the priority levels of the control plane and of nodes."""


NO_EXTENSION = Extension()
