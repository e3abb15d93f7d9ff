"""The coordinators and the controller, which decide about leaders, ISRs, groups and transactions.

A decision about the metadata or a transaction is a command in a Raft log (`raft/`), and is checked
where it is applied. A decision about a group is a set of records in `__consumer_offsets`.
`metadata/commands` lists the commands, and `metadata/cluster_state` applies them with the files in
`metadata/rules/`. Begin with `metadata/elections`, which has the rules of one partition on which
the safety of all data rests. `controller` has the duties of the log's leader, with a server in
`node.controller.service` and a client in `node.controller.client`.

This package does not depend on logs on disk, on client connections, or on the meaning of a topic's
configuration.
"""
