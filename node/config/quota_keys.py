"""The keys of client quotas; the quotas themselves are in the metadata (AlterClientQuotas)."""

from dataclasses import dataclass

from .keys import INT, at_least, setting
from .listener_keys import ListenerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSettings(ListenerSettings):
    """The typed values of these keys."""

    quota_window_num: int = setting(
        "quota.window.num", INT, "11", "How many samples make a client's rate.", at_least(2)
    )
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds", INT, "1", "How long a sample is.", at_least(1)
    )
