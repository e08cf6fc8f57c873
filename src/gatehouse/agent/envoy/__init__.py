"""The agent that runs an Envoy.

- ``main``: the order of its life.
- ``relay``: between the control plane and Envoy; what each is told and asked. Pure.
- ``holdings``: what the relay holds for Envoy, what Envoy took, and where they differ. Pure.
- ``upstream``, ``downstream``: its two ends, over gRPC.
- ``disk``: what Envoy took last, for when the control plane is away.
- ``described``: what companions are to do; ``company``: has them do it.
- ``bootstrap``, ``binary``, ``supervision``, ``admin``: the Envoy.
- ``metrics``: what both tell of themselves.

Never here: what is in a resource. The relay carries whatever types Envoy asks for.
"""
