"""A chromium that opens the pages, for tests and screenshots."""

# Selenium is in the extra test-ui only.
# pyright: reportMissingImports=false

import os
import shutil
from collections.abc import Callable
from typing import Any

from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
SHOWN_S = 30


class Browser:
    """A headless chromium that opens a site by its `address` with the token."""

    def __init__(self, address: str) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM or ""
        for option in ("--headless=new", "--disable-gpu", "--hide-scrollbars"):
            options.add_argument(option)
        options.add_argument("--disable-dev-shm-usage")
        if os.geteuid() == 0:
            options.add_argument("--no-sandbox")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(DRIVER)
        self.driver = webdriver.Chrome(options=options, service=service)
        self.base = address.partition("/?")[0]
        self.driver.get(address)
        self.wait(lambda: "token" not in self.driver.current_url)

    def go(self, address: str) -> None:
        self.driver.get(self.base + address)

    def wait(self, holds: Callable[[], Any], timeout_s: float = SHOWN_S) -> Any:
        return WebDriverWait(self.driver, timeout_s, 0.1).until(lambda _: holds())

    def text(self) -> str:
        return self.driver.execute_script("return document.body.innerText")

    def shows(self, words: str) -> None:
        self.wait(lambda: words in self.text())

    def size(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def press(self, words: str) -> None:
        """Click on the link with this text, without waiting for the next page."""
        script = "[...document.links].find((each) => each.innerText === arguments[0]).click()"
        self.driver.execute_script(script, words)
