"""The changes of client quotas. Keys and values were checked before the proposal."""

from ....runtime.steps import StepCounter, Steps
from ....wire.errors import PolicyViolation
from ..cluster_tables import ClusterTables
from ..commands import AlterClientQuotas
from ..results import Item, Result

QUOTAS_MAX = 10_000


def alter_client_quotas(tables: ClusterTables, command: AlterClientQuotas) -> Steps[Result]:
    """Set and remove quotas. An entity above the limit gets POLICY_VIOLATION."""
    items: list[Item] = []
    counter = StepCounter()
    for change in command.changes:
        entity, item = change.entity, Item()
        if entity in tables.quotas or len(tables.quotas) < QUOTAS_MAX:
            for key, value in change.values:
                tables.put_quota(entity, key, value)
        else:
            item = item.refused(PolicyViolation(f"At most {QUOTAS_MAX} entities have quotas."))
        items.append(item)
        if counter.ends_step():
            yield
    return Result(items=tuple(items))
