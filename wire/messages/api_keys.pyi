# Made by tests/tidy/test_message_types.py.
from typing import Generic, TypeVar

from . import requests, responses

Request = TypeVar("Request")
Response = TypeVar("Response")

class ApiKey(int, Generic[Request, Response]): ...

LIST_OFFSETS: ApiKey[requests.ListOffsetsRequest, responses.ListOffsets.Response]
METADATA: ApiKey[requests.MetadataRequest, responses.Metadata.Response]
OFFSET_COMMIT: ApiKey[requests.OffsetCommitRequest, responses.OffsetCommit.Response]
OFFSET_FETCH: ApiKey[requests.OffsetFetchRequest, responses.OffsetFetch.Response]
FIND_COORDINATOR: ApiKey[requests.FindCoordinatorRequest, responses.FindCoordinator.Response]
JOIN_GROUP: ApiKey[requests.JoinGroupRequest, responses.JoinGroup.Response]
HEARTBEAT: ApiKey[requests.HeartbeatRequest, responses.Heartbeat.Response]
LEAVE_GROUP: ApiKey[requests.LeaveGroupRequest, responses.LeaveGroup.Response]
SYNC_GROUP: ApiKey[requests.SyncGroupRequest, responses.SyncGroup.Response]
DESCRIBE_GROUPS: ApiKey[requests.DescribeGroupsRequest, responses.DescribeGroups.Response]
LIST_GROUPS: ApiKey[requests.ListGroupsRequest, responses.ListGroups.Response]
SASL_HANDSHAKE: ApiKey[requests.SaslHandshakeRequest, responses.SaslHandshake.Response]
API_VERSIONS: ApiKey[requests.ApiVersionsRequest, responses.ApiVersions.Response]
CREATE_TOPICS: ApiKey[requests.CreateTopicsRequest, responses.CreateTopics.Response]
DELETE_TOPICS: ApiKey[requests.DeleteTopicsRequest, responses.DeleteTopics.Response]
DELETE_RECORDS: ApiKey[requests.DeleteRecordsRequest, responses.DeleteRecords.Response]
INIT_PRODUCER_ID: ApiKey[requests.InitProducerIdRequest, responses.InitProducerId.Response]
OFFSET_FOR_LEADER_EPOCH: ApiKey[
    requests.OffsetForLeaderEpochRequest, responses.OffsetForLeaderEpoch.Response
]
ADD_PARTITIONS_TO_TXN: ApiKey[
    requests.AddPartitionsToTxnRequest, responses.AddPartitionsToTxn.Response
]
ADD_OFFSETS_TO_TXN: ApiKey[requests.AddOffsetsToTxnRequest, responses.AddOffsetsToTxn.Response]
END_TXN: ApiKey[requests.EndTxnRequest, responses.EndTxn.Response]
WRITE_TXN_MARKERS: ApiKey[requests.WriteTxnMarkersRequest, responses.WriteTxnMarkers.Response]
TXN_OFFSET_COMMIT: ApiKey[requests.TxnOffsetCommitRequest, responses.TxnOffsetCommit.Response]
DESCRIBE_ACLS: ApiKey[requests.DescribeAclsRequest, responses.DescribeAcls.Response]
CREATE_ACLS: ApiKey[requests.CreateAclsRequest, responses.CreateAcls.Response]
DELETE_ACLS: ApiKey[requests.DeleteAclsRequest, responses.DeleteAcls.Response]
DESCRIBE_CONFIGS: ApiKey[requests.DescribeConfigsRequest, responses.DescribeConfigs.Response]
ALTER_CONFIGS: ApiKey[requests.AlterConfigsRequest, responses.AlterConfigs.Response]
ALTER_REPLICA_LOG_DIRS: ApiKey[
    requests.AlterReplicaLogDirsRequest, responses.AlterReplicaLogDirs.Response
]
DESCRIBE_LOG_DIRS: ApiKey[requests.DescribeLogDirsRequest, responses.DescribeLogDirs.Response]
SASL_AUTHENTICATE: ApiKey[requests.SaslAuthenticateRequest, responses.SaslAuthenticate.Response]
CREATE_PARTITIONS: ApiKey[requests.CreatePartitionsRequest, responses.CreatePartitions.Response]
CREATE_DELEGATION_TOKEN: ApiKey[
    requests.CreateDelegationTokenRequest, responses.CreateDelegationToken.Response
]
RENEW_DELEGATION_TOKEN: ApiKey[
    requests.RenewDelegationTokenRequest, responses.RenewDelegationToken.Response
]
EXPIRE_DELEGATION_TOKEN: ApiKey[
    requests.ExpireDelegationTokenRequest, responses.ExpireDelegationToken.Response
]
DESCRIBE_DELEGATION_TOKEN: ApiKey[
    requests.DescribeDelegationTokenRequest, responses.DescribeDelegationToken.Response
]
DELETE_GROUPS: ApiKey[requests.DeleteGroupsRequest, responses.DeleteGroups.Response]
ELECT_LEADERS: ApiKey[requests.ElectLeadersRequest, responses.ElectLeaders.Response]
INCREMENTAL_ALTER_CONFIGS: ApiKey[
    requests.IncrementalAlterConfigsRequest, responses.IncrementalAlterConfigs.Response
]
ALTER_PARTITION_REASSIGNMENTS: ApiKey[
    requests.AlterPartitionReassignmentsRequest, responses.AlterPartitionReassignments.Response
]
LIST_PARTITION_REASSIGNMENTS: ApiKey[
    requests.ListPartitionReassignmentsRequest, responses.ListPartitionReassignments.Response
]
OFFSET_DELETE: ApiKey[requests.OffsetDeleteRequest, responses.OffsetDelete.Response]
DESCRIBE_CLIENT_QUOTAS: ApiKey[
    requests.DescribeClientQuotasRequest, responses.DescribeClientQuotas.Response
]
ALTER_CLIENT_QUOTAS: ApiKey[requests.AlterClientQuotasRequest, responses.AlterClientQuotas.Response]
DESCRIBE_USER_SCRAM_CREDENTIALS: ApiKey[
    requests.DescribeUserScramCredentialsRequest, responses.DescribeUserScramCredentials.Response
]
ALTER_USER_SCRAM_CREDENTIALS: ApiKey[
    requests.AlterUserScramCredentialsRequest, responses.AlterUserScramCredentials.Response
]
DESCRIBE_QUORUM: ApiKey[requests.DescribeQuorumRequest, responses.DescribeQuorum.Response]
UPDATE_FEATURES: ApiKey[requests.UpdateFeaturesRequest, responses.UpdateFeatures.Response]
DESCRIBE_CLUSTER: ApiKey[requests.DescribeClusterRequest, responses.DescribeCluster.Response]
DESCRIBE_PRODUCERS: ApiKey[requests.DescribeProducersRequest, responses.DescribeProducers.Response]
UNREGISTER_BROKER: ApiKey[requests.UnregisterBrokerRequest, responses.UnregisterBroker.Response]
DESCRIBE_TRANSACTIONS: ApiKey[
    requests.DescribeTransactionsRequest, responses.DescribeTransactions.Response
]
LIST_TRANSACTIONS: ApiKey[requests.ListTransactionsRequest, responses.ListTransactions.Response]
CONSUMER_GROUP_HEARTBEAT: ApiKey[
    requests.ConsumerGroupHeartbeatRequest, responses.ConsumerGroupHeartbeat.Response
]
CONSUMER_GROUP_DESCRIBE: ApiKey[
    requests.ConsumerGroupDescribeRequest, responses.ConsumerGroupDescribe.Response
]
GET_TELEMETRY_SUBSCRIPTIONS: ApiKey[
    requests.GetTelemetrySubscriptionsRequest, responses.GetTelemetrySubscriptions.Response
]
PUSH_TELEMETRY: ApiKey[requests.PushTelemetryRequest, responses.PushTelemetry.Response]
LIST_CONFIG_RESOURCES: ApiKey[
    requests.ListConfigResourcesRequest, responses.ListConfigResources.Response
]
DESCRIBE_TOPIC_PARTITIONS: ApiKey[
    requests.DescribeTopicPartitionsRequest, responses.DescribeTopicPartitions.Response
]
SHARE_GROUP_HEARTBEAT: ApiKey[
    requests.ShareGroupHeartbeatRequest, responses.ShareGroupHeartbeat.Response
]
SHARE_GROUP_DESCRIBE: ApiKey[
    requests.ShareGroupDescribeRequest, responses.ShareGroupDescribe.Response
]
SHARE_FETCH: ApiKey[requests.ShareFetchRequest, responses.ShareFetch.Response]
SHARE_ACKNOWLEDGE: ApiKey[requests.ShareAcknowledgeRequest, responses.ShareAcknowledge.Response]
ADD_RAFT_VOTER: ApiKey[requests.AddRaftVoterRequest, responses.AddRaftVoter.Response]
REMOVE_RAFT_VOTER: ApiKey[requests.RemoveRaftVoterRequest, responses.RemoveRaftVoter.Response]
INITIALIZE_SHARE_GROUP_STATE: ApiKey[
    requests.InitializeShareGroupStateRequest, responses.InitializeShareGroupState.Response
]
READ_SHARE_GROUP_STATE: ApiKey[
    requests.ReadShareGroupStateRequest, responses.ReadShareGroupState.Response
]
WRITE_SHARE_GROUP_STATE: ApiKey[
    requests.WriteShareGroupStateRequest, responses.WriteShareGroupState.Response
]
DELETE_SHARE_GROUP_STATE: ApiKey[
    requests.DeleteShareGroupStateRequest, responses.DeleteShareGroupState.Response
]
READ_SHARE_GROUP_STATE_SUMMARY: ApiKey[
    requests.ReadShareGroupStateSummaryRequest, responses.ReadShareGroupStateSummary.Response
]
STREAMS_GROUP_HEARTBEAT: ApiKey[
    requests.StreamsGroupHeartbeatRequest, responses.StreamsGroupHeartbeat.Response
]
STREAMS_GROUP_DESCRIBE: ApiKey[
    requests.StreamsGroupDescribeRequest, responses.StreamsGroupDescribe.Response
]
DESCRIBE_SHARE_GROUP_OFFSETS: ApiKey[
    requests.DescribeShareGroupOffsetsRequest, responses.DescribeShareGroupOffsets.Response
]
ALTER_SHARE_GROUP_OFFSETS: ApiKey[
    requests.AlterShareGroupOffsetsRequest, responses.AlterShareGroupOffsets.Response
]
DELETE_SHARE_GROUP_OFFSETS: ApiKey[
    requests.DeleteShareGroupOffsetsRequest, responses.DeleteShareGroupOffsets.Response
]
STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: ApiKey[
    requests.StreamsGroupTopologyDescriptionUpdateRequest,
    responses.StreamsGroupTopologyDescriptionUpdate.Response,
]
UNREGISTER_CONTROLLER: ApiKey[
    requests.UnregisterControllerRequest, responses.UnregisterController.Response
]
