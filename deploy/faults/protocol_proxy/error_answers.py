"""Answers that only tell an error, made from the request, without a broker."""

from ....wire.error_codes import ErrorCode


def check_error_can_be_said(api_key: int, error: ErrorCode) -> None:
    """Failure where an answer of this API has no place for it."""
