"""ReferenceGrant and BackendTLSPolicy."""

from __future__ import annotations

import msgspec

from gatehouse.apis.gateway import ObjectReference
from gatehouse.apis.meta import KubernetesObject, View


class GrantFrom(View, frozen=True):
    """Source of permitted references."""

    group: str
    kind: str
    namespace: str


class GrantTo(View, frozen=True):
    """Target of permitted references. Without a name, all objects of the kind."""

    kind: str
    group: str = ""
    name: str = ""


class ReferenceGrantSpec(View, frozen=True):
    """``spec`` of a ReferenceGrant."""

    from_: tuple[GrantFrom, ...] = msgspec.field(default=(), name="from")
    to: tuple[GrantTo, ...] = ()


class ReferenceGrant(KubernetesObject, frozen=True):
    """A ReferenceGrant."""

    spec: ReferenceGrantSpec = ReferenceGrantSpec()


class PolicyTarget(View, frozen=True):
    """The target of a policy. ``section_name`` is the name of a Service's port."""

    kind: str
    name: str
    group: str = ""
    section_name: str = ""


class SubjectAltNameSpec(View, frozen=True):
    """A required name in a backend's certificate."""

    type: str
    hostname: str = ""
    uri: str = ""


class BackendValidation(View, frozen=True):
    """Validation of a backend's certificate."""

    hostname: str = ""
    ca_certificate_refs: tuple[ObjectReference, ...] = ()
    well_known_ca_certificates: str = msgspec.field(default="", name="wellKnownCACertificates")
    subject_alt_names: tuple[SubjectAltNameSpec, ...] = ()


class BackendTlsPolicySpec(View, frozen=True):
    """``spec`` of a BackendTLSPolicy."""

    target_refs: tuple[PolicyTarget, ...] = ()
    validation: BackendValidation = BackendValidation()
    options: dict[str, str] = msgspec.field(default_factory=dict)
    """Settings of implementations, none of which is supported."""


class BackendTLSPolicy(KubernetesObject, frozen=True):
    """A BackendTLSPolicy."""

    spec: BackendTlsPolicySpec = BackendTlsPolicySpec()
