# Made by tests/tidy/test_message_types.py.

class ListOffsetsRequest:
    replica_id: int
    topics: list[ListOffsetsRequest.ListOffsetsTopic]
    isolation_level: int
    timeout: int
    class ListOffsetsTopic:
        name: str
        partitions: list[ListOffsetsRequest.ListOffsetsPartition]

    class ListOffsetsPartition:
        partition_index: int
        timestamp: int
        current_leader_epoch: int

class MetadataRequest:
    topics: list[MetadataRequest.MetadataRequestTopic] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool
    class MetadataRequestTopic:
        name: str | None
        topic_id: bytes

class OffsetCommitRequest:
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    retention_time: int
    topics: list[OffsetCommitRequest.OffsetCommitRequestTopic]
    group_instance_id: str | None
    class OffsetCommitRequestTopic:
        name: str
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition]
        topic_id: bytes

    class OffsetCommitRequestPartition:
        partition_index: int
        committed_offset: int
        committed_metadata: str | None
        committed_leader_epoch: int

class OffsetFetchRequest:
    group_id: str
    topics: list[OffsetFetchRequest.OffsetFetchRequestTopic] | None
    require_stable: bool
    groups: list[OffsetFetchRequest.OffsetFetchRequestGroup]
    class OffsetFetchRequestTopic:
        name: str
        partition_indexes: list[int]

    class OffsetFetchRequestGroup:
        group_id: str
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None
        member_id: str | None
        member_epoch: int

    class OffsetFetchRequestTopics:
        name: str
        partition_indexes: list[int]
        topic_id: bytes

class FindCoordinatorRequest:
    key: str
    key_type: int
    coordinator_keys: list[str]

class JoinGroupRequest:
    group_id: str
    session_timeout: int
    member_id: str
    protocol_type: str
    protocols: list[JoinGroupRequest.JoinGroupRequestProtocol]
    rebalance_timeout: int
    group_instance_id: str | None
    reason: str | None
    class JoinGroupRequestProtocol:
        name: str
        metadata: bytes

class HeartbeatRequest:
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None

class LeaveGroupRequest:
    group_id: str
    member_id: str
    members: list[LeaveGroupRequest.MemberIdentity]
    class MemberIdentity:
        member_id: str
        group_instance_id: str | None
        reason: str | None

class SyncGroupRequest:
    group_id: str
    generation_id: int
    member_id: str
    assignments: list[SyncGroupRequest.SyncGroupRequestAssignment]
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    class SyncGroupRequestAssignment:
        member_id: str
        assignment: bytes

class DescribeGroupsRequest:
    groups: list[str]
    include_authorized_operations: bool

class ListGroupsRequest:
    states_filter: list[str]
    types_filter: list[str]

class SaslHandshakeRequest:
    mechanism: str

class ApiVersionsRequest:
    client_software_name: str
    client_software_version: str
    cluster_id: str | None
    node_id: int

class CreateTopicsRequest:
    topics: list[CreateTopicsRequest.CreatableTopic]
    timeout: int
    validate_only: bool
    class CreatableTopic:
        name: str
        num_partitions: int
        replication_factor: int
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment]
        configs: list[CreateTopicsRequest.CreatableTopicConfig]

    class CreatableReplicaAssignment:
        partition_index: int
        broker_ids: list[int]

    class CreatableTopicConfig:
        name: str
        value: str | None

class DeleteTopicsRequest:
    topic_names: list[str]
    timeout: int
    topics: list[DeleteTopicsRequest.DeleteTopicState]
    class DeleteTopicState:
        name: str | None
        topic_id: bytes

class DeleteRecordsRequest:
    topics: list[DeleteRecordsRequest.DeleteRecordsTopic]
    timeout: int
    class DeleteRecordsTopic:
        name: str
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition]

    class DeleteRecordsPartition:
        partition_index: int
        offset: int

class InitProducerIdRequest:
    transactional_id: str | None
    transaction_timeout: int
    producer_id: int
    producer_epoch: int
    enable2_pc: bool
    keep_prepared_txn: bool

