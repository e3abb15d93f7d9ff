# Made by tests/tidy/test_message_types.py.
from typing import TypedDict, TypeVar

from .schema_encoder import Each

Item = TypeVar("Item")
Array = list[Item] | tuple[Item, ...] | Each[Item]

class ListOffsets:
    class Response(TypedDict, total=False):
        topics: Array[ListOffsets.ListOffsetsTopicResponse]
        throttle_time: int

    class ListOffsetsTopicResponse(TypedDict, total=False):
        name: str
        partitions: Array[ListOffsets.ListOffsetsPartitionResponse]

    class ListOffsetsPartitionResponse(TypedDict, total=False):
        partition_index: int
        error_code: int
        timestamp: int
        offset: int
        leader_epoch: int

class Metadata:
    class Response(TypedDict, total=False):
        brokers: Array[Metadata.MetadataResponseBroker]
        topics: Array[Metadata.MetadataResponseTopic]
        controller_id: int
        cluster_id: str | None
        throttle_time: int
        cluster_authorized_operations: int
        error_code: int

    class MetadataResponseBroker(TypedDict, total=False):
        node_id: int
        host: str
        port: int
        rack: str | None

    class MetadataResponseTopic(TypedDict, total=False):
        error_code: int
        name: str | None
        partitions: Array[Metadata.MetadataResponsePartition]
        is_internal: bool
        topic_authorized_operations: int
        topic_id: bytes

    class MetadataResponsePartition(TypedDict, total=False):
        error_code: int
        partition_index: int
        leader_id: int
        replica_nodes: Array[int]
        isr_nodes: Array[int]
        offline_replicas: Array[int]
        leader_epoch: int

class OffsetCommit:
    class Response(TypedDict, total=False):
        topics: Array[OffsetCommit.OffsetCommitResponseTopic]
        throttle_time: int

    class OffsetCommitResponseTopic(TypedDict, total=False):
        name: str
        partitions: Array[OffsetCommit.OffsetCommitResponsePartition]
        topic_id: bytes

    class OffsetCommitResponsePartition(TypedDict, total=False):
        partition_index: int
        error_code: int

class OffsetFetch:
    class Response(TypedDict, total=False):
        topics: Array[OffsetFetch.OffsetFetchResponseTopic]
        error_code: int
        throttle_time: int
        groups: Array[OffsetFetch.OffsetFetchResponseGroup]

    class OffsetFetchResponseTopic(TypedDict, total=False):
        name: str
        partitions: Array[OffsetFetch.OffsetFetchResponsePartition]

    class OffsetFetchResponsePartition(TypedDict, total=False):
        partition_index: int
        committed_offset: int
        metadata: str | None
        error_code: int
        committed_leader_epoch: int

    class OffsetFetchResponseGroup(TypedDict, total=False):
        group_id: str
        topics: Array[OffsetFetch.OffsetFetchResponseTopics]
        error_code: int

    class OffsetFetchResponseTopics(TypedDict, total=False):
        name: str
        partitions: Array[OffsetFetch.OffsetFetchResponsePartitions]
        topic_id: bytes

    class OffsetFetchResponsePartitions(TypedDict, total=False):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        metadata: str | None
        error_code: int

class FindCoordinator:
    class Response(TypedDict, total=False):
        error_code: int
        node_id: int
        host: str
        port: int
        throttle_time: int
        error_message: str | None
        coordinators: Array[FindCoordinator.Coordinator]

    class Coordinator(TypedDict, total=False):
        key: str
        node_id: int
        host: str
        port: int
        error_code: int
        error_message: str | None

class JoinGroup:
    class Response(TypedDict, total=False):
        error_code: int
        generation_id: int
        protocol_name: str | None
        leader: str
        member_id: str
        members: Array[JoinGroup.JoinGroupResponseMember]
        throttle_time: int
        protocol_type: str | None
        skip_assignment: bool

    class JoinGroupResponseMember(TypedDict, total=False):
        member_id: str
        metadata: bytes
        group_instance_id: str | None

class Heartbeat:
    class Response(TypedDict, total=False):
        error_code: int
        throttle_time: int

class LeaveGroup:
    class Response(TypedDict, total=False):
        error_code: int
        throttle_time: int
        members: Array[LeaveGroup.MemberResponse]

    class MemberResponse(TypedDict, total=False):
        member_id: str
        group_instance_id: str | None
        error_code: int

class SyncGroup:
    class Response(TypedDict, total=False):
        error_code: int
        assignment: bytes
        throttle_time: int
        protocol_type: str | None
        protocol_name: str | None

