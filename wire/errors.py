"""Kafka's errors as exceptions.

There is one class for each code, with a name derived from the code (NOT_LEADER_OR_FOLLOWER ->
`NotLeaderOrFollower`). An unknown code becomes an `UnknownServerError` that has the number. Pure
code raises the exceptions, and only a broker's dispatcher turns an exception into a number.
"""

from collections.abc import Sequence

from .error_codes import ErrorCode

MESSAGE_MAX = 1_000  # characters, so that the message fits into a field of an answer
CUT = "..."


class KafkaError(Exception):
    """An error of the protocol. `str()` of it is a sentence for users."""

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    # Set by the producer that got the error, since it knows the consequence.
    abortable = False  # its transaction must be aborted, after which the producer can continue
    fatal = False  # the producer cannot continue
    # The invalid records of a produced batch, by their index, with reasons (KIP-467).
    record_errors: Sequence[tuple[int, str | None]] = ()

    def __init__(self, message: str | None = None, *, number: int | None = None) -> None:
        text = message or self.code.sentence
        if len(text) > MESSAGE_MAX:  # the message may quote up to 32 kB of a client's bytes
            kept = (MESSAGE_MAX - len(CUT)) // 2
            text = text[:kept] + CUT + text[-kept:]
        super().__init__(text)
        self.number = int(self.code) if number is None else number

    @property
    def retriable(self) -> bool:
        """Return whether the same request may succeed if it is repeated."""
        return self.code.is_retriable


_BY_CODE: dict[int, type[KafkaError]] = {}


def _error(code: ErrorCode) -> type[KafkaError]:
    name = "".join(part.capitalize() for part in code.name.split("_"))
    fields = {"code": code, "__doc__": code.sentence, "__module__": __name__}
    return _BY_CODE.setdefault(code, type(name, (KafkaError,), fields))


