"""node/handlers/fetch: Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""