class DescribeGroups:
    class Response(TypedDict, total=False):
        groups: Array[DescribeGroups.DescribedGroup]
        throttle_time: int

    class DescribedGroup(TypedDict, total=False):
        error_code: int
        group_id: str
        group_state: str
        protocol_type: str
        protocol_data: str
        members: Array[DescribeGroups.DescribedGroupMember]
        authorized_operations: int
        error_message: str | None

    class DescribedGroupMember(TypedDict, total=False):
        member_id: str
        client_id: str
        client_host: str
        member_metadata: bytes
        member_assignment: bytes
        group_instance_id: str | None

class ListGroups:
    class Response(TypedDict, total=False):
        error_code: int
        groups: Array[ListGroups.ListedGroup]
        throttle_time: int

    class ListedGroup(TypedDict, total=False):
        group_id: str
        protocol_type: str
        group_state: str
        group_type: str

class SaslHandshake:
    class Response(TypedDict, total=False):
        error_code: int
        mechanisms: Array[str]

class ApiVersions:
    class Response(TypedDict, total=False):
        error_code: int
        api_keys: Array[ApiVersions.ApiVersion]
        throttle_time: int
        supported_features: Array[ApiVersions.SupportedFeatureKey]
        finalized_features_epoch: int
        finalized_features: Array[ApiVersions.FinalizedFeatureKey]
        zk_migration_ready: bool

    class ApiVersion(TypedDict, total=False):
        api_key: int
        min_version: int
        max_version: int

    class SupportedFeatureKey(TypedDict, total=False):
        name: str
        min_version: int
        max_version: int

    class FinalizedFeatureKey(TypedDict, total=False):
        name: str
        max_version_level: int
        min_version_level: int

class CreateTopics:
    class Response(TypedDict, total=False):
        throttle_time: int
        topics: Array[CreateTopics.CreatableTopicResult]

    class CreatableTopicResult(TypedDict, total=False):
        name: str
        error_code: int
        error_message: str | None
        topic_config_error_code: int
        num_partitions: int
        replication_factor: int
        configs: Array[CreateTopics.CreatableTopicConfigs] | None
        topic_id: bytes

    class CreatableTopicConfigs(TypedDict, total=False):
        name: str
        value: str | None
        read_only: bool
        config_source: int
        is_sensitive: bool

class DeleteTopics:
    class Response(TypedDict, total=False):
        throttle_time: int
        responses: Array[DeleteTopics.DeletableTopicResult]

    class DeletableTopicResult(TypedDict, total=False):
        name: str | None
        error_code: int
        error_message: str | None
        topic_id: bytes

class DeleteRecords:
    class Response(TypedDict, total=False):
        throttle_time: int
        topics: Array[DeleteRecords.DeleteRecordsTopicResult]

    class DeleteRecordsTopicResult(TypedDict, total=False):
        name: str
        partitions: Array[DeleteRecords.DeleteRecordsPartitionResult]

    class DeleteRecordsPartitionResult(TypedDict, total=False):
        partition_index: int
        low_watermark: int
        error_code: int

class InitProducerId:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        producer_id: int
        producer_epoch: int
        ongoing_txn_producer_id: int
        ongoing_txn_producer_epoch: int

class OffsetForLeaderEpoch:
    class Response(TypedDict, total=False):
        throttle_time: int
        topics: Array[OffsetForLeaderEpoch.OffsetForLeaderTopicResult]

    class OffsetForLeaderTopicResult(TypedDict, total=False):
        topic: str
        partitions: Array[OffsetForLeaderEpoch.EpochEndOffset]

    class EpochEndOffset(TypedDict, total=False):
        error_code: int
        partition: int
        leader_epoch: int
        end_offset: int

class AddPartitionsToTxn:
    class Response(TypedDict, total=False):
        throttle_time: int
        results_by_topic_v3_and_below: Array[AddPartitionsToTxn.AddPartitionsToTxnTopicResult]
        error_code: int
        results_by_transaction: Array[AddPartitionsToTxn.AddPartitionsToTxnResult]

    class AddPartitionsToTxnTopicResult(TypedDict, total=False):
        name: str
        results_by_partition: Array[AddPartitionsToTxn.AddPartitionsToTxnPartitionResult]

    class AddPartitionsToTxnPartitionResult(TypedDict, total=False):
        partition_index: int
        partition_error_code: int

    class AddPartitionsToTxnResult(TypedDict, total=False):
        transactional_id: str
        topic_results: Array[AddPartitionsToTxn.AddPartitionsToTxnTopicResult]

class AddOffsetsToTxn:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int

class EndTxn:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        producer_id: int
        producer_epoch: int

