"""Types of Kubernetes without I/O: objects, resources, quantities, requests, patches."""
