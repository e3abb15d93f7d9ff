"""Kafka's errors as exceptions.

There is one class for each code, named as the code is (NOT_LEADER_OR_FOLLOWER ->
`NotLeaderOrFollower`); a code that the table lacks becomes an `UnknownServerError` which keeps
the number. Cores raise them; only the dispatcher of a broker turns them into numbers again.
"""

from collections.abc import Sequence

from .error_codes import ErrorCode

__all__ = ["ErrorCode", "KafkaError", "error_for"]


class KafkaError(Exception):
    """An answer of the protocol other than success; str() is a sentence for people."""

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    # What it means to a producer that met it is the producer's to say: it sets these on the error.
    abortable = False  # its transaction must be aborted; then it may go on
    fatal = False  # it cannot go on
    # Of a produce: the records of the batch that are at fault, by their place in it, and why
    # (KIP-467).
    record_errors: Sequence[tuple[int, str | None]] = ()

    def __init__(self, message: str | None = None, *, number: int | None = None) -> None:
        super().__init__(message or self.code.sentence)
        self.number = int(self.code) if number is None else number

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
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
InvalidFetchSize = _error(ErrorCode.INVALID_FETCH_SIZE)
LeaderNotAvailable = _error(ErrorCode.LEADER_NOT_AVAILABLE)
NotLeaderOrFollower = _error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
RequestTimedOut = _error(ErrorCode.REQUEST_TIMED_OUT)
BrokerNotAvailable = _error(ErrorCode.BROKER_NOT_AVAILABLE)
ReplicaNotAvailable = _error(ErrorCode.REPLICA_NOT_AVAILABLE)
MessageTooLarge = _error(ErrorCode.MESSAGE_TOO_LARGE)
StaleControllerEpoch = _error(ErrorCode.STALE_CONTROLLER_EPOCH)
OffsetMetadataTooLarge = _error(ErrorCode.OFFSET_METADATA_TOO_LARGE)
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
NotController = _error(ErrorCode.NOT_CONTROLLER)
InvalidRequest = _error(ErrorCode.INVALID_REQUEST)
UnsupportedForMessageFormat = _error(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
PolicyViolation = _error(ErrorCode.POLICY_VIOLATION)
OutOfOrderSequenceNumber = _error(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
DuplicateSequenceNumber = _error(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
InvalidProducerEpoch = _error(ErrorCode.INVALID_PRODUCER_EPOCH)
InvalidTxnState = _error(ErrorCode.INVALID_TXN_STATE)
InvalidProducerIdMapping = _error(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
InvalidTransactionTimeout = _error(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
ConcurrentTransactions = _error(ErrorCode.CONCURRENT_TRANSACTIONS)
TransactionCoordinatorFenced = _error(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
TransactionalIdAuthorizationFailed = _error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
SecurityDisabled = _error(ErrorCode.SECURITY_DISABLED)
OperationNotAttempted = _error(ErrorCode.OPERATION_NOT_ATTEMPTED)
KafkaStorageError = _error(ErrorCode.KAFKA_STORAGE_ERROR)
LogDirNotFound = _error(ErrorCode.LOG_DIR_NOT_FOUND)
SaslAuthenticationFailed = _error(ErrorCode.SASL_AUTHENTICATION_FAILED)
UnknownProducerId = _error(ErrorCode.UNKNOWN_PRODUCER_ID)
ReassignmentInProgress = _error(ErrorCode.REASSIGNMENT_IN_PROGRESS)
DelegationTokenAuthDisabled = _error(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
DelegationTokenNotFound = _error(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
DelegationTokenOwnerMismatch = _error(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
DelegationTokenRequestNotAllowed = _error(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
DelegationTokenAuthorizationFailed = _error(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
DelegationTokenExpired = _error(ErrorCode.DELEGATION_TOKEN_EXPIRED)
InvalidPrincipalType = _error(ErrorCode.INVALID_PRINCIPAL_TYPE)
NonEmptyGroup = _error(ErrorCode.NON_EMPTY_GROUP)
GroupIdNotFound = _error(ErrorCode.GROUP_ID_NOT_FOUND)
FetchSessionIdNotFound = _error(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
InvalidFetchSessionEpoch = _error(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
ListenerNotFound = _error(ErrorCode.LISTENER_NOT_FOUND)
TopicDeletionDisabled = _error(ErrorCode.TOPIC_DELETION_DISABLED)
FencedLeaderEpoch = _error(ErrorCode.FENCED_LEADER_EPOCH)
UnknownLeaderEpoch = _error(ErrorCode.UNKNOWN_LEADER_EPOCH)
UnsupportedCompressionType = _error(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
StaleBrokerEpoch = _error(ErrorCode.STALE_BROKER_EPOCH)
OffsetNotAvailable = _error(ErrorCode.OFFSET_NOT_AVAILABLE)
MemberIdRequired = _error(ErrorCode.MEMBER_ID_REQUIRED)
PreferredLeaderNotAvailable = _error(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
GroupMaxSizeReached = _error(ErrorCode.GROUP_MAX_SIZE_REACHED)
FencedInstanceId = _error(ErrorCode.FENCED_INSTANCE_ID)
EligibleLeadersNotAvailable = _error(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
ElectionNotNeeded = _error(ErrorCode.ELECTION_NOT_NEEDED)
NoReassignmentInProgress = _error(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
GroupSubscribedToTopic = _error(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
InvalidRecord = _error(ErrorCode.INVALID_RECORD)
UnstableOffsetCommit = _error(ErrorCode.UNSTABLE_OFFSET_COMMIT)
ThrottlingQuotaExceeded = _error(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
ProducerFenced = _error(ErrorCode.PRODUCER_FENCED)
ResourceNotFound = _error(ErrorCode.RESOURCE_NOT_FOUND)
DuplicateResource = _error(ErrorCode.DUPLICATE_RESOURCE)
UnacceptableCredential = _error(ErrorCode.UNACCEPTABLE_CREDENTIAL)
InconsistentVoterSet = _error(ErrorCode.INCONSISTENT_VOTER_SET)
InvalidUpdateVersion = _error(ErrorCode.INVALID_UPDATE_VERSION)
FeatureUpdateFailed = _error(ErrorCode.FEATURE_UPDATE_FAILED)
PrincipalDeserializationFailure = _error(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
SnapshotNotFound = _error(ErrorCode.SNAPSHOT_NOT_FOUND)
PositionOutOfRange = _error(ErrorCode.POSITION_OUT_OF_RANGE)
UnknownTopicId = _error(ErrorCode.UNKNOWN_TOPIC_ID)
DuplicateBrokerRegistration = _error(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
BrokerIdNotRegistered = _error(ErrorCode.BROKER_ID_NOT_REGISTERED)
InconsistentTopicId = _error(ErrorCode.INCONSISTENT_TOPIC_ID)
InconsistentClusterId = _error(ErrorCode.INCONSISTENT_CLUSTER_ID)
TransactionalIdNotFound = _error(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
FetchSessionTopicIdError = _error(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
IneligibleReplica = _error(ErrorCode.INELIGIBLE_REPLICA)
NewLeaderElected = _error(ErrorCode.NEW_LEADER_ELECTED)
OffsetMovedToTieredStorage = _error(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
FencedMemberEpoch = _error(ErrorCode.FENCED_MEMBER_EPOCH)
UnreleasedInstanceId = _error(ErrorCode.UNRELEASED_INSTANCE_ID)
UnsupportedAssignor = _error(ErrorCode.UNSUPPORTED_ASSIGNOR)
StaleMemberEpoch = _error(ErrorCode.STALE_MEMBER_EPOCH)
MismatchedEndpointType = _error(ErrorCode.MISMATCHED_ENDPOINT_TYPE)
UnsupportedEndpointType = _error(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
UnknownControllerId = _error(ErrorCode.UNKNOWN_CONTROLLER_ID)
UnknownSubscriptionId = _error(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
TelemetryTooLarge = _error(ErrorCode.TELEMETRY_TOO_LARGE)
InvalidRegistration = _error(ErrorCode.INVALID_REGISTRATION)
TransactionAbortable = _error(ErrorCode.TRANSACTION_ABORTABLE)
InvalidRecordState = _error(ErrorCode.INVALID_RECORD_STATE)
ShareSessionNotFound = _error(ErrorCode.SHARE_SESSION_NOT_FOUND)
InvalidShareSessionEpoch = _error(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
FencedStateEpoch = _error(ErrorCode.FENCED_STATE_EPOCH)
InvalidVoterKey = _error(ErrorCode.INVALID_VOTER_KEY)
DuplicateVoter = _error(ErrorCode.DUPLICATE_VOTER)
VoterNotFound = _error(ErrorCode.VOTER_NOT_FOUND)
InvalidRegularExpression = _error(ErrorCode.INVALID_REGULAR_EXPRESSION)
RebootstrapRequired = _error(ErrorCode.REBOOTSTRAP_REQUIRED)
StreamsInvalidTopology = _error(ErrorCode.STREAMS_INVALID_TOPOLOGY)
StreamsInvalidTopologyEpoch = _error(ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH)
StreamsTopologyFenced = _error(ErrorCode.STREAMS_TOPOLOGY_FENCED)
ShareSessionLimitReached = _error(ErrorCode.SHARE_SESSION_LIMIT_REACHED)


def error_for(code: int, message: str | None = None) -> KafkaError:
    """The exception for a number from the wire (not 0)."""
    cls = _BY_CODE.get(code)
    if cls is None:
        return UnknownServerError(message or f"unknown error {code}", number=code)
    return cls(message)