class WriteTxnMarkers:
    class Response(TypedDict, total=False):
        markers: Array[WriteTxnMarkers.WritableTxnMarkerResult]

    class WritableTxnMarkerResult(TypedDict, total=False):
        producer_id: int
        topics: Array[WriteTxnMarkers.WritableTxnMarkerTopicResult]

    class WritableTxnMarkerTopicResult(TypedDict, total=False):
        name: str
        partitions: Array[WriteTxnMarkers.WritableTxnMarkerPartitionResult]

    class WritableTxnMarkerPartitionResult(TypedDict, total=False):
        partition_index: int
        error_code: int

class TxnOffsetCommit:
    class Response(TypedDict, total=False):
        throttle_time: int
        topics: Array[TxnOffsetCommit.TxnOffsetCommitResponseTopic]

    class TxnOffsetCommitResponseTopic(TypedDict, total=False):
        name: str
        partitions: Array[TxnOffsetCommit.TxnOffsetCommitResponsePartition]
        topic_id: bytes

    class TxnOffsetCommitResponsePartition(TypedDict, total=False):
        partition_index: int
        error_code: int

class DescribeAcls:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        error_message: str | None
        resources: Array[DescribeAcls.DescribeAclsResource]

    class DescribeAclsResource(TypedDict, total=False):
        resource_type: int
        resource_name: str
        pattern_type: int
        acls: Array[DescribeAcls.AclDescription]

    class AclDescription(TypedDict, total=False):
        principal: str
        host: str
        operation: int
        permission_type: int

class CreateAcls:
    class Response(TypedDict, total=False):
        throttle_time: int
        results: Array[CreateAcls.AclCreationResult]

    class AclCreationResult(TypedDict, total=False):
        error_code: int
        error_message: str | None

class DeleteAcls:
    class Response(TypedDict, total=False):
        throttle_time: int
        filter_results: Array[DeleteAcls.DeleteAclsFilterResult]

    class DeleteAclsFilterResult(TypedDict, total=False):
        error_code: int
        error_message: str | None
        matching_acls: Array[DeleteAcls.DeleteAclsMatchingAcl]

    class DeleteAclsMatchingAcl(TypedDict, total=False):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int

class DescribeConfigs:
    class Response(TypedDict, total=False):
        throttle_time: int
        results: Array[DescribeConfigs.DescribeConfigsResult]

    class DescribeConfigsResult(TypedDict, total=False):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        configs: Array[DescribeConfigs.DescribeConfigsResourceResult]

    class DescribeConfigsResourceResult(TypedDict, total=False):
        name: str
        value: str | None
        read_only: bool
        config_source: int
        is_sensitive: bool
        synonyms: Array[DescribeConfigs.DescribeConfigsSynonym]
        config_type: int
        documentation: str | None

    class DescribeConfigsSynonym(TypedDict, total=False):
        name: str
        value: str | None
        source: int

class AlterConfigs:
    class Response(TypedDict, total=False):
        throttle_time: int
        responses: Array[AlterConfigs.AlterConfigsResourceResponse]

    class AlterConfigsResourceResponse(TypedDict, total=False):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str

class AlterReplicaLogDirs:
    class Response(TypedDict, total=False):
        throttle_time: int
        results: Array[AlterReplicaLogDirs.AlterReplicaLogDirTopicResult]

    class AlterReplicaLogDirTopicResult(TypedDict, total=False):
        topic_name: str
        partitions: Array[AlterReplicaLogDirs.AlterReplicaLogDirPartitionResult]

    class AlterReplicaLogDirPartitionResult(TypedDict, total=False):
        partition_index: int
        error_code: int

class DescribeLogDirs:
    class Response(TypedDict, total=False):
        throttle_time: int
        results: Array[DescribeLogDirs.DescribeLogDirsResult]
        error_code: int

    class DescribeLogDirsResult(TypedDict, total=False):
        error_code: int
        log_dir: str
        topics: Array[DescribeLogDirs.DescribeLogDirsTopic]
        total_bytes: int
        usable_bytes: int
        is_cordoned: bool

    class DescribeLogDirsTopic(TypedDict, total=False):
        name: str
        partitions: Array[DescribeLogDirs.DescribeLogDirsPartition]

    class DescribeLogDirsPartition(TypedDict, total=False):
        partition_index: int
        partition_size: int
        offset_lag: int
        is_future_key: bool

class SaslAuthenticate:
    class Response(TypedDict, total=False):
        error_code: int
        error_message: str | None
        auth_bytes: bytes
        session_lifetime: int

class CreatePartitions:
    class Response(TypedDict, total=False):
        throttle_time: int
        results: Array[CreatePartitions.CreatePartitionsTopicResult]

    class CreatePartitionsTopicResult(TypedDict, total=False):
        name: str
        error_code: int
        error_message: str | None