class OffsetForLeaderEpochRequest:
    topics: list[OffsetForLeaderEpochRequest.OffsetForLeaderTopic]
    replica_id: int
    class OffsetForLeaderTopic:
        topic: str
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition]

    class OffsetForLeaderPartition:
        partition: int
        current_leader_epoch: int
        leader_epoch: int

class AddPartitionsToTxnRequest:
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]
    transactions: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction]
    class AddPartitionsToTxnTopic:
        name: str
        partitions: list[int]

    class AddPartitionsToTxnTransaction:
        transactional_id: str
        producer_id: int
        producer_epoch: int
        verify_only: bool
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]

class AddOffsetsToTxnRequest:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str

class EndTxnRequest:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool

class WriteTxnMarkersRequest:
    markers: list[WriteTxnMarkersRequest.WritableTxnMarker]
    class WritableTxnMarker:
        producer_id: int
        producer_epoch: int
        transaction_result: bool
        topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic]
        coordinator_epoch: int
        transaction_version: int

    class WritableTxnMarkerTopic:
        name: str
        partition_indexes: list[int]

class TxnOffsetCommitRequest:
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    topics: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic]
    generation_id: int
    member_id: str
    group_instance_id: str | None
    generation_id_or_member_epoch: int
    class TxnOffsetCommitRequestTopic:
        name: str
        partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition]
        topic_id: bytes

    class TxnOffsetCommitRequestPartition:
        partition_index: int
        committed_offset: int
        committed_metadata: str | None
        committed_leader_epoch: int

class DescribeAclsRequest:
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int

class CreateAclsRequest:
    creations: list[CreateAclsRequest.AclCreation]
    class AclCreation:
        resource_type: int
        resource_name: str
        resource_pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int

class DeleteAclsRequest:
    filters: list[DeleteAclsRequest.DeleteAclsFilter]
    class DeleteAclsFilter:
        resource_type_filter: int
        resource_name_filter: str | None
        pattern_type_filter: int
        principal_filter: str | None
        host_filter: str | None
        operation: int
        permission_type: int

class DescribeConfigsRequest:
    resources: list[DescribeConfigsRequest.DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool
    class DescribeConfigsResource:
        resource_type: int
        resource_name: str
        configuration_keys: list[str] | None

class AlterConfigsRequest:
    resources: list[AlterConfigsRequest.AlterConfigsResource]
    validate_only: bool
    class AlterConfigsResource:
        resource_type: int
        resource_name: str
        configs: list[AlterConfigsRequest.AlterableConfig]

    class AlterableConfig:
        name: str
        value: str | None

class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDirsRequest.AlterReplicaLogDir]
    class AlterReplicaLogDir:
        path: str
        topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic]

    class AlterReplicaLogDirTopic:
        name: str
        partitions: list[int]

class DescribeLogDirsRequest:
    topics: list[DescribeLogDirsRequest.DescribableLogDirTopic] | None
    class DescribableLogDirTopic:
        topic: str
        partitions: list[int]

class SaslAuthenticateRequest:
    auth_bytes: bytes

class CreatePartitionsRequest:
    topics: list[CreatePartitionsRequest.CreatePartitionsTopic]
    timeout: int
    validate_only: bool
    class CreatePartitionsTopic:
        name: str
        count: int
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None

    class CreatePartitionsAssignment:
        broker_ids: list[int]

class CreateDelegationTokenRequest:
    renewers: list[CreateDelegationTokenRequest.CreatableRenewers]
    max_lifetime: int
    owner_principal_type: str | None
    owner_principal_name: str | None
    class CreatableRenewers:
        principal_type: str
        principal_name: str

class RenewDelegationTokenRequest:
    hmac: bytes
    renew_period: int

class ExpireDelegationTokenRequest:
    hmac: bytes
    expiry_time_period: int

class DescribeDelegationTokenRequest:
    owners: list[DescribeDelegationTokenRequest.DescribeDelegationTokenOwner] | None
    class DescribeDelegationTokenOwner:
        principal_type: str
        principal_name: str

