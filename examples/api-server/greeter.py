"""An operator with kopf: it writes a greeting into the status of each Greeting."""

import kopf


# The official client, which kopf tries first, reads KUBECONFIG only when it is imported.
@kopf.on.login()
def login(**kwargs):
    return kopf.login_with_kubeconfig(**kwargs)


@kopf.on.create("example.com", "v1", "greetings")
@kopf.on.update("example.com", "v1", "greetings")
def greet(spec, patch, **_):
    patch.status["text"] = f"Hello, {spec['name']}!"