class CreateDelegationToken:
    class Response(TypedDict, total=False):
        error_code: int
        principal_type: str
        principal_name: str
        issue_timestamp: int
        expiry_timestamp: int
        max_timestamp: int
        token_id: str
        hmac: bytes
        throttle_time: int
        token_requester_principal_type: str
        token_requester_principal_name: str

class RenewDelegationToken:
    class Response(TypedDict, total=False):
        error_code: int
        expiry_timestamp: int
        throttle_time: int

class ExpireDelegationToken:
    class Response(TypedDict, total=False):
        error_code: int
        expiry_timestamp: int
        throttle_time: int

class DescribeDelegationToken:
    class Response(TypedDict, total=False):
        error_code: int
        tokens: Array[DescribeDelegationToken.DescribedDelegationToken]
        throttle_time: int

    class DescribedDelegationToken(TypedDict, total=False):
        principal_type: str
        principal_name: str
        issue_timestamp: int
        expiry_timestamp: int
        max_timestamp: int
        token_id: str
        hmac: bytes
        renewers: Array[DescribeDelegationToken.DescribedDelegationTokenRenewer]
        token_requester_principal_type: str
        token_requester_principal_name: str

    class DescribedDelegationTokenRenewer(TypedDict, total=False):
        principal_type: str
        principal_name: str

class DeleteGroups:
    class Response(TypedDict, total=False):
        throttle_time: int
        results: Array[DeleteGroups.DeletableGroupResult]

    class DeletableGroupResult(TypedDict, total=False):
        group_id: str
        error_code: int
        error_message: str | None

class ElectLeaders:
    class Response(TypedDict, total=False):
        throttle_time: int
        replica_election_results: Array[ElectLeaders.ReplicaElectionResult]
        error_code: int

    class ReplicaElectionResult(TypedDict, total=False):
        topic: str
        partition_result: Array[ElectLeaders.PartitionResult]

    class PartitionResult(TypedDict, total=False):
        partition_id: int
        error_code: int
        error_message: str | None

class IncrementalAlterConfigs:
    class Response(TypedDict, total=False):
        throttle_time: int
        responses: Array[IncrementalAlterConfigs.AlterConfigsResourceResponse]

    class AlterConfigsResourceResponse(TypedDict, total=False):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str

class AlterPartitionReassignments:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        error_message: str | None
        responses: Array[AlterPartitionReassignments.ReassignableTopicResponse]
        allow_replication_factor_change: bool

    class ReassignableTopicResponse(TypedDict, total=False):
        name: str
        partitions: Array[AlterPartitionReassignments.ReassignablePartitionResponse]

    class ReassignablePartitionResponse(TypedDict, total=False):
        partition_index: int
        error_code: int
        error_message: str | None

class ListPartitionReassignments:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        error_message: str | None
        topics: Array[ListPartitionReassignments.OngoingTopicReassignment]

    class OngoingTopicReassignment(TypedDict, total=False):
        name: str
        partitions: Array[ListPartitionReassignments.OngoingPartitionReassignment]

    class OngoingPartitionReassignment(TypedDict, total=False):
        partition_index: int
        replicas: Array[int]
        adding_replicas: Array[int]
        removing_replicas: Array[int]

class OffsetDelete:
    class Response(TypedDict, total=False):
        error_code: int
        throttle_time: int
        topics: Array[OffsetDelete.OffsetDeleteResponseTopic]

    class OffsetDeleteResponseTopic(TypedDict, total=False):
        name: str
        partitions: Array[OffsetDelete.OffsetDeleteResponsePartition]

    class OffsetDeleteResponsePartition(TypedDict, total=False):
        partition_index: int
        error_code: int

class DescribeClientQuotas:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        error_message: str | None
        entries: Array[DescribeClientQuotas.EntryData] | None

    class EntryData(TypedDict, total=False):
        entity: Array[DescribeClientQuotas.EntityData]
        values: Array[DescribeClientQuotas.ValueData]

    class EntityData(TypedDict, total=False):
        entity_type: str
        entity_name: str | None

    class ValueData(TypedDict, total=False):
        key: str
        value: float

class AlterClientQuotas:
    class Response(TypedDict, total=False):
        throttle_time: int
        entries: Array[AlterClientQuotas.EntryData]

    class EntryData(TypedDict, total=False):
        error_code: int
        error_message: str | None
        entity: Array[AlterClientQuotas.EntityData]

    class EntityData(TypedDict, total=False):
        entity_type: str
        entity_name: str | None

