"""Back end for NGINX: IR to files under ``gatehouse/`` of its configuration directory.

Reading order:
- :mod:`generator`: the query for all files, and those for clusters, credentials and common files.
- :mod:`virtual_hosts`: queries for virtual hosts; :mod:`servers`: one ``server`` block;
  :mod:`locations`: paths to routes.
- :mod:`match_conditions`, :mod:`decision_plan`, :mod:`map_chains`: selection among routes of a
  path, as nested maps.
- :mod:`features`: the list of all features of routes, such as :mod:`cors`, :mod:`rate_limits`,
  :mod:`client_addresses`, :mod:`external_auth` and :mod:`authentication` with :mod:`auth_request`,
  and their composition around an answer; :mod:`route_context`: their shared types;
  :mod:`functions`: variables that their locations share.
- :mod:`actions`: the answers: forward, redirect, respond; :mod:`proxy_pass` with
  :mod:`backend_protocol`, :mod:`rewriting`, :mod:`retries`, :mod:`mirrors`; :mod:`grpc_status`.
- :mod:`upstreams`, :mod:`weighted_upstreams`, :mod:`tls_connectors`, :mod:`picked_pools`: clusters.
- :mod:`http_conf`, :mod:`outer_contexts`, :mod:`data_plane_settings`, :mod:`usage_reporting`,
  :mod:`snippets`: contexts around the servers.
- :mod:`l4_listeners`: queries for L4 listeners; :mod:`stream`: one of them.
- :mod:`tracing`: from an error message of NGINX to the objects that it is about.

Only :mod:`directives` writes text, only :mod:`quoting` (with :mod:`regex`) escapes values, only
:mod:`names` forms names. A new feature of routes is a module with a function from a route to its
piece, and a record in :mod:`features`. Features that some NGINX versions lack are properties of
:mod:`capabilities`. Never here: I/O, Kubernetes, templates.
"""

from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.backends.nginx.generator import (
    GeneratedFiles,
    NginxGenerator,
    generate_files,
)
from gatehouse.compiler.backends.nginx.tracing import suspects

__all__ = ["NginxCapabilities", "GeneratedFiles", "NginxGenerator", "suspects", "generate_files"]
