"""Run dual_write.py without one safeguard of its writers or its check-back, named in `BROKEN`."""

import asyncio
import os
import runpy
import threading
import time
from pathlib import Path
from typing import Any

from oncelog import client
from oncelog.proof.demo.transfers.broken import DECIDED, NO_TOMBSTONE, WRITERS
from oncelog.proof.demo.transfers.careless_check_back import main as check_back

BROKEN = os.environ["BROKEN"]
bootstrap, url = os.environ["KAFKA_BOOTSTRAP_SERVERS"], f"sqlite:///{os.environ['DATABASE']}"


class Writer(WRITERS[BROKEN]):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments, linger_ms=200)  # records leave when they are prepared

    def transaction(self) -> Any:
        time.sleep(0.1)  # a look-up between records and their block
        return super().transaction()

    def meet(self, moment: str) -> None:
        """Wait between the decision and the next step, so that a fault can come in between."""
        time.sleep(0.5 if moment == DECIDED else 0.0)


if BROKEN == NO_TOMBSTONE:
    looks = check_back(bootstrap, url, older_than_ms="0", every_ms="100")
    threading.Thread(target=asyncio.run, args=(looks,), daemon=True).start()
client.BlockingDualWriter = Writer
runpy.run_path(str(Path(__file__).parent / "dual_write.py"))