class DescribeUserScramCredentials:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        error_message: str | None
        results: Array[DescribeUserScramCredentials.DescribeUserScramCredentialsResult]

    class DescribeUserScramCredentialsResult(TypedDict, total=False):
        user: str
        error_code: int
        error_message: str | None
        credential_infos: Array[DescribeUserScramCredentials.CredentialInfo]

    class CredentialInfo(TypedDict, total=False):
        mechanism: int
        iterations: int

class AlterUserScramCredentials:
    class Response(TypedDict, total=False):
        throttle_time: int
        results: Array[AlterUserScramCredentials.AlterUserScramCredentialsResult]

    class AlterUserScramCredentialsResult(TypedDict, total=False):
        user: str
        error_code: int
        error_message: str | None

class DescribeQuorum:
    class Response(TypedDict, total=False):
        error_code: int
        topics: Array[DescribeQuorum.TopicData]
        error_message: str | None
        nodes: Array[DescribeQuorum.Node]

    class TopicData(TypedDict, total=False):
        topic_name: str
        partitions: Array[DescribeQuorum.PartitionData]

    class PartitionData(TypedDict, total=False):
        partition_index: int
        error_code: int
        leader_id: int
        leader_epoch: int
        high_watermark: int
        current_voters: Array[DescribeQuorum.ReplicaState]
        observers: Array[DescribeQuorum.ReplicaState]
        error_message: str | None

    class ReplicaState(TypedDict, total=False):
        replica_id: int
        log_end_offset: int
        last_fetch_timestamp: int
        last_caught_up_timestamp: int
        replica_directory_id: bytes

    class Node(TypedDict, total=False):
        node_id: int
        listeners: Array[DescribeQuorum.Listener]

    class Listener(TypedDict, total=False):
        name: str
        host: str
        port: int

class UpdateFeatures:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        error_message: str | None
        results: Array[UpdateFeatures.UpdatableFeatureResult]

    class UpdatableFeatureResult(TypedDict, total=False):
        feature: str
        error_code: int
        error_message: str | None

class DescribeCluster:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        error_message: str | None
        cluster_id: str
        controller_id: int
        brokers: Array[DescribeCluster.DescribeClusterBroker]
        cluster_authorized_operations: int
        endpoint_type: int

    class DescribeClusterBroker(TypedDict, total=False):
        broker_id: int
        host: str
        port: int
        rack: str | None
        is_fenced: bool

class DescribeProducers:
    class Response(TypedDict, total=False):
        throttle_time: int
        topics: Array[DescribeProducers.TopicResponse]

    class TopicResponse(TypedDict, total=False):
        name: str
        partitions: Array[DescribeProducers.PartitionResponse]

    class PartitionResponse(TypedDict, total=False):
        partition_index: int
        error_code: int
        error_message: str | None
        active_producers: Array[DescribeProducers.ProducerState]

    class ProducerState(TypedDict, total=False):
        producer_id: int
        producer_epoch: int
        last_sequence: int
        last_timestamp: int
        coordinator_epoch: int
        current_txn_start_offset: int

class UnregisterBroker:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        error_message: str | None

class DescribeTransactions:
    class Response(TypedDict, total=False):
        throttle_time: int
        transaction_states: Array[DescribeTransactions.TransactionState]

    class TransactionState(TypedDict, total=False):
        error_code: int
        transactional_id: str
        transaction_state: str
        transaction_timeout: int
        transaction_start_time: int
        producer_id: int
        producer_epoch: int
        topics: Array[DescribeTransactions.TopicData]

    class TopicData(TypedDict, total=False):
        topic: str
        partitions: Array[int]

class ListTransactions:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        unknown_state_filters: Array[str]
        transaction_states: Array[ListTransactions.TransactionState]

    class TransactionState(TypedDict, total=False):
        transactional_id: str
        producer_id: int
        transaction_state: str

class ConsumerGroupHeartbeat:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        error_message: str | None
        member_id: str | None
        member_epoch: int
        heartbeat_interval: int
        assignment: ConsumerGroupHeartbeat.Assignment | None

    class Assignment(TypedDict, total=False):
        topic_partitions: Array[ConsumerGroupHeartbeat.TopicPartitions]

    class TopicPartitions(TypedDict, total=False):
        topic_id: bytes
        partitions: Array[int]

