"""Back end for Envoy: IR to xDS resources.

Reading order:
- :mod:`generator`: the query for all resources, and those for clusters and secrets.
- :mod:`listeners` with :mod:`filter_chains`: ports; :mod:`connection_manager`: HTTP towards
  clients, with :mod:`client_ip`, :mod:`compression` and :mod:`challenges`.
- :mod:`virtual_hosts`, :mod:`scoped_routes`: virtual hosts; :mod:`routes`: one route, whose action
  (:mod:`actions`) has the features of :mod:`features` around it, whatever it is;
  :mod:`route_context`: their shared types, such as the piece that a feature contributes.
- Features: :mod:`request_log`, :mod:`traces`, :mod:`cors`, :mod:`proxy_settings`,
  :mod:`body_sizes`, :mod:`client_addresses`, :mod:`rate_limits`, :mod:`external_auth`,
  :mod:`authentication` with :mod:`ext_authz`, :mod:`api_keys` and :mod:`claim_headers`
  (:mod:`request_script`), :mod:`retries`, :mod:`session_persistence`, :mod:`load_balancing`.
  :mod:`route_filters` places their filters.
- Actions: :mod:`route_match`, :mod:`rewriting`, :mod:`headers`, :mod:`mirrors`,
  :mod:`endpoint_pickers`.
- :mod:`clusters`, :mod:`secrets` with :mod:`secret_names`.
- :mod:`l4`: L4 listeners; :mod:`dynamic_clusters`, :mod:`passthrough`,
  :mod:`proxy_protocol`: connections whose cluster is selected by name.
- :mod:`kube_apiserver`: kube-apiservers behind a gateway.

Only :mod:`quoting` checks and escapes values, only :mod:`names` forms names; :mod:`protobufs` and
:mod:`extensions` have common parts of messages, :mod:`capabilities` what an Envoy and its agent can
do. Configuration of connections never depends on routes: all filters are in every chain and do
nothing until a route configures them. Never here: I/O, Kubernetes, YAML.
"""

from gatehouse.compiler.backends.envoy.capabilities import EnvoyCapabilities
from gatehouse.compiler.backends.envoy.generator import (
    EnvoyGenerator,
    GeneratedResources,
    generate_resources,
)

__all__ = ["EnvoyCapabilities", "GeneratedResources", "EnvoyGenerator", "generate_resources"]
