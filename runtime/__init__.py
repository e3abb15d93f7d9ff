"""runtime: what keeps the event loop's budget of 20 ms a turn; the ground floor.

`steps` cuts work into pieces and `sliced_work` runs them within the loop's `turn_share`;
`background_task` keeps tasks that must not die silently, `earliest_timer` one timer for many
deadlines, `garbage_collection` the collector's time; `c_calls` has calls without a Python frame for
the hot paths; `fault_point` names places at which tests stop a process; `rate_limited_log` bounds
repeated log lines, `event_log` writes events; `metric_families` has the names of all metrics.
"""