class ConsumerGroupDescribe:
    class Response(TypedDict, total=False):
        throttle_time: int
        groups: Array[ConsumerGroupDescribe.DescribedGroup]

    class DescribedGroup(TypedDict, total=False):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: Array[ConsumerGroupDescribe.Member]
        authorized_operations: int

    class Member(TypedDict, total=False):
        member_id: str
        instance_id: str | None
        rack_id: str | None
        member_epoch: int
        client_id: str
        client_host: str
        subscribed_topic_names: Array[str]
        subscribed_topic_regex: str | None
        assignment: ConsumerGroupDescribe.Assignment
        target_assignment: ConsumerGroupDescribe.Assignment
        member_type: int

    class Assignment(TypedDict, total=False):
        topic_partitions: Array[ConsumerGroupDescribe.TopicPartitions]

    class TopicPartitions(TypedDict, total=False):
        topic_id: bytes
        topic_name: str
        partitions: Array[int]

class GetTelemetrySubscriptions:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        client_instance_id: bytes
        subscription_id: int
        accepted_compression_types: Array[int]
        push_interval: int
        telemetry_max_bytes: int
        delta_temporality: bool
        requested_metrics: Array[str]

class PushTelemetry:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int

class ListConfigResources:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        config_resources: Array[ListConfigResources.ConfigResource]

    class ConfigResource(TypedDict, total=False):
        resource_name: str
        resource_type: int

class DescribeTopicPartitions:
    class Response(TypedDict, total=False):
        throttle_time: int
        topics: Array[DescribeTopicPartitions.DescribeTopicPartitionsResponseTopic]
        next_cursor: DescribeTopicPartitions.Cursor | None

    class DescribeTopicPartitionsResponseTopic(TypedDict, total=False):
        error_code: int
        name: str | None
        topic_id: bytes
        is_internal: bool
        partitions: Array[DescribeTopicPartitions.DescribeTopicPartitionsResponsePartition]
        topic_authorized_operations: int

    class DescribeTopicPartitionsResponsePartition(TypedDict, total=False):
        error_code: int
        partition_index: int
        leader_id: int
        leader_epoch: int
        replica_nodes: Array[int]
        isr_nodes: Array[int]
        eligible_leader_replicas: Array[int] | None
        last_known_elr: Array[int] | None
        offline_replicas: Array[int]

    class Cursor(TypedDict, total=False):
        topic_name: str
        partition_index: int

class ShareGroupHeartbeat:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        error_message: str | None
        member_id: str | None
        member_epoch: int
        heartbeat_interval: int
        assignment: ShareGroupHeartbeat.Assignment | None

    class Assignment(TypedDict, total=False):
        topic_partitions: Array[ShareGroupHeartbeat.TopicPartitions]

    class TopicPartitions(TypedDict, total=False):
        topic_id: bytes
        partitions: Array[int]

class ShareGroupDescribe:
    class Response(TypedDict, total=False):
        throttle_time: int
        groups: Array[ShareGroupDescribe.DescribedGroup]

    class DescribedGroup(TypedDict, total=False):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: Array[ShareGroupDescribe.Member]
        authorized_operations: int

    class Member(TypedDict, total=False):
        member_id: str
        rack_id: str | None
        member_epoch: int
        client_id: str
        client_host: str
        subscribed_topic_names: Array[str]
        assignment: ShareGroupDescribe.Assignment

    class Assignment(TypedDict, total=False):
        topic_partitions: Array[ShareGroupDescribe.TopicPartitions]

    class TopicPartitions(TypedDict, total=False):
        topic_id: bytes
        topic_name: str
        partitions: Array[int]

class ShareFetch:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        error_message: str | None
        acquisition_lock_timeout: int
        responses: Array[ShareFetch.ShareFetchableTopicResponse]
        node_endpoints: Array[ShareFetch.NodeEndpoint]

    class ShareFetchableTopicResponse(TypedDict, total=False):
        topic_id: bytes
        partitions: Array[ShareFetch.PartitionData]

    class PartitionData(TypedDict, total=False):
        partition_index: int
        error_code: int
        error_message: str | None
        acknowledge_error_code: int
        acknowledge_error_message: str | None
        current_leader: ShareFetch.LeaderIdAndEpoch
        records: bytes
        acquired_records: Array[ShareFetch.AcquiredRecords]

    class LeaderIdAndEpoch(TypedDict, total=False):
        leader_id: int
        leader_epoch: int

    class AcquiredRecords(TypedDict, total=False):
        first_offset: int
        last_offset: int
        delivery_count: int

    class NodeEndpoint(TypedDict, total=False):
        node_id: int
        host: str
        port: int
        rack: str | None

class ShareAcknowledge:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        error_message: str | None
        responses: Array[ShareAcknowledge.ShareAcknowledgeTopicResponse]
        node_endpoints: Array[ShareAcknowledge.NodeEndpoint]
        acquisition_lock_timeout: int

    class ShareAcknowledgeTopicResponse(TypedDict, total=False):
        topic_id: bytes
        partitions: Array[ShareAcknowledge.PartitionData]

    class PartitionData(TypedDict, total=False):
        partition_index: int
        error_code: int
        error_message: str | None
        current_leader: ShareAcknowledge.LeaderIdAndEpoch

    class LeaderIdAndEpoch(TypedDict, total=False):
        leader_id: int
        leader_epoch: int

    class NodeEndpoint(TypedDict, total=False):
        node_id: int
        host: str
        port: int
        rack: str | None

