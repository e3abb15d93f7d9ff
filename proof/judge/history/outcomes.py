"""The outcome of an operation by its client's error, which is certain failure or doubt.

The file does no I/O. A wrong rule here would hide bugs or report false ones, so each rule has its
reason. Only EndTxn(commit) can commit, so an error before the commit call is definite. At the
commit call an error leaves three cases. The following abort succeeded (definite). The abort was
refused because there was no transaction to end (definite). Otherwise the outcome is unknown. There
are two differences from the rules of other testers. A fence as the answer to a *repeated*
EndTxn(commit) is ambiguous, since the first attempt may have committed. Libraries repeat EndTxn
silently, so without a count of attempts a fence at commit is ambiguous, too.
"""

from .schema import OpOutcome

# Kafka's error codes by number, so that any client's error can be judged.
INVALID_TXN_STATE = 48
FENCES = frozenset({47, 90})  # INVALID_PRODUCER_EPOCH, PRODUCER_FENCED
DEFINITE_OF_A_SEND = frozenset(
    {
        2,  # CORRUPT_MESSAGE: refused before the append
        3,  # UNKNOWN_TOPIC_OR_PARTITION
        10,  # MESSAGE_TOO_LARGE
        17,  # INVALID_TOPIC_EXCEPTION
        18,  # RECORD_LIST_TOO_LARGE
        19,  # NOT_ENOUGH_REPLICAS: refused before the append
        29,  # TOPIC_AUTHORIZATION_FAILED
        31,  # CLUSTER_AUTHORIZATION_FAILED
        32,  # INVALID_TIMESTAMP
        41,  # NOT_CONTROLLER
        45,  # OUT_OF_ORDER_SEQUENCE_NUMBER
        53,  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        87,  # INVALID_RECORD
        *FENCES,
    }
)
# Or the member's end; 82: FENCED_INSTANCE_ID, 110: FENCED_MEMBER_EPOCH
GENERATION_IS_OVER = frozenset({22, 25, 82, 110})
# After these errors a client is unusable, so its process ends and a new one is created.
ENDS_THE_PROCESS = frozenset({45, 29, 31, 53, *FENCES})


def outcome_of_send(error: int | None, attempts: int | None = 1) -> OpOutcome:
    """Return the outcome of a send outside of transactions, given its error.

    An error that certainly refuses the first request is FAIL, any other error is INFO.
    NOT_LEADER_OR_FOLLOWER is INFO, because the write may still succeed (KAFKA-13574). After several
    attempts an error is INFO, since an earlier attempt may have written the record, unless the
    error refuses the record itself. A broker of ours answers a record that it has appended before
    as a duplicate, without such an error. Apache Kafka checks timestamp and size limits first, so
    while these limits are changed its refusals prove less.
    """
    if error is None:
        return OpOutcome.OK
    if error not in DEFINITE_OF_A_SEND:
        return OpOutcome.INFO
    is_of_the_record = error in {2, 10, 17, 18, 32, 87}
    return OpOutcome.FAIL if attempts == 1 or is_of_the_record else OpOutcome.INFO


def outcome_of_group_commit(error: int | None, attempts: int) -> OpOutcome:
    """Return the outcome of an OffsetCommit outside of transactions, given its error.

    FAIL is certain only if no request was sent, or if the only request was refused because its
    generation or member is over. If there were several requests, an earlier one may have been
    executed, or may still be. Any other error is INFO.
    """
    if error is None:
        return OpOutcome.OK
    is_certain = attempts == 0 or (attempts == 1 and error in GENERATION_IS_OVER)
    return OpOutcome.FAIL if is_certain else OpOutcome.INFO


def outcome_of_transaction(
    *,
    commit_invoked: bool = True,
    commit_error: int | None = None,
    attempts: int | None = 1,
    abort_succeeded: bool | None = None,
) -> OpOutcome:
    """Return the outcome of a transaction by its client's errors (see the top of the file).

    commit_error: None when the commit call returned. attempts: the number of EndTxn(commit)
    requests, or None if the library does not report it. abort_succeeded: None without an attempt.
    """
    if not commit_invoked:
        return OpOutcome.FAIL
    if commit_error is None:
        return OpOutcome.OK
    if abort_succeeded:
        # a granted abort proves that no commit was decided before it
        return OpOutcome.FAIL
    had_none_to_end = commit_error == INVALID_TXN_STATE and abort_succeeded is False
    is_definite = had_none_to_end or commit_error in DEFINITE_OF_A_SEND
    return OpOutcome.FAIL if is_definite and attempts == 1 else OpOutcome.INFO
