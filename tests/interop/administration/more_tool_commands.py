"""More commands of Kafka's tools, for groups, transactions, partitions and the cluster."""

from .tool_commands import CONFIGS, FORMATTERS, RECORDS, TOPICS, Command, of_tool, row

_RESET = "--reset-offsets --group g --topic t"
GROUPS = (
    *of_tool(
        "consumer.ConsoleConsumer",
        row(
            "a member of the newer protocol",
            "--topic t --group live --command-property group.protocol=consumer",
            begins=True,
        ),
    ),
    *of_tool(
        "consumer.group.ConsumerGroupCommand",
        row("consumer-groups state of a member", "--describe --group live --state", until="Stable"),
        row("consumer-groups list", "--list", is_exact=True),
        row("consumer-groups list states", "--list --state", is_exact=True),
        row("consumer-groups list of a state", "--list --state Empty", is_exact=True),
        row("consumer-groups list types", "--list --type", is_exact=True),
        row("consumer-groups list of a type", "--list --type consumer", is_exact=True),
        row("consumer-groups describe", "--describe --group g"),
        row("consumer-groups describe state", "--describe --group g --state"),
        row("consumer-groups describe members", "--describe --group live --members --verbose"),
        row("consumer-groups describe no members", "--describe --group g --members"),
        row("consumer-groups describe all", "--describe --all-groups --state"),
        row("consumer-groups describe unknown", "--describe --group nobody"),
        row("consumer-groups reset dry", f"{_RESET} --to-offset 1", is_exact=True),
        row("consumer-groups reset earliest", f"{_RESET} --to-earliest --execute", is_exact=True),
        row("consumer-groups reset shift", f"{_RESET} --shift-by 2 --execute", is_exact=True),
        row("consumer-groups reset latest", f"{_RESET} --to-latest --execute"),
        row(
            "consumer-groups reset by time",
            f"{_RESET} --to-datetime 2020-01-01T00:00:00.000 --execute",
            is_exact=True,
        ),
        row("consumer-groups reset by duration", f"{_RESET} --by-duration PT1H --execute"),
        row(
            "consumer-groups reset a live one",
            "--reset-offsets --group live --topic t --to-earliest",
        ),
        row(
            "consumer-groups reset unknown",
            "--reset-offsets --group nobody --topic t --to-earliest --execute",
        ),
        row("consumer-groups export", f"{_RESET} --to-earliest --export", is_exact=True),
        row(
            "consumer-groups from file",
            "--reset-offsets --group g --from-file {folder}/offsets.csv --execute",
            is_exact=True,
        ),
        row(
            "consumer-groups delete offsets",
            "--delete-offsets --group g --topic t:0",
            is_exact=True,
        ),
        row("consumer-groups delete offsets live", "--delete-offsets --group live --topic t"),
        row("consumer-groups delete group", "--delete --group g", is_exact=True),
        row("consumer-groups delete live group", "--delete --group live"),
        row("consumer-groups delete unknown group", "--delete --group nobody"),
    ),
    *of_tool("GroupsCommand", row("groups list", "--list", is_exact=True)),
    *of_tool("consumer.group.ShareGroupCommand", row("share-groups list", "--list")),
    *of_tool(
        "consumer.group.ShareGroupCommand",
        row("share-groups describe", "--describe --group nobody"),
    ),
    *of_tool(
        "consumer.ConsoleShareConsumer",
        row("console-share-consumer", "--topic t --timeout-ms 3000"),
    ),
    *of_tool("streams.StreamsGroupCommand", row("streams-groups list", "--list")),
    *of_tool(
        "streams.StreamsGroupCommand",
        row("streams-groups describe", "--describe --group nobody"),
    ),
    *of_tool("consumer.ConsoleConsumer", row("a member of the newer protocol", "", ends=True)),
    *of_tool(
        "consumer.ConsoleConsumer",
        *(
            row(
                f"formatter {name}",
                f"--topic __{topic} --from-beginning --timeout-ms 4000 "
                f"--formatter {FORMATTERS}{name}MessageFormatter",
                until=until,
            )
            for name, topic, until in (
                ("Offsets", "consumer_offsets", "v-4"),  # the timeout may end before the tool reads
                ("GroupMetadata", "consumer_offsets", "v-4"),
                ("TransactionLog", "transaction_state", ""),
            )
        ),
    ),
)

_AT = "--topic t --partition 0"
TRANSACTIONS = of_tool(
    "TransactionsCommand",
    row("transactions list", "list"),
    row("transactions list by duration", "list --duration-filter 100000"),
    row("transactions list by pattern", "list --transactional-id-pattern per.*"),
    row("transactions list, no pattern", "list --transactional-id-pattern ["),
    row("transactions describe", "describe --transactional-id perf"),
    row("transactions describe unknown", "describe --transactional-id nope"),
    row("transactions describe-producers", f"describe-producers {_AT}"),
    row("transactions find-hanging", "find-hanging --broker-id 1"),
    row("transactions find-hanging of a topic", "find-hanging --topic t"),
    row("transactions abort: nothing is open", f"abort {_AT} --start-offset 0"),
    row("transactions force-terminate", "forceTerminateTransaction --transactionalId perf"),
    row("transactions it is terminated", "describe --transactional-id perf"),
    row(
        "transactions abort, not found",
        f"abort {_AT} --producer-id 9 --producer-epoch 0 --coordinator-epoch 0",
    ),
)

