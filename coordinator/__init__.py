"""Replicated decisions about leaders, in-sync replicas, topics, groups and transactions.

A decision is a command in a Raft log (`raft/`), and is checked where it is applied. `commands`
lists the commands, and `cluster_state` applies them with the files in `rules/`. Begin with
`elections`, which has the rules of one partition on which the safety of all data rests.
`controller` has the duties of the log's leader, with a server in `node.controller.service` and a
client in `node.controller.client`.

This package does not depend on logs on disk, on client connections, or on the meaning of a topic's
configuration.
"""
