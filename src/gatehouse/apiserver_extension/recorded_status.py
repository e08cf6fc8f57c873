"""Protection of statuses with records: who may write them could take names of others.

The default role `admin` covers all resources of these groups, also their statuses.
"""

from __future__ import annotations

from gatehouse.apis import hosted_api_servers, upstream_clusters
from gatehouse.apiserver_extension.data_plane_writes import is_trusted
from kube_api_server.errors import StatusError
from kube_api_server.extension import ExtendedServer
from kube_api_server.objects.write_request import WriteRequest
from kube_base.types.objects import Object

_PLURALS = ("externalloadbalancers", "hostedapiservers", "upstreamclusters")
_GROUPS = (hosted_api_servers._GROUP, upstream_clusters._GROUP)


def register_status_check(server: ExtendedServer) -> None:
    """Check every write of a status with a record."""

    def check(call: WriteRequest, _: Object, __: Object | None) -> None:
        resource = call.served.resource
        if call.subresource != "status" or resource.group not in _GROUPS:
            return
        if not is_trusted(server.authorizer, call.user):
            raise _forbidden(call)

    for plural in _PLURALS:
        server.check_writes(plural, check)


def _forbidden(call: WriteRequest) -> StatusError:
    resource = call.served.resource
    message = (
        f'{resource.plural}.{resource.group} "{call.name}" is forbidden: status: records which '
        "names the object owns. Only the Gatehouse controller and cluster administrators may "
        "write it"
    )
    return StatusError(
        403, "Forbidden", message, kind=resource.plural, group=resource.group, name=call.name
    )
