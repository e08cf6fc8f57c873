"""A script with kr8s, which marks the Services without a Pod."""

import kr8s
from kr8s.objects import Pod, Service


def mark_idle_services(api: kr8s.Api) -> None:
    """Label each Service of the namespace `default` by whether it selects a Pod."""
    for service in api.get("services", namespace="default"):
        if "selector" in service.spec:
            pods = list(api.get("pods", namespace="default", label_selector=service.spec.selector))
            service.label(idle="false" if pods else "true")


def test_services_without_pods_are_marked(kube_apiserver):
    api = kr8s.api(kubeconfig=str(kube_apiserver.kubeconfig))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "cart-1", "namespace": "default", "labels": {"app": "cart"}},
        "spec": {"containers": [{"name": "cart", "image": "cart:1"}]},
    }
    Pod(pod, api=api).create()
    for name in ("cart", "search"):
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": {"app": name}, "ports": [{"port": 80}]},
        }
        Service(service, api=api).create()

    mark_idle_services(api)

    idle = api.get("services", namespace="default", label_selector={"idle": "true"})
    assert [service.name for service in idle] == ["search"]
