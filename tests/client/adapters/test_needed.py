"""Test that an adapter without its framework raises an error with the install command."""

import pytest

from oncelog.client.adapters.needed import needed
from oncelog.wire.errors import InvalidConfig


def test_adapter_with_a_missing_framework_names_the_install_command() -> None:
    with pytest.raises(InvalidConfig, match=r"^nowhere is not installed: pip install 'nowhere'$"):
        needed("nowhere.db")
    with pytest.raises(InvalidConfig, match=r"pip install 'nowhere\[asyncio\]'$"):
        needed("nowhere", "nowhere[asyncio]")
