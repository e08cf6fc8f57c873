"""Policies, filters and parameters of ``gateway.nginx.org`` and ``gatehouse.dev``.

- :mod:`nginx_values`: parsers of sizes, times, rates and variables;
- :mod:`policy_fields`: the settings that policies of all kinds of traffic become;
- :mod:`nginx_policies`, :mod:`upstream_settings`, :mod:`snippets`, :mod:`authentication` and
  :mod:`oidc`: kinds of ``gateway.nginx.org``, translated to IR;
- :mod:`portable_policies`: TrafficPolicy, translated to IR;
- :mod:`security_policies`: fields of SecurityPolicy. Their IR is that of filters, and made by
  :mod:`~gatehouse.compiler.frontends.gateway_api.routes.security`;
- :mod:`policy_conflicts`: conflict resolution between policies of one target;
- :mod:`effective`: effective settings of a Gateway, route or Service;
- :mod:`parameters` and :mod:`overrides`: NginxProxy and GatewayParameters objects.
"""
