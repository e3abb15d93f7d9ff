"""The creation and removal of ACLs.

The broker that receives the request checks each ACL. These functions only limit the number of ACLs.
"""

from ....runtime.sliced_work import Steps
from ....runtime.steps import StepCounter
from ....wire.errors import PolicyViolation
from ..cluster_tables import ClusterTables
from ..commands import CreateAcls, DeleteAcls
from ..results import Item, Result

ACLS_MAX = 200_000


def create_acls(tables: ClusterTables, command: CreateAcls) -> Steps[Result]:
    """Create ACLs. An ACL above the limit gets POLICY_VIOLATION."""
    items: list[Item] = []
    counter = StepCounter()
    for acl in command.acls:
        item = Item()
        if len(tables.acls) < ACLS_MAX or acl in tables.acls:
            tables.put_acl(acl)
        else:
            item = item.refused(PolicyViolation(f"A cluster has at most {ACLS_MAX} ACLs."))
        items.append(item)
        if counter.ends_step():
            yield
    return Result(items=tuple(items))


def delete_acls(tables: ClusterTables, command: DeleteAcls) -> Steps[Result]:
    counter = StepCounter()
    for acl in command.acls:
        tables.remove_acl(acl)
        if counter.ends_step():
            yield
    return Result()
