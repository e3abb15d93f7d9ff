"""The parts that keep the event loop within its budget of 20 ms a turn.

This package imports no other. `steps` cuts work into pieces and `sliced_work` runs them within the
loop's `turn_share`. `background_task` reports tasks that fail, `earliest_timer` serves many
deadlines with one timer, and `garbage_collection` keeps collections short. `c_calls` has calls
without a Python frame for the hot paths. `fault_point` names places at which tests stop a process.
`rate_limited_log` limits repeated log lines, `event_log` writes events, and `metric_families` has
the names of all metrics.
"""
