"""Replicated decisions (floor 4): leaders, in-sync replicas, topics.

A decision is a command in a Raft log (`raft/`), judged where it is applied: `commands` lists the
commands, `cluster_state` applies them by the files in `rules/`, and `elections` holds the rules of
one partition on which the safety of all data rests: begin there. `controller` has the duties of the
log's leader, `node.controller.service` and `node.controller.client` are its two ends on the wire.

It does not depend on logs on disk, on client connections, or on the meaning of a topic's
configuration.
"""