UnknownServerError = _error(ErrorCode.UNKNOWN_SERVER_ERROR)
OffsetOutOfRange = _error(ErrorCode.OFFSET_OUT_OF_RANGE)
CorruptMessage = _error(ErrorCode.CORRUPT_MESSAGE)
UnknownTopicOrPartition = _error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
LeaderNotAvailable = _error(ErrorCode.LEADER_NOT_AVAILABLE)
NotLeaderOrFollower = _error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
RequestTimedOut = _error(ErrorCode.REQUEST_TIMED_OUT)
MessageTooLarge = _error(ErrorCode.MESSAGE_TOO_LARGE)
NetworkException = _error(ErrorCode.NETWORK_EXCEPTION)
CoordinatorLoadInProgress = _error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
CoordinatorNotAvailable = _error(ErrorCode.COORDINATOR_NOT_AVAILABLE)
NotCoordinator = _error(ErrorCode.NOT_COORDINATOR)
InvalidTopicException = _error(ErrorCode.INVALID_TOPIC_EXCEPTION)
RecordListTooLarge = _error(ErrorCode.RECORD_LIST_TOO_LARGE)
NotEnoughReplicas = _error(ErrorCode.NOT_ENOUGH_REPLICAS)
NotEnoughReplicasAfterAppend = _error(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
InvalidRequiredAcks = _error(ErrorCode.INVALID_REQUIRED_ACKS)
IllegalGeneration = _error(ErrorCode.ILLEGAL_GENERATION)
InconsistentGroupProtocol = _error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
InvalidGroupId = _error(ErrorCode.INVALID_GROUP_ID)
UnknownMemberId = _error(ErrorCode.UNKNOWN_MEMBER_ID)
InvalidSessionTimeout = _error(ErrorCode.INVALID_SESSION_TIMEOUT)
RebalanceInProgress = _error(ErrorCode.REBALANCE_IN_PROGRESS)
InvalidCommitOffsetSize = _error(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
TopicAuthorizationFailed = _error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
GroupAuthorizationFailed = _error(ErrorCode.GROUP_AUTHORIZATION_FAILED)
ClusterAuthorizationFailed = _error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
InvalidTimestamp = _error(ErrorCode.INVALID_TIMESTAMP)
UnsupportedSaslMechanism = _error(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
IllegalSaslState = _error(ErrorCode.ILLEGAL_SASL_STATE)
UnsupportedVersion = _error(ErrorCode.UNSUPPORTED_VERSION)
TopicAlreadyExists = _error(ErrorCode.TOPIC_ALREADY_EXISTS)
InvalidPartitions = _error(ErrorCode.INVALID_PARTITIONS)
InvalidReplicationFactor = _error(ErrorCode.INVALID_REPLICATION_FACTOR)
InvalidReplicaAssignment = _error(ErrorCode.INVALID_REPLICA_ASSIGNMENT)
InvalidConfig = _error(ErrorCode.INVALID_CONFIG)
InvalidRequest = _error(ErrorCode.INVALID_REQUEST)
PolicyViolation = _error(ErrorCode.POLICY_VIOLATION)
OutOfOrderSequenceNumber = _error(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
UnknownProducerId = _error(ErrorCode.UNKNOWN_PRODUCER_ID)
InvalidProducerEpoch = _error(ErrorCode.INVALID_PRODUCER_EPOCH)
InvalidTxnState = _error(ErrorCode.INVALID_TXN_STATE)
InvalidProducerIdMapping = _error(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
TransactionCoordinatorFenced = _error(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
TransactionalIdAuthorizationFailed = _error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
KafkaStorageError = _error(ErrorCode.KAFKA_STORAGE_ERROR)
SaslAuthenticationFailed = _error(ErrorCode.SASL_AUTHENTICATION_FAILED)
ResourceNotFound = _error(ErrorCode.RESOURCE_NOT_FOUND)
NonEmptyGroup = _error(ErrorCode.NON_EMPTY_GROUP)
GroupIdNotFound = _error(ErrorCode.GROUP_ID_NOT_FOUND)
GroupMaxSizeReached = _error(ErrorCode.GROUP_MAX_SIZE_REACHED)
FencedLeaderEpoch = _error(ErrorCode.FENCED_LEADER_EPOCH)
UnknownLeaderEpoch = _error(ErrorCode.UNKNOWN_LEADER_EPOCH)
UnsupportedCompressionType = _error(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
StaleBrokerEpoch = _error(ErrorCode.STALE_BROKER_EPOCH)
OffsetNotAvailable = _error(ErrorCode.OFFSET_NOT_AVAILABLE)
PreferredLeaderNotAvailable = _error(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
FencedInstanceId = _error(ErrorCode.FENCED_INSTANCE_ID)
EligibleLeadersNotAvailable = _error(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
ElectionNotNeeded = _error(ErrorCode.ELECTION_NOT_NEEDED)
NoReassignmentInProgress = _error(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
GroupSubscribedToTopic = _error(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
InvalidRecord = _error(ErrorCode.INVALID_RECORD)
UnstableOffsetCommit = _error(ErrorCode.UNSTABLE_OFFSET_COMMIT)
ProducerFenced = _error(ErrorCode.PRODUCER_FENCED)
InvalidUpdateVersion = _error(ErrorCode.INVALID_UPDATE_VERSION)
UnknownTopicId = _error(ErrorCode.UNKNOWN_TOPIC_ID)
BrokerIdNotRegistered = _error(ErrorCode.BROKER_ID_NOT_REGISTERED)
InconsistentTopicId = _error(ErrorCode.INCONSISTENT_TOPIC_ID)
InconsistentClusterId = _error(ErrorCode.INCONSISTENT_CLUSTER_ID)
TransactionalIdNotFound = _error(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
IneligibleReplica = _error(ErrorCode.INELIGIBLE_REPLICA)
InvalidRegistration = _error(ErrorCode.INVALID_REGISTRATION)
TransactionAbortable = _error(ErrorCode.TRANSACTION_ABORTABLE)
FencedMemberEpoch = _error(ErrorCode.FENCED_MEMBER_EPOCH)
UnreleasedInstanceId = _error(ErrorCode.UNRELEASED_INSTANCE_ID)
UnsupportedAssignor = _error(ErrorCode.UNSUPPORTED_ASSIGNOR)
StaleMemberEpoch = _error(ErrorCode.STALE_MEMBER_EPOCH)
InvalidRegularExpression = _error(ErrorCode.INVALID_REGULAR_EXPRESSION)

# Classes for the other codes, which a client of another cluster may receive.
globals().update({cls.__name__: cls for code in ErrorCode if code and (cls := _error(code))})


def error_for(code: int, message: str | None = None) -> KafkaError:
    """Return the exception for a non-zero error code."""
    cls = _BY_CODE.get(code)
    if cls is None:
        return UnknownServerError(message or f"unknown error {code}", number=code)
    return cls(message)
