"""What is beside routes: ReferenceGrant and BackendTLSPolicy."""

from __future__ import annotations

import msgspec

from gatehouse.apis.gateway import ObjectReference
from gatehouse.apis.meta import Resource, View


class GrantFrom(View, frozen=True):
    """Who may refer."""

    group: str
    kind: str
    namespace: str


class GrantTo(View, frozen=True):
    """To what; no name: to every object of the kind."""

    kind: str
    group: str = ""
    name: str = ""


class ReferenceGrantSpec(View, frozen=True):
    """``spec`` of a ReferenceGrant."""

    from_: tuple[GrantFrom, ...] = msgspec.field(default=(), name="from")
    to: tuple[GrantTo, ...] = ()


class ReferenceGrant(Resource, frozen=True):
    """A ReferenceGrant."""

    spec: ReferenceGrantSpec = ReferenceGrantSpec()


class PolicyTarget(View, frozen=True):
    """What a policy is about; ``section_name`` is a Service's port by name."""

    kind: str
    name: str
    group: str = ""
    section_name: str = ""


class SubjectAltName(View, frozen=True):
    """A name that must be in a backend's certificate."""

    type: str
    hostname: str = ""
    uri: str = ""


class BackendValidation(View, frozen=True):
    """How a backend's certificate is checked."""

    hostname: str = ""
    ca_certificate_refs: tuple[ObjectReference, ...] = ()
    well_known_ca_certificates: str = msgspec.field(default="", name="wellKnownCACertificates")
    subject_alt_names: tuple[SubjectAltName, ...] = ()


class BackendTlsPolicySpec(View, frozen=True):
    """``spec`` of a BackendTLSPolicy."""

    target_refs: tuple[PolicyTarget, ...] = ()
    validation: BackendValidation = BackendValidation()


class BackendTLSPolicy(Resource, frozen=True):
    """A BackendTLSPolicy."""

    spec: BackendTlsPolicySpec = BackendTlsPolicySpec()