class AddRaftVoter:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        error_message: str | None

class RemoveRaftVoter:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        error_message: str | None

class InitializeShareGroupState:
    class Response(TypedDict, total=False):
        results: Array[InitializeShareGroupState.InitializeStateResult]

    class InitializeStateResult(TypedDict, total=False):
        topic_id: bytes
        partitions: Array[InitializeShareGroupState.PartitionResult]

    class PartitionResult(TypedDict, total=False):
        partition: int
        error_code: int
        error_message: str | None

class ReadShareGroupState:
    class Response(TypedDict, total=False):
        results: Array[ReadShareGroupState.ReadStateResult]

    class ReadStateResult(TypedDict, total=False):
        topic_id: bytes
        partitions: Array[ReadShareGroupState.PartitionResult]

    class PartitionResult(TypedDict, total=False):
        partition: int
        error_code: int
        error_message: str | None
        state_epoch: int
        start_offset: int
        state_batches: Array[ReadShareGroupState.StateBatch]

    class StateBatch(TypedDict, total=False):
        first_offset: int
        last_offset: int
        delivery_state: int
        delivery_count: int

class WriteShareGroupState:
    class Response(TypedDict, total=False):
        results: Array[WriteShareGroupState.WriteStateResult]

    class WriteStateResult(TypedDict, total=False):
        topic_id: bytes
        partitions: Array[WriteShareGroupState.PartitionResult]

    class PartitionResult(TypedDict, total=False):
        partition: int
        error_code: int
        error_message: str | None

class DeleteShareGroupState:
    class Response(TypedDict, total=False):
        results: Array[DeleteShareGroupState.DeleteStateResult]

    class DeleteStateResult(TypedDict, total=False):
        topic_id: bytes
        partitions: Array[DeleteShareGroupState.PartitionResult]

    class PartitionResult(TypedDict, total=False):
        partition: int
        error_code: int
        error_message: str | None

class ReadShareGroupStateSummary:
    class Response(TypedDict, total=False):
        results: Array[ReadShareGroupStateSummary.ReadStateSummaryResult]

    class ReadStateSummaryResult(TypedDict, total=False):
        topic_id: bytes
        partitions: Array[ReadShareGroupStateSummary.PartitionResult]

    class PartitionResult(TypedDict, total=False):
        partition: int
        error_code: int
        error_message: str | None
        state_epoch: int
        leader_epoch: int
        start_offset: int
        delivery_complete_count: int

class StreamsGroupHeartbeat:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        error_message: str | None
        member_id: str
        member_epoch: int
        heartbeat_interval: int
        acceptable_recovery_lag: int
        task_offset_interval: int
        status: Array[StreamsGroupHeartbeat.Status] | None
        active_tasks: Array[StreamsGroupHeartbeat.TaskIds] | None
        standby_tasks: Array[StreamsGroupHeartbeat.TaskIds] | None
        warmup_tasks: Array[StreamsGroupHeartbeat.TaskIds] | None
        endpoint_information_epoch: int
        partitions_by_user_endpoint: Array[StreamsGroupHeartbeat.EndpointToPartitions] | None
        topology_description_required: bool

    class Status(TypedDict, total=False):
        status_code: int
        status_detail: str

    class TaskIds(TypedDict, total=False):
        subtopology_id: str
        partitions: Array[int]

    class EndpointToPartitions(TypedDict, total=False):
        user_endpoint: StreamsGroupHeartbeat.Endpoint
        active_partitions: Array[StreamsGroupHeartbeat.TopicPartition]
        standby_partitions: Array[StreamsGroupHeartbeat.TopicPartition]

    class Endpoint(TypedDict, total=False):
        host: str
        port: int

    class TopicPartition(TypedDict, total=False):
        topic: str
        partitions: Array[int]