class DeleteGroupsRequest:
    groups_names: list[str]

class ElectLeadersRequest:
    topic_partitions: list[ElectLeadersRequest.TopicPartitions] | None
    timeout: int
    election_type: int
    class TopicPartitions:
        topic: str
        partitions: list[int]

class IncrementalAlterConfigsRequest:
    resources: list[IncrementalAlterConfigsRequest.AlterConfigsResource]
    validate_only: bool
    class AlterConfigsResource:
        resource_type: int
        resource_name: str
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig]

    class AlterableConfig:
        name: str
        config_operation: int
        value: str | None

class AlterPartitionReassignmentsRequest:
    timeout: int
    topics: list[AlterPartitionReassignmentsRequest.ReassignableTopic]
    allow_replication_factor_change: bool
    class ReassignableTopic:
        name: str
        partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition]

    class ReassignablePartition:
        partition_index: int
        replicas: list[int] | None

class ListPartitionReassignmentsRequest:
    timeout: int
    topics: list[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None
    class ListPartitionReassignmentsTopics:
        name: str
        partition_indexes: list[int]

class OffsetDeleteRequest:
    group_id: str
    topics: list[OffsetDeleteRequest.OffsetDeleteRequestTopic]
    class OffsetDeleteRequestTopic:
        name: str
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition]

    class OffsetDeleteRequestPartition:
        partition_index: int

class DescribeClientQuotasRequest:
    components: list[DescribeClientQuotasRequest.ComponentData]
    strict: bool
    class ComponentData:
        entity_type: str
        match_type: int
        match: str | None

class AlterClientQuotasRequest:
    entries: list[AlterClientQuotasRequest.EntryData]
    validate_only: bool
    class EntryData:
        entity: list[AlterClientQuotasRequest.EntityData]
        ops: list[AlterClientQuotasRequest.OpData]

    class EntityData:
        entity_type: str
        entity_name: str | None

    class OpData:
        key: str
        value: float
        remove: bool

class DescribeUserScramCredentialsRequest:
    users: list[DescribeUserScramCredentialsRequest.UserName] | None
    class UserName:
        name: str

class AlterUserScramCredentialsRequest:
    deletions: list[AlterUserScramCredentialsRequest.ScramCredentialDeletion]
    upsertions: list[AlterUserScramCredentialsRequest.ScramCredentialUpsertion]
    class ScramCredentialDeletion:
        name: str
        mechanism: int

    class ScramCredentialUpsertion:
        name: str
        mechanism: int
        iterations: int
        salt: bytes
        salted_password: bytes

class DescribeQuorumRequest:
    topics: list[DescribeQuorumRequest.TopicData]
    class TopicData:
        topic_name: str
        partitions: list[DescribeQuorumRequest.PartitionData]

    class PartitionData:
        partition_index: int

class UpdateFeaturesRequest:
    timeout: int
    feature_updates: list[UpdateFeaturesRequest.FeatureUpdateKey]
    validate_only: bool
    class FeatureUpdateKey:
        feature: str
        max_version_level: int
        allow_downgrade: bool
        upgrade_type: int

class DescribeClusterRequest:
    include_cluster_authorized_operations: bool
    endpoint_type: int
    include_fenced_brokers: bool

class DescribeProducersRequest:
    topics: list[DescribeProducersRequest.TopicRequest]
    class TopicRequest:
        name: str
        partition_indexes: list[int]

class UnregisterBrokerRequest:
    broker_id: int

class DescribeTransactionsRequest:
    transactional_ids: list[str]

class ListTransactionsRequest:
    state_filters: list[str]
    producer_id_filters: list[int]
    duration_filter: int
    transactional_id_pattern: str | None

class ConsumerGroupHeartbeatRequest:
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout: int
    subscribed_topic_names: list[str] | None
    server_assignor: str | None
    topic_partitions: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None
    subscribed_topic_regex: str | None
    class TopicPartitions:
        topic_id: bytes
        partitions: list[int]

