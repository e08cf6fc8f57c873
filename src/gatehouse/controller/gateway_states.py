"""State of each Gateway in the loop, beside its configuration. No I/O."""

from __future__ import annotations

import msgspec

from gatehouse.controller.programmed_condition import ProgrammedState, ProvisioningError

UNPUBLISHED = (-1, 0)
"""Generation and number for a Gateway that is not served."""


class GatewayState(msgspec.Struct):
    """State of one Gateway, as its object, its data plane and the provisioner tell it."""

    generation: int | None = None
    """``metadata.generation``; None if the object does not exist."""
    programmed: ProgrammedState | None = None
    """The last evaluation of ``Programmed``; None before the first."""
    provisioning_error: ProvisioningError | None = None
    """Why its data plane was not provisioned as specified; None if it was."""
    instances: int = 0
    """Number of connected instances."""
    first_publication: tuple[int, int] = UNPUBLISHED
    """The compiled generation, and the number of the first publication with it."""
