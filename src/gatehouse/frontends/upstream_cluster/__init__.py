"""KubeGateway's UpstreamClusters."""
