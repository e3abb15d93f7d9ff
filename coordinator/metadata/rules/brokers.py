"""The effects of brokers that register, fail, and stop.

The registration of another incarnation counts as a failure and a new start. The node first loses
all its leaderships and ISR memberships, even after an absence of only 90 ms that was not noticed.
One command removes a dead node from all ISRs.
"""

from dataclasses import replace

from ....runtime.sliced_work import Steps
from ....wire.errors import (
    BrokerIdNotRegistered,
    ErrorCode,
    InconsistentClusterId,
    InvalidRegistration,
    InvalidRequest,
    StaleBrokerEpoch,
    UnknownServerError,
)
from ..cluster_model import BrokerRegistration
from ..cluster_tables import ClusterTables
from ..commands import (
    AllocateProducerIds,
    BeginControlledShutdown,
    FailReplicas,
    FenceBroker,
    RegisterBroker,
    SetClusterId,
    SetDefaults,
    UnfenceBroker,
    UnregisterBroker,
)
from ..elections import NO_BROKER
from ..results import Result
from .partitions import partitions_of, settle_each

NODE_ID_MAX = 2**31 - 1
INCARNATION_BYTES = 16
PRODUCER_ID_BLOCK_COUNT = 1000  # as Kafka's ProducerIdsBlock
PRODUCER_ID_MAX = 2**63 - 1


def set_cluster_id(tables: ClusterTables, command: SetClusterId) -> Steps[Result]:
    """Set the cluster id once. A different id gets INCONSISTENT_CLUSTER_ID."""
    if tables.cluster_id not in ("", command.cluster_id):
        raise InconsistentClusterId(
            f"This is the cluster {tables.cluster_id}, not {command.cluster_id}."
        )
    if tables.cluster_id != command.cluster_id:
        tables.put_cluster_id(command.cluster_id)
    return (yield from set_defaults(tables, SetDefaults(command.defaults)))


def set_defaults(tables: ClusterTables, command: SetDefaults) -> Steps[Result]:
    """Replace the static defaults, and apply the election rules of every partition again."""
    if command.defaults != tables.defaults:
        tables.put_defaults(dict(command.defaults))
        for topic in tables.topics.values():
            yield from settle_each(tables, partitions_of(topic))
            yield
    return Result()


def register_broker(tables: ClusterTables, command: RegisterBroker, index: int) -> Steps[Result]:
    """Register a broker, fenced at first. The log index becomes its broker epoch.

    A repeated registration of the same incarnation is answered with its epoch.
    INCONSISTENT_CLUSTER_ID if the broker belongs to another cluster. STALE_BROKER_EPOCH if the
    registration to replace is not the current one. The result then has the current epoch. Only a
    live process can retry with that epoch, so a late message of a dead process never replaces its
    successor.
    """
    if (
        not 0 <= command.node_id <= NODE_ID_MAX
        or len(command.incarnation) != INCARNATION_BYTES
        or not 0 <= command.port <= 65535
        or not all(0 <= port <= 65535 for _, _, port, _ in command.endpoints)
        or len({name for name, *_ in command.endpoints}) < len(command.endpoints)
    ):
        raise InvalidRegistration("The registration is malformed.")
    if command.cluster_id and tables.cluster_id not in ("", command.cluster_id):
        raise InconsistentClusterId(
            f"Broker {command.node_id} belongs to the cluster {command.cluster_id}; "
            f"this is {tables.cluster_id}."
        )
    known = tables.brokers.get(command.node_id)
    if known is not None and known.incarnation == command.incarnation:
        return Result(broker_epoch=known.broker_epoch)
    current_epoch = -1 if known is None else known.broker_epoch
    if command.expected_broker_epoch not in (None, current_epoch):
        return Result(
            error=ErrorCode.STALE_BROKER_EPOCH,
            message=f"Broker {command.node_id} has the epoch {current_epoch}, "
            f"not {command.expected_broker_epoch}.",
            broker_epoch=current_epoch,
        )
    former = known or tables.former_brokers.get(command.node_id)
    tables.put_broker(
        BrokerRegistration(
            node_id=command.node_id,
            broker_epoch=index,
            incarnation=command.incarnation,
            boot_id=command.boot_id,
            host=command.host,
            port=command.port,
            rack=command.rack,
            directory_id=command.directory_id,
            endpoints=command.endpoints,
        )
    )
    boot_id, directory_id = _boot_and_directory(command)
    known_boot_id, known_directory_id = _boot_and_directory(former or command)
    yield from _shrink_isrs(
        tables,
        command.node_id,
        lost_power=boot_id != known_boot_id,
        lost_directory="" != directory_id != known_directory_id != "",
    )
    return Result(broker_epoch=index)


def _boot_and_directory(registration: BrokerRegistration | RegisterBroker) -> tuple[str, str]:
    """Return the boot id and the directory id, "" if unknown. Old releases had both in one id."""
    boot_id, _, directory_id = registration.boot_id.partition("/")
    return boot_id, registration.directory_id.hex() or directory_id