class ConsumerGroupDescribeRequest:
    group_ids: list[str]
    include_authorized_operations: bool

class GetTelemetrySubscriptionsRequest:
    client_instance_id: bytes

class PushTelemetryRequest:
    client_instance_id: bytes
    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: bytes

class ListConfigResourcesRequest:
    resource_types: list[int]

class DescribeTopicPartitionsRequest:
    topics: list[DescribeTopicPartitionsRequest.TopicRequest]
    response_partition_limit: int
    cursor: DescribeTopicPartitionsRequest.Cursor | None
    class TopicRequest:
        name: str

    class Cursor:
        topic_name: str
        partition_index: int

class ShareGroupHeartbeatRequest:
    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    subscribed_topic_names: list[str] | None

class ShareGroupDescribeRequest:
    group_ids: list[str]
    include_authorized_operations: bool

class ShareFetchRequest:
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    max_wait: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    topics: list[ShareFetchRequest.FetchTopic]
    forgotten_topics_data: list[ShareFetchRequest.ForgottenTopic]
    share_acquire_mode: int
    is_renew_ack: bool
    class FetchTopic:
        topic_id: bytes
        partitions: list[ShareFetchRequest.FetchPartition]

    class FetchPartition:
        partition_index: int
        acknowledgement_batches: list[ShareFetchRequest.AcknowledgementBatch]

    class AcknowledgementBatch:
        first_offset: int
        last_offset: int
        acknowledge_types: list[int]

    class ForgottenTopic:
        topic_id: bytes
        partitions: list[int]

class ShareAcknowledgeRequest:
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    topics: list[ShareAcknowledgeRequest.AcknowledgeTopic]
    is_renew_ack: bool
    class AcknowledgeTopic:
        topic_id: bytes
        partitions: list[ShareAcknowledgeRequest.AcknowledgePartition]

    class AcknowledgePartition:
        partition_index: int
        acknowledgement_batches: list[ShareAcknowledgeRequest.AcknowledgementBatch]

    class AcknowledgementBatch:
        first_offset: int
        last_offset: int
        acknowledge_types: list[int]

class AddRaftVoterRequest:
    cluster_id: str | None
    timeout: int
    voter_id: int
    voter_directory_id: bytes
    listeners: list[AddRaftVoterRequest.Listener]
    ack_when_committed: bool
    class Listener:
        name: str
        host: str
        port: int

class RemoveRaftVoterRequest:
    cluster_id: str | None
    voter_id: int
    voter_directory_id: bytes

class InitializeShareGroupStateRequest:
    group_id: str
    topics: list[InitializeShareGroupStateRequest.InitializeStateData]
    class InitializeStateData:
        topic_id: bytes
        partitions: list[InitializeShareGroupStateRequest.PartitionData]

    class PartitionData:
        partition: int
        state_epoch: int
        start_offset: int

class ReadShareGroupStateRequest:
    group_id: str
    topics: list[ReadShareGroupStateRequest.ReadStateData]
    class ReadStateData:
        topic_id: bytes
        partitions: list[ReadShareGroupStateRequest.PartitionData]

    class PartitionData:
        partition: int
        leader_epoch: int

class WriteShareGroupStateRequest:
    group_id: str
    topics: list[WriteShareGroupStateRequest.WriteStateData]
    class WriteStateData:
        topic_id: bytes
        partitions: list[WriteShareGroupStateRequest.PartitionData]

    class PartitionData:
        partition: int
        state_epoch: int
        leader_epoch: int
        start_offset: int
        state_batches: list[WriteShareGroupStateRequest.StateBatch]
        delivery_complete_count: int

    class StateBatch:
        first_offset: int
        last_offset: int
        delivery_state: int
        delivery_count: int

class DeleteShareGroupStateRequest:
    group_id: str
    topics: list[DeleteShareGroupStateRequest.DeleteStateData]
    class DeleteStateData:
        topic_id: bytes
        partitions: list[DeleteShareGroupStateRequest.PartitionData]

    class PartitionData:
        partition: int