# A broker that has yet to apply the last step shows the replicas of before.
_IS_DONE = r"\A(?!.*(still in progress|rather than))"
_MOVE = "--reassignment-json-file {folder}"
REPLICAS = (
    *of_tool(
        "reassign.ReassignPartitionsCommand",
        row(
            "reassign generate",
            "--topics-to-move-json-file {folder}/topics.json --broker-list 1,2,3 --generate",
        ),
        row("reassign execute", f"{_MOVE}/move.json --execute", is_exact=True),
        row("reassign verify", f"{_MOVE}/move.json --verify", until=_IS_DONE, is_exact=True),
        row("reassign list", "--list", is_exact=True),
        row("reassign shrink", f"{_MOVE}/shrink.json --execute", is_exact=True),
        row("reassign shrink verify", f"{_MOVE}/shrink.json --verify", until=_IS_DONE),
    ),
    *of_tool(
        "reassign.ReassignPartitionsCommand",
        row(
            "reassign execute with throttle",
            f"{_MOVE}/move.json --execute --throttle 50000000 "
            "--replica-alter-log-dirs-throttle 50000000",
            is_exact=True,
        ),
        row(
            "reassign verify with throttle",
            f"{_MOVE}/move.json --verify",
            until=_IS_DONE,
            is_exact=True,
        ),
        row("reassign cancel", f"{_MOVE}/move.json --cancel", is_exact=True),
        row("reassign to an unknown broker", f"{_MOVE}/nowhere.json --execute"),
        row("reassign an unknown topic", f"{_MOVE}/nothing.json --execute"),
    ),
    *of_tool(
        "LeaderElectionCommand",
        row("leader-election preferred", "--election-type preferred --all-topic-partitions"),
        row("leader-election preferred one", f"--election-type preferred {_AT}"),
        row("leader-election unclean one", f"--election-type unclean {_AT}"),
        row("leader-election unknown", "--election-type preferred --topic nope --partition 0"),
    ),
    *of_tool(
        "LogDirsCommand",
        row("log-dirs", "--describe --topic-list assigned"),
        row("log-dirs of an unknown broker", "--describe --broker-list 77"),
    ),
    *of_tool(
        "DeleteRecordsCommand",
        row("delete-records", "--offset-json-file {folder}/records.json", is_exact=True),
        row("delete-records out of range", "--offset-json-file {folder}/beyond.json"),
    ),
    *of_tool(
        "GetOffsetShell",
        row("get-offsets earliest", "--topic assigned --time earliest", is_exact=True),
        row("get-offsets latest", "--topic assigned", is_exact=True),
        row("get-offsets max", "--topic assigned --time max-timestamp", is_exact=True),
        row("get-offsets tiered", "--topic assigned --time latest-tiered", is_exact=True),
        row("get-offsets unknown", "--topic nope"),
    ),
    *of_tool(
        "ReplicaVerificationTool",
        row(
            "replica-verification",
            "--broker-list {bootstrap} --topics-include assigned --report-interval-ms 300",
            server="",
            begins=True,
        ),
        row("replica-verification", "", ends=True, server=""),
    ),
)

_OF_SERVER = "--bootstrap-server {bootstrap}"
CLUSTER = (
    *of_tool(
        "MetadataQuorumCommand",
        row("metadata-quorum status", "describe --status"),
        row("metadata-quorum replication", "describe --replication"),
        row(
            "metadata-quorum remove-controller",
            "remove-controller --controller-id 77 --controller-directory-id AAAAAAAAAAAAAAAAAAAAAQ",
        ),
    ),
    *of_tool(
        "FeatureCommand",
        row("features describe", "describe"),
        row("features upgrade dry", "upgrade --release-version 4.4 --dry-run"),
        row("features upgrade one", "upgrade --feature transaction.version=2 --dry-run"),
        row("features downgrade dry", "downgrade --feature transaction.version=1 --dry-run"),
        row("features too high", "upgrade --feature transaction.version=9"),
        row("features kraft.version", "upgrade --feature kraft.version=1 --dry-run"),
        row("features unknown", "upgrade --feature no.such.feature=1"),
    ),
    *of_tool(
        "ClusterTool",
        row("cluster id", f"cluster-id {_OF_SERVER}", server=""),
        row("cluster endpoints", f"list-endpoints {_OF_SERVER}", server=""),
        row("cluster unregister unknown", f"unregister {_OF_SERVER} --id 77", server=""),
    ),
    *of_tool("BrokerApiVersionsCommand", row("broker-api-versions", "")),
    *of_tool(
        "ClientMetricsCommand",
        row("client-metrics alter", "--alter --name m --interval 9000 --match client_id=x"),
        row("client-metrics list", "--list", until="m", is_exact=True),
        row("client-metrics describe", "--describe --name m", is_exact=True),
        row("client-metrics delete", "--delete --name m", is_exact=True),
        row("client-metrics describe unknown", "--describe --name nope"),
    ),
    *of_tool("AclCommand", row("acls (no authorizer)", "--list")),
    *of_tool(
        "DelegationTokenCommand",
        row("delegation-tokens (off)", "--describe --command-config {folder}/client.properties"),
    ),
    *of_tool(
        "StreamsResetter",
        row("streams reset", "--application-id nobody --input-topics t --dry-run"),
    ),
    *of_tool(
        "TopicCommand",
        row("topics delete", "--delete --topic assigned", is_exact=True),
        row("topics delete unknown", "--delete --topic nope"),
    ),
)

ALL: tuple[Command, ...] = (
    *TOPICS,
    *CONFIGS,
    *RECORDS,
    *GROUPS,
    *TRANSACTIONS,
    *REPLICAS,
    *CLUSTER,
)