def unfence_broker(tables: ClusterTables, command: UnfenceBroker) -> Steps[Result]:
    """Unfence a broker. Elect leaders of partitions that had no leader."""
    broker = _current_broker(tables, command.node_id, command.broker_epoch)
    if broker.is_fenced:
        tables.put_broker(replace(broker, is_fenced=False))
        yield from settle_each(tables, tables.leaderless_partitions())
    return Result()


def fence_broker(tables: ClusterTables, command: FenceBroker) -> Steps[Result]:
    """Fence a broker. It leaves every ISR and loses its leaderships."""
    broker = _current_broker(tables, command.node_id, command.broker_epoch)
    if not broker.is_fenced:
        tables.put_broker(replace(broker, is_fenced=True, is_shutting_down=False))
        yield from _shrink_isrs(tables, command.node_id)
    return Result()


def unregister_broker(tables: ClusterTables, command: UnregisterBroker) -> Result:
    """Remove the registration. The broker's replicas stay assigned, in case the broker returns.

    Raises BROKER_ID_NOT_REGISTERED for a missing registration, INVALID_REQUEST for a live broker.
    (Kafka unregisters a live broker, and its process then continues unknown to all others until its
    restart.)
    """
    broker = tables.brokers.get(command.node_id)
    if broker is None:
        raise BrokerIdNotRegistered(f"Broker ID {command.node_id} is not currently registered")
    if not broker.is_fenced:
        raise InvalidRequest(f"Broker {command.node_id} is alive. Stop it before it is forgotten.")
    tables.remove_broker(command.node_id)
    return Result()


def begin_controlled_shutdown(
    tables: ClusterTables, command: BeginControlledShutdown
) -> Steps[Result]:
    """Move leaderships and ISR memberships away from a broker that is shutting down.

    The broker is still alive and applies this command, so clients are redirected, not disconnected.
    """
    broker = _current_broker(tables, command.node_id, command.broker_epoch)
    if broker.is_active:
        tables.put_broker(replace(broker, is_shutting_down=True))
        yield from _shrink_isrs(tables, command.node_id)
    return Result()


def fail_replicas(tables: ClusterTables, command: FailReplicas) -> Steps[Result]:
    """Exclude the node from elections in some partitions while their logs are failed.

    The node also leaves the ELRs of partitions with another candidate. The node may delete a failed
    log and copy it again, because the new leader epoch ends the node's fetch state at the leader.
    """
    _current_broker(tables, command.node_id, command.broker_epoch)
    keys = [
        (topic.name, index)
        for topic_id, index in command.partitions
        if (topic := tables.topic_by_id(topic_id)) is not None
        and 0 <= index < len(topic.partitions)
    ]
    yield from settle_each(
        tables,
        keys,
        without=command.node_id,
        untrusted=command.node_id,
        failed=command.node_id,
    )
    return Result()


def allocate_producer_ids(tables: ClusterTables, command: AllocateProducerIds) -> Result:
    """Allocate the next block of producer ids. If the answer is lost, the block stays unused."""
    _current_broker(tables, command.node_id, command.broker_epoch)
    if tables.next_producer_id > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_COUNT:
        raise UnknownServerError("All producer ids have been given out.")
    return Result(
        first_producer_id=tables.take_producer_ids(PRODUCER_ID_BLOCK_COUNT),
        producer_id_count=PRODUCER_ID_BLOCK_COUNT,
    )


def _current_broker(tables: ClusterTables, node_id: int, broker_epoch: int) -> BrokerRegistration:
    """Return a broker's registration. Raises StaleBrokerEpoch if it has another epoch.

    Raises BrokerIdNotRegistered if there is no registration.
    """
    broker = tables.brokers.get(node_id)
    if broker is None:
        raise BrokerIdNotRegistered(f"Broker {node_id} is not registered.")
    if broker.broker_epoch != broker_epoch:
        raise StaleBrokerEpoch(
            f"Broker {node_id} has the epoch {broker.broker_epoch}, not {broker_epoch}."
        )
    return broker


def _shrink_isrs(
    tables: ClusterTables, node_id: int, *, lost_power: bool = False, lost_directory: bool = False
) -> Steps[None]:
    """Remove an inactive node from every ISR, and from every ELR if the node may have lost data.

    An ISR change of a lagging follower is proposed by the leader (`replication/leader.py`).
    """
    keys = dict.fromkeys(tables.partitions_in_sync_on(node_id))
    if lost_power or lost_directory:
        keys |= dict.fromkeys(tables.partitions_eligible_on(node_id))
    yield from settle_each(
        tables,
        keys,
        without=node_id,
        untrusted=node_id if lost_power and not lost_directory else NO_BROKER,
        emptied=node_id if lost_directory else NO_BROKER,
    )