class ReadShareGroupStateSummaryRequest:
    group_id: str
    topics: list[ReadShareGroupStateSummaryRequest.ReadStateSummaryData]
    class ReadStateSummaryData:
        topic_id: bytes
        partitions: list[ReadShareGroupStateSummaryRequest.PartitionData]

    class PartitionData:
        partition: int
        leader_epoch: int

class StreamsGroupHeartbeatRequest:
    group_id: str
    member_id: str
    member_epoch: int
    endpoint_information_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout: int
    topology: StreamsGroupHeartbeatRequest.Topology | None
    active_tasks: list[StreamsGroupHeartbeatRequest.TaskIds] | None
    standby_tasks: list[StreamsGroupHeartbeatRequest.TaskIds] | None
    warmup_tasks: list[StreamsGroupHeartbeatRequest.TaskIds] | None
    process_id: str | None
    user_endpoint: StreamsGroupHeartbeatRequest.Endpoint | None
    client_tags: list[StreamsGroupHeartbeatRequest.KeyValue] | None
    task_offsets: list[StreamsGroupHeartbeatRequest.TaskOffset] | None
    task_end_offsets: list[StreamsGroupHeartbeatRequest.TaskOffset] | None
    shutdown_application: bool
    class Topology:
        epoch: int
        subtopologies: list[StreamsGroupHeartbeatRequest.Subtopology]

    class Subtopology:
        subtopology_id: str
        source_topics: list[str]
        source_topic_regex: list[str]
        state_changelog_topics: list[StreamsGroupHeartbeatRequest.TopicInfo]
        repartition_sink_topics: list[str]
        repartition_source_topics: list[StreamsGroupHeartbeatRequest.TopicInfo]
        copartition_groups: list[StreamsGroupHeartbeatRequest.CopartitionGroup]

    class TopicInfo:
        name: str
        partitions: int
        replication_factor: int
        topic_configs: list[StreamsGroupHeartbeatRequest.KeyValue]

    class KeyValue:
        key: str
        value: str

    class CopartitionGroup:
        source_topics: list[int]
        source_topic_regex: list[int]
        repartition_source_topics: list[int]

    class TaskIds:
        subtopology_id: str
        partitions: list[int]

    class Endpoint:
        host: str
        port: int

    class TaskOffset:
        subtopology_id: str
        partition: int
        offset: int

class StreamsGroupDescribeRequest:
    group_ids: list[str]
    include_authorized_operations: bool
    include_topology_description: bool

class DescribeShareGroupOffsetsRequest:
    groups: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup]
    class DescribeShareGroupOffsetsRequestGroup:
        group_id: str
        topics: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None

    class DescribeShareGroupOffsetsRequestTopic:
        topic_name: str
        partitions: list[int]

class AlterShareGroupOffsetsRequest:
    group_id: str
    topics: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic]
    class AlterShareGroupOffsetsRequestTopic:
        topic_name: str
        partitions: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition]

    class AlterShareGroupOffsetsRequestPartition:
        partition_index: int
        start_offset: int

class DeleteShareGroupOffsetsRequest:
    group_id: str
    topics: list[DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic]
    class DeleteShareGroupOffsetsRequestTopic:
        topic_name: str

class StreamsGroupTopologyDescriptionUpdateRequest:
    group_id: str
    member_id: str
    topology_epoch: int
    topology_description: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescription
    class TopologyDescription:
        subtopologies: list[
            StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionSubtopology
        ]
        global_stores: list[
            StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionGlobalStore
        ]

    class TopologyDescriptionSubtopology:
        subtopology_id: str
        nodes: list[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode]

    class TopologyDescriptionNode:
        name: str
        node_type: int
        source_topics: list[str]
        sink_topic: str | None
        stores: list[str]
        successors: list[str]

    class TopologyDescriptionGlobalStore:
        source: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode
        processor: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode

class UnregisterControllerRequest:
    controller_id: int
