"""Data that travels between the control plane and its data planes, used by both ends.

- ``file_set``: versioned set of NGINX files. ``endpoints``: format of endpoint files.
- ``nginx_plus``: desired upstreams of an NGINX Plus host. ``upstream_name``: name of an upstream.
- ``delivery``: interface between the controller and the transports.
- ``features``: identifiers of agent features, which are part of the wire format.
- ``machine_identity``: name of an external machine in its certificate.
- ``xds``: the xDS protocol without I/O.

Nothing here knows Kubernetes objects, and nothing opens a connection.
"""
