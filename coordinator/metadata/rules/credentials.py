"""The changes of users' credentials. The values were checked before the proposal."""

from ....runtime.sliced_work import Steps
from ....runtime.steps import StepCounter
from ....wire.errors import PolicyViolation, ResourceNotFound
from ..cluster_tables import ClusterTables
from ..commands import AlterScramCredentials
from ..results import Item, Result

USERS_MAX = 100_000


def alter_credentials(tables: ClusterTables, command: AlterScramCredentials) -> Steps[Result]:
    """Set and remove credentials.

    Errors: RESOURCE_NOT_FOUND (nothing to remove), POLICY_VIOLATION (too many users). As in Kafka,
    one such error refuses all changes of the user.
    """
    items: list[Item] = []
    counter = StepCounter()
    nothing = ResourceNotFound("Attempt to delete a user credential that does not exist")
    refused = set[str]()
    for change in command.changes:
        known = tables.scram_credentials.get(change.name, {})
        if change.credential is None and change.mechanism not in known:
            refused.add(change.name)
        if counter.ends_step():
            yield
    for change in command.changes:
        item = Item(name=change.name)
        credential, known = change.credential, tables.scram_credentials.get(change.name, {})
        if change.name in refused:
            item = item.refused(nothing)
        elif credential is not None and not known and len(tables.scram_credentials) >= USERS_MAX:
            item = item.refused(PolicyViolation(f"At most {USERS_MAX} users have credentials."))
        else:
            tables.put_scram_credential(change.name, change.mechanism, credential)
        items.append(item)
        if counter.ends_step():
            yield
    return Result(items=tuple(items))
