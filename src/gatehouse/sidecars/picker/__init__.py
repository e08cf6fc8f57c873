"""Picker client: asks endpoint pickers for NGINX, and forwards requests to the endpoints they name.

NGINX sends the requests of an InferencePool to a socket of that pool. For each one, the sidecar
opens a call of Envoy's ``ext_proc`` to the picker (Endpoint Picker Protocol 1.0), as Envoy does it.

- ``config``: the JSON of the control plane. ``server``: sockets of the pools.
- ``exchange``: one request and its response. ``ext_proc``: the call about it.
- ``picker_calls``: connections to pickers. ``grpc_call``, ``http2``: gRPC over HTTP/2.
- ``mutations``: changes of headers by pickers. ``endpoint_choice``: endpoints of a pool.
"""
