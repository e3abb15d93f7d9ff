"""The APIs Fetch, ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""
