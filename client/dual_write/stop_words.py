"""Errors of a dual write, which stop the writer or discard a transaction."""

from ...wire.errors import ErrorCode, KafkaError
from .steps import TransactionKey


class DualWriteError(KafkaError):
    """The transaction does not count, neither in the database nor in Kafka."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class WriterSuperseded(DualWriteError):
    """A newer writer of this name has taken over, and this writer must end."""

    code = ErrorCode.PRODUCER_FENCED


class CheckedBackError(DualWriteError):
    """A check-back aborted the transaction before the writer committed it in the database."""


class BlockNotWhole(DualWriteError):
    """The application has committed or rolled back the database's transaction itself."""

    code = ErrorCode.INVALID_TXN_STATE


class UnsafeDatabase(KafkaError):
    """A dual write is not safe with this database, connection or cluster. The message says why."""

    code = ErrorCode.INVALID_CONFIG


class DecisionInDoubt(KafkaError):
    """It is unknown whether the database has committed. The writer finds out at its next start."""

    code = ErrorCode.INVALID_TXN_STATE


class DecisionOverruled(KafkaError):
    """The database has committed, but Kafka has aborted the transaction. This is an alarm."""

    code = ErrorCode.INVALID_TXN_STATE


def superseded(name: str, generation: int) -> WriterSuperseded:
    return WriterSuperseded(
        f"writer {name!r} of generation {generation} was superseded: a newer one has started, or "
        "somebody has ended its session by hand. "
        "Nothing of this transaction counts; end this process, or start the writer anew (which "
        "supersedes the other one)"
    )


def checked_back(key: TransactionKey) -> CheckedBackError:
    return CheckedBackError(
        f"{key} was aborted by a check-back before the database committed: it had been open for "
        "longer than the check-back waits. Nothing of it counts; run the transaction again, or "
        "give the check-back more time (--older-than)"
    )


def not_whole(reason: BaseException) -> BlockNotWhole:
    return BlockNotWhole(
        "the database's transaction was committed or rolled back inside the block, by "
        "commit(), rollback(), executescript() or SQL, so the block is not one transaction "
        f"({reason}). Its records are aborted; WHAT WAS COMMITTED INSIDE THE BLOCK STANDS in the "
        "database. Leave commit and rollback to the writer"
    )


def in_doubt(key: TransactionKey, reason: BaseException | None) -> DecisionInDoubt:
    return DecisionInDoubt(
        f"the database was lost in its commit ({reason}), and could not be asked again, so it is "
        f"not known whether {key} counts. Do not run the transaction again: start the writer anew "
        "or let a check-back run; both find out, and end it in Kafka as it was decided"
    )


def never_known(key: TransactionKey, reason: BaseException | None) -> DecisionInDoubt:
    return DecisionInDoubt(
        f"the database was lost in its commit of {key} ({reason}), and when it could be asked "
        "again a newer writer of this name had taken over, ended the transaction as it was "
        "decided, and deleted the decision. Rows and records agree; whether they are there your "
        "own rows say. End this process, or start the writer anew"
    )


def connection_lost(name: str) -> DualWriteError:
    return DualWriteError(
        f"the connection that writer {name!r} was given is lost, so it begins no block any more. "
        "Nothing of this one counts: start the writer anew with another connection, or give it a "
        "function that connects, with which it goes on by itself"
    )


def interrupted(name: str, reason: BaseException) -> DualWriteError:
    return DualWriteError(
        f"writer {name!r} was interrupted in the middle of a transaction "
        f"({type(reason).__name__}), which the next start ends as it was decided. Nothing of this "
        "one counts: start the writer anew, as another object"
    )


def outbox_in_doubt(name: str, reason: BaseException) -> DecisionInDoubt:
    return DecisionInDoubt(
        f"the database was lost in a commit of outbox {name!r} ({reason}), so it is not known "
        "whether the transaction counts, rows and records alike. Your own rows say it"
    )


def overruled(key: TransactionKey, reason: BaseException | None) -> DecisionOverruled:
    return DecisionOverruled(
        f"{key} is committed in the database, and was aborted in Kafka by somebody else, `oncelog "
        f"txn abort` perhaps ({reason}). Its records are lost to readers: write them again from "
        f"the database's rows, then delete the row of {key.transactional_id} from the table of "
        "decisions"
    )


def transactions_v1(key: TransactionKey) -> UnsafeDatabase:
    return UnsafeDatabase(
        f"{key} runs under transactions V1, where two transactions of a session may bear the same "
        "epoch, so that a decision would not say which one it means. Upgrade transaction.version "
        "to 2 (kafka-features.sh), and leave oncelog.transaction.version.max alone"
    )
