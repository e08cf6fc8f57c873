"""Reasons of Events that are not also reasons of conditions or findings."""

from __future__ import annotations

from enum import StrEnum


class EventReason(StrEnum):
    """Reasons of Events. The docstring of a member names the object and the cause."""

    CONFIGURATION_REJECTED = "ConfigurationRejected"
    """Warning on a Gateway: the proxy rejected parts of the configuration. They are not served. The
    message names their objects and has the proxy's error text.
    """
    NO_READY_ENDPOINTS = "NoReadyEndpoints"
    """Warning on a Service that routes refer to: no endpoint of a port is ready, or no
    EndpointSlice has the port. Requests are answered 503 and connections are closed.
    """
    PROVISIONING_FAILED = "ProvisioningFailed"
    """Warning on a Gateway: objects of its data plane could not be written. The message has the
    object and the API server's error.
    """
    PROXY_UNHEALTHY = "ProxyUnhealthy"
    """Warning on a Gateway: the proxy of an instance died or does not respond. The agent starts it
    again. The message has the instance and the reason.
    """
    INSTANCE_CRASHED = "InstanceCrashed"
    """Warning on a Gateway: an instance disconnected because its Pod failed or a container of it
    died. The message has the Pod, the container, the reason and the exit code.
    """
    INSTANCE_DISCONNECTED = "InstanceDisconnected"
    """Warning on a Gateway: the agent of an instance has had no connection to the controller for
    10 s, and its Pod is not being deleted. The proxy may still serve its last configuration.
    """
    DATA_PLANE_PRIVILEGED = "DataPlanePrivileged"
    """Warning on the Pod of a data plane, with `gatehouse up` as root: it runs as root, too. The
    message has the reason.
    """
    NO_FREE_USER = "NoFreeUser"
    """Warning on the Pod of a data plane, with `gatehouse up` as root: it does not run, because all
    user IDs of `--data-plane-users` are in use.
    """
    UNAUTHORIZED_AGENT = "UnauthorizedAgent"
    """Warning on the object that an agent serves, and on the object whose data it requested: the
    request was denied.
    """
    UPSTREAM_SYNCED = "UpstreamSynced"
    """Normal, on a Service: all hosts of a load balancer have the servers of its upstream."""
    UPSTREAM_SYNC_FAILED = "UpstreamSyncFailed"
    """Warning on a Service, or on the load balancer: a host rejected the servers of an upstream."""
    HOST_SYNC_FAILED = "HostSyncFailed"
    """Warning on a load balancer: a host is unreachable or rejects all requests."""
