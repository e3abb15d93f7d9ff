"""Kafka's table of errors, with number, retriability, and a sentence."""

from enum import IntEnum


class _Row(int):
    """An error's number, with its sentence and whether it is retriable."""

    sentence: str
    is_retriable: bool

    def __new__(cls, value: int, sentence: str, is_retriable: bool = False) -> "_Row":
        row = int.__new__(cls, value)
        row.sentence, row.is_retriable = sentence, is_retriable
        return row


class ErrorCode(IntEnum):
    """The errors of the protocol up to Apache Kafka 4.4. The numbers never change."""

    sentence: str
    is_retriable: bool

    def __new__(cls, row: _Row) -> "ErrorCode":
        member = int.__new__(cls, row)
        member._value_ = int(row)
        member.sentence, member.is_retriable = row.sentence, row.is_retriable
        return member

    UNKNOWN_SERVER_ERROR = _Row(-1, "The broker met an error that it did not expect.")
    NONE = _Row(0, "No error.")
    OFFSET_OUT_OF_RANGE = _Row(1, "The offset lies outside the log.")
    CORRUPT_MESSAGE = _Row(2, "The batch fails its checksum or is otherwise damaged.", True)
    UNKNOWN_TOPIC_OR_PARTITION = _Row(3, "There is no such topic or partition.", True)
    INVALID_FETCH_SIZE = _Row(4, "The fetch size is not valid.")
    LEADER_NOT_AVAILABLE = _Row(5, "The partition has no leader at this moment.", True)
    NOT_LEADER_OR_FOLLOWER = _Row(6, "This broker does not lead the partition.", True)
    REQUEST_TIMED_OUT = _Row(7, "The request was not done in time; it may still take effect.", True)
    BROKER_NOT_AVAILABLE = _Row(8, "The broker is not available.")
    REPLICA_NOT_AVAILABLE = _Row(9, "The replica is not available.", True)
    MESSAGE_TOO_LARGE = _Row(10, "The batch is larger than max.message.bytes.")
    STALE_CONTROLLER_EPOCH = _Row(11, "The controller has moved.")
    OFFSET_METADATA_TOO_LARGE = _Row(12, "The metadata of the committed offset is too large.")
    NETWORK_EXCEPTION = _Row(13, "The connection ended before the answer came.", True)
    COORDINATOR_LOAD_IN_PROGRESS = _Row(14, "The coordinator is still loading its state.", True)
    COORDINATOR_NOT_AVAILABLE = _Row(15, "There is no coordinator at this moment.", True)
    NOT_COORDINATOR = _Row(16, "This broker is not the coordinator.", True)
    INVALID_TOPIC_EXCEPTION = _Row(17, "The topic's name is not valid, or it may not be used so.")
    RECORD_LIST_TOO_LARGE = _Row(18, "The batch is larger than a segment may be.")
    NOT_ENOUGH_REPLICAS = _Row(
        19, "Fewer replicas are in sync than min.insync.replicas asks for.", True
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = _Row(
        20,
        "The batch is written, but fewer replicas are in sync than min.insync.replicas asks for.",
        True,
    )
    INVALID_REQUIRED_ACKS = _Row(21, "acks must be 0, 1 or -1.")
    ILLEGAL_GENERATION = _Row(22, "The generation is not the group's current one.")
    INCONSISTENT_GROUP_PROTOCOL = _Row(23, "The member's protocols do not fit those of the group.")
    INVALID_GROUP_ID = _Row(24, "The group id is not valid.")
    UNKNOWN_MEMBER_ID = _Row(25, "The group does not know this member.")
    INVALID_SESSION_TIMEOUT = _Row(26, "The session timeout lies outside what the broker allows.")
    REBALANCE_IN_PROGRESS = _Row(27, "The group is rebalancing: join again.")
    INVALID_COMMIT_OFFSET_SIZE = _Row(28, "The committed offset is too large.")
    TOPIC_AUTHORIZATION_FAILED = _Row(29, "No permission for the topic.")
    GROUP_AUTHORIZATION_FAILED = _Row(30, "No permission for the group.")
    CLUSTER_AUTHORIZATION_FAILED = _Row(31, "No permission for the cluster.")
    INVALID_TIMESTAMP = _Row(32, "The record's timestamp lies outside what the topic allows.")
    UNSUPPORTED_SASL_MECHANISM = _Row(33, "The SASL mechanism is not supported.")
    ILLEGAL_SASL_STATE = _Row(34, "The request does not fit the state of the SASL exchange.")
    UNSUPPORTED_VERSION = _Row(35, "The version of this API is not supported.")
    TOPIC_ALREADY_EXISTS = _Row(36, "A topic of this name exists.")
    INVALID_PARTITIONS = _Row(37, "The number of partitions is not valid.")
    INVALID_REPLICATION_FACTOR = _Row(38, "The replication factor does not fit the live brokers.")
    INVALID_REPLICA_ASSIGNMENT = _Row(39, "The replica assignment is not valid.")
    INVALID_CONFIG = _Row(40, "The configuration is not valid.")
    NOT_CONTROLLER = _Row(41, "This broker is not the controller.", True)
    INVALID_REQUEST = _Row(42, "The request is not valid.")
    UNSUPPORTED_FOR_MESSAGE_FORMAT = _Row(43, "The batch format does not allow the request.")
    POLICY_VIOLATION = _Row(44, "The request breaks a policy of the cluster.")
    OUT_OF_ORDER_SEQUENCE_NUMBER = _Row(45, "The producer's sequence has a gap.")
    DUPLICATE_SEQUENCE_NUMBER = _Row(46, "The producer's sequence was seen before.")
    INVALID_PRODUCER_EPOCH = _Row(
        47, "The producer's epoch is an old one: a newer instance has begun."
    )
    INVALID_TXN_STATE = _Row(48, "The transaction is not in a state that allows this.")
    INVALID_PRODUCER_ID_MAPPING = _Row(
        49, "The producer id does not belong to the transactional id."
    )
    INVALID_TRANSACTION_TIMEOUT = _Row(
        50, "The transaction timeout is above transaction.max.timeout.ms."
    )
    CONCURRENT_TRANSACTIONS = _Row(51, "Another operation of this transaction is under way.", True)
    TRANSACTION_COORDINATOR_FENCED = _Row(52, "A newer transaction coordinator has taken over.")
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = _Row(53, "No permission for the transactional id.")
    SECURITY_DISABLED = _Row(54, "The broker has no authorizer, so there are no ACLs.")
    OPERATION_NOT_ATTEMPTED = _Row(55, "Not tried, since another part of the request failed.")
    KAFKA_STORAGE_ERROR = _Row(56, "The broker's disk failed.", True)
    LOG_DIR_NOT_FOUND = _Row(57, "There is no such log directory.")
    SASL_AUTHENTICATION_FAILED = _Row(58, "SASL authentication failed.")
    UNKNOWN_PRODUCER_ID = _Row(59, "The broker has no state of this producer id.")
    REASSIGNMENT_IN_PROGRESS = _Row(60, "The partition is being reassigned.")
    DELEGATION_TOKEN_AUTH_DISABLED = _Row(61, "Delegation tokens are off.")
    DELEGATION_TOKEN_NOT_FOUND = _Row(62, "There is no such delegation token.")
    DELEGATION_TOKEN_OWNER_MISMATCH = _Row(
        63, "The principal neither owns nor may renew the token."
    )
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = _Row(64, "Delegation tokens are not allowed here.")
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = _Row(65, "No permission for the delegation token.")
    DELEGATION_TOKEN_EXPIRED = _Row(66, "The delegation token has expired.")
    INVALID_PRINCIPAL_TYPE = _Row(67, "The principal type is not supported.")
    NON_EMPTY_GROUP = _Row(68, "The group has members.")
    GROUP_ID_NOT_FOUND = _Row(69, "There is no such group.")
    FETCH_SESSION_ID_NOT_FOUND = _Row(70, "There is no such fetch session.", True)
    INVALID_FETCH_SESSION_EPOCH = _Row(71, "The fetch session expected another epoch.", True)
    LISTENER_NOT_FOUND = _Row(72, "The leader has no listener of this name.", True)
    TOPIC_DELETION_DISABLED = _Row(73, "Topics may not be deleted.")
    FENCED_LEADER_EPOCH = _Row(74, "The leader epoch is older than the broker's.", True)
    UNKNOWN_LEADER_EPOCH = _Row(75, "The leader epoch is newer than the broker's.", True)
    UNSUPPORTED_COMPRESSION_TYPE = _Row(76, "The client's version does not know this compression.")
    STALE_BROKER_EPOCH = _Row(77, "The broker's registration is an old one.")
    OFFSET_NOT_AVAILABLE = _Row(78, "The new leader does not know its high watermark yet.", True)
    MEMBER_ID_REQUIRED = _Row(79, "Join again with the member id given here.")
    PREFERRED_LEADER_NOT_AVAILABLE = _Row(
        80, "The preferred leader is not in sync or not alive.", True
    )
    GROUP_MAX_SIZE_REACHED = _Row(81, "The group is full.")
    FENCED_INSTANCE_ID = _Row(82, "Another member holds this group.instance.id.")
    ELIGIBLE_LEADERS_NOT_AVAILABLE = _Row(83, "No replica that may lead is alive.", True)
    ELECTION_NOT_NEEDED = _Row(84, "The partition has the leader it should have.", True)
    NO_REASSIGNMENT_IN_PROGRESS = _Row(85, "The partition is not being reassigned.")
    GROUP_SUBSCRIBED_TO_TOPIC = _Row(86, "The group is subscribed to the topic.")
    INVALID_RECORD = _Row(87, "The broker refuses this record.")
    UNSTABLE_OFFSET_COMMIT = _Row(88, "An open transaction may change this offset.", True)
    THROTTLING_QUOTA_EXCEEDED = _Row(89, "A quota is used up.", True)
    PRODUCER_FENCED = _Row(90, "A newer instance with this transactional id has begun.")
    RESOURCE_NOT_FOUND = _Row(91, "There is no such resource.")
    DUPLICATE_RESOURCE = _Row(92, "The request names a resource twice.")
    UNACCEPTABLE_CREDENTIAL = _Row(93, "The credential is not acceptable.")
    INCONSISTENT_VOTER_SET = _Row(94, "Sender and receiver disagree about the voters.")
    INVALID_UPDATE_VERSION = _Row(95, "Somebody else has changed it since.")
    FEATURE_UPDATE_FAILED = _Row(96, "The features could not be updated.")
    PRINCIPAL_DESERIALIZATION_FAILURE = _Row(97, "The forwarded principal cannot be read.")
    SNAPSHOT_NOT_FOUND = _Row(98, "There is no such snapshot.")
    POSITION_OUT_OF_RANGE = _Row(99, "The position lies outside the snapshot.")
    UNKNOWN_TOPIC_ID = _Row(100, "There is no topic with this id.", True)
    DUPLICATE_BROKER_REGISTRATION = _Row(101, "This broker id is taken.")
    BROKER_ID_NOT_REGISTERED = _Row(102, "There is no broker with this id.")
    INCONSISTENT_TOPIC_ID = _Row(103, "The topic has another id here.", True)
    INCONSISTENT_CLUSTER_ID = _Row(104, "This is another cluster.")
    TRANSACTIONAL_ID_NOT_FOUND = _Row(105, "There is no such transactional id.")
    FETCH_SESSION_TOPIC_ID_ERROR = _Row(106, "The fetch session mixes topic names and ids.", True)
    INELIGIBLE_REPLICA = _Row(107, "The proposed ISR has a member that may not be in it.")
    NEW_LEADER_ELECTED = _Row(108, "The change is made, and with it the leader changed.")
    OFFSET_MOVED_TO_TIERED_STORAGE = _Row(109, "The offset is in tiered storage.")
    FENCED_MEMBER_EPOCH = _Row(110, "The group has fenced this member's epoch.")
    UNRELEASED_INSTANCE_ID = _Row(111, "Another member still holds this group.instance.id.")
    UNSUPPORTED_ASSIGNOR = _Row(112, "The group does not support this assignor.")
    STALE_MEMBER_EPOCH = _Row(113, "The member's epoch is an old one.")
    MISMATCHED_ENDPOINT_TYPE = _Row(114, "The request reached the wrong kind of endpoint.")
    UNSUPPORTED_ENDPOINT_TYPE = _Row(115, "This kind of endpoint is not supported.")
    UNKNOWN_CONTROLLER_ID = _Row(116, "There is no controller with this id.")
    UNKNOWN_SUBSCRIPTION_ID = _Row(117, "The telemetry subscription is unknown or old.")
    TELEMETRY_TOO_LARGE = _Row(118, "The telemetry is too large.")
    INVALID_REGISTRATION = _Row(119, "The registration of the broker is not valid.")
    TRANSACTION_ABORTABLE = _Row(
        120, "The transaction must be aborted; then the producer may go on."
    )
    INVALID_RECORD_STATE = _Row(121, "The record cannot be acknowledged in its state.")
    SHARE_SESSION_NOT_FOUND = _Row(122, "There is no such share session.", True)
    INVALID_SHARE_SESSION_EPOCH = _Row(123, "The share session expected another epoch.", True)
    FENCED_STATE_EPOCH = _Row(124, "The share group's state epoch does not match.")
    INVALID_VOTER_KEY = _Row(125, "The voter key is not that of the replica.")
    DUPLICATE_VOTER = _Row(126, "It is a voter already.")
    VOTER_NOT_FOUND = _Row(127, "It is no voter.")
    INVALID_REGULAR_EXPRESSION = _Row(128, "The regular expression is not valid.")
    REBOOTSTRAP_REQUIRED = _Row(
        129,
        "The client's metadata is too old: start from the bootstrap servers.",
    )
    STREAMS_INVALID_TOPOLOGY = _Row(130, "The topology is not valid.")
    STREAMS_INVALID_TOPOLOGY_EPOCH = _Row(131, "The topology epoch is not valid.")
    STREAMS_TOPOLOGY_FENCED = _Row(132, "The topology epoch is an old one.")
    SHARE_SESSION_LIMIT_REACHED = _Row(133, "There are too many share sessions.", True)
    GROUP_DELETION_FAILED = _Row(134, "The group could not be deleted.")
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = _Row(
        135, "The description of the topology could not be kept."
    )
    CONTROLLER_ID_NOT_REGISTERED = _Row(136, "There is no controller with this id.")
