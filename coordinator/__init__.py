"""Replicated decisions (floor 4): who leads, who is in sync, which topics there are.

A decision is a command in a Raft log (`raft/`), judged where it is applied: `commands` says what
can be asked, `cluster_state` applies it by the files in `rules/`, and `elections` holds the rules
of one partition on which the safety of all data rests: begin there. `controller` is what the leader
of the log watches over, `node.controller.service` and `node.controller.client` are its two ends on
the wire.

It knows nothing of logs on disk, of client connections, or of what a topic config means.
"""
