"""Recorded responses of a kube-apiserver, each as JSON and as protobuf."""