class StreamsGroupDescribe:
    class Response(TypedDict, total=False):
        throttle_time: int
        groups: Array[StreamsGroupDescribe.DescribedGroup]

    class DescribedGroup(TypedDict, total=False):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        topology: StreamsGroupDescribe.Topology | None
        members: Array[StreamsGroupDescribe.Member]
        authorized_operations: int
        topology_description: StreamsGroupDescribe.TopologyDescription | None
        topology_description_status: int
        assignor_name: str | None

    class Topology(TypedDict, total=False):
        epoch: int
        subtopologies: Array[StreamsGroupDescribe.Subtopology] | None

    class Subtopology(TypedDict, total=False):
        subtopology_id: str
        source_topics: Array[str]
        repartition_sink_topics: Array[str]
        state_changelog_topics: Array[StreamsGroupDescribe.TopicInfo]
        repartition_source_topics: Array[StreamsGroupDescribe.TopicInfo]

    class TopicInfo(TypedDict, total=False):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: Array[StreamsGroupDescribe.KeyValue]

    class KeyValue(TypedDict, total=False):
        key: str
        value: str

    class Member(TypedDict, total=False):
        member_id: str
        member_epoch: int
        instance_id: str | None
        rack_id: str | None
        client_id: str
        client_host: str
        topology_epoch: int
        process_id: str
        user_endpoint: StreamsGroupDescribe.Endpoint | None
        client_tags: Array[StreamsGroupDescribe.KeyValue]
        task_offsets: Array[StreamsGroupDescribe.TaskOffset]
        task_end_offsets: Array[StreamsGroupDescribe.TaskOffset]
        assignment: StreamsGroupDescribe.Assignment
        target_assignment: StreamsGroupDescribe.Assignment
        is_classic: bool

    class Endpoint(TypedDict, total=False):
        host: str
        port: int

    class TaskOffset(TypedDict, total=False):
        subtopology_id: str
        partition: int
        offset: int

    class Assignment(TypedDict, total=False):
        active_tasks: Array[StreamsGroupDescribe.TaskIds]
        standby_tasks: Array[StreamsGroupDescribe.TaskIds]
        warmup_tasks: Array[StreamsGroupDescribe.TaskIds]

    class TaskIds(TypedDict, total=False):
        subtopology_id: str
        partitions: Array[int]

    class TopologyDescription(TypedDict, total=False):
        subtopologies: Array[StreamsGroupDescribe.TopologyDescriptionSubtopology]
        global_stores: Array[StreamsGroupDescribe.TopologyDescriptionGlobalStore]

    class TopologyDescriptionSubtopology(TypedDict, total=False):
        subtopology_id: str
        nodes: Array[StreamsGroupDescribe.TopologyDescriptionNode]

    class TopologyDescriptionNode(TypedDict, total=False):
        name: str
        node_type: int
        source_topics: Array[str]
        sink_topic: str | None
        stores: Array[str]
        successors: Array[str]

    class TopologyDescriptionGlobalStore(TypedDict, total=False):
        source: StreamsGroupDescribe.TopologyDescriptionNode
        processor: StreamsGroupDescribe.TopologyDescriptionNode

class DescribeShareGroupOffsets:
    class Response(TypedDict, total=False):
        throttle_time: int
        groups: Array[DescribeShareGroupOffsets.DescribeShareGroupOffsetsResponseGroup]

    class DescribeShareGroupOffsetsResponseGroup(TypedDict, total=False):
        group_id: str
        topics: Array[DescribeShareGroupOffsets.DescribeShareGroupOffsetsResponseTopic]
        error_code: int
        error_message: str | None

    class DescribeShareGroupOffsetsResponseTopic(TypedDict, total=False):
        topic_name: str
        topic_id: bytes
        partitions: Array[DescribeShareGroupOffsets.DescribeShareGroupOffsetsResponsePartition]

    class DescribeShareGroupOffsetsResponsePartition(TypedDict, total=False):
        partition_index: int
        start_offset: int
        leader_epoch: int
        error_code: int
        error_message: str | None
        lag: int

class AlterShareGroupOffsets:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        error_message: str | None
        responses: Array[AlterShareGroupOffsets.AlterShareGroupOffsetsResponseTopic]

    class AlterShareGroupOffsetsResponseTopic(TypedDict, total=False):
        topic_name: str
        topic_id: bytes
        partitions: Array[AlterShareGroupOffsets.AlterShareGroupOffsetsResponsePartition]

    class AlterShareGroupOffsetsResponsePartition(TypedDict, total=False):
        partition_index: int
        error_code: int
        error_message: str | None

class DeleteShareGroupOffsets:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        error_message: str | None
        responses: Array[DeleteShareGroupOffsets.DeleteShareGroupOffsetsResponseTopic]

    class DeleteShareGroupOffsetsResponseTopic(TypedDict, total=False):
        topic_name: str
        topic_id: bytes
        error_code: int
        error_message: str | None

class StreamsGroupTopologyDescriptionUpdate:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        error_message: str | None

class UnregisterController:
    class Response(TypedDict, total=False):
        throttle_time: int
        error_code: int
        error_message: str | None
