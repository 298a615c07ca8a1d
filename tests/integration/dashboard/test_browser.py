"""The page in a real browser, over a scripted sidecar that changes, dies and comes back."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from socket import create_server

import grpc
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from dashboard.fake import FakeMonitor, serve
from dashboard.scenes import SCENES

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
APP = Path(__file__).parents[3] / "dashboard" / "app.py"
PATIENCE_S = 30.0
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1280,1400",
)
pytestmark = [
    pytest.mark.integration,
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (CHROMIUM.exists() and DRIVER.exists()), reason="Chromium or its driver is not installed"
    ),
]


@dataclass
class Night:
    """A scripted sidecar that can be stopped and started."""

    fake: FakeMonitor
    server: grpc.Server
    address: str

    def die(self) -> None:
        """Stop answering."""
        self.server.stop(0).wait()

    def rise(self) -> None:
        """Answer again at the same address."""
        self.server, _ = serve(self.fake, self.address)


@pytest.fixture(scope="module")
def night() -> Iterator[Night]:
    """One for all tests of the file."""
    fake = FakeMonitor(SCENES["healthy"], time.time)
    server, address = serve(fake, "127.0.0.1:0")
    standing = Night(fake, server, address)
    yield standing
    standing.die()


@pytest.fixture(scope="module")
def page(night: Night) -> Iterator[str]:
    """The dashboard as its command runs it; its address."""
    with create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", str(APP), f"--server.port={port}"]
    command += ["--server.fileWatcherType=none", "--", "--control", night.address]
    process = subprocess.Popen(command, env=os.environ | {"TIDEGATE_CONTROL_ADDRESS": "127.0.0.1:1"})
    address = f"http://127.0.0.1:{port}"
    try:
        _until(lambda: _healthy(address), "streamlit answers")
        yield address
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="module")
def browser(page: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Chromium, looking at the page."""
    options = Options()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        driver.get(page)
        _until(lambda: "Healthy" in _text(driver), "the first verdict")
        yield driver
    finally:
        driver.quit()


def _healthy(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/_stcore/health", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}"
        time.sleep(0.2)


def _text(browser: webdriver.Chrome) -> str:
    return str(browser.execute_script("return document.body.innerText"))


def test_the_page_shows_eight_cards_with_charts(browser: webdriver.Chrome) -> None:
    """Vega draws in the browser: only a browser can say that it did."""
    _until(
        lambda: len(browser.find_elements(By.CSS_SELECTOR, "[data-testid=stVegaLiteChart] svg.marks")) == 8,
        "eight charts",
    )
    assert len(browser.find_elements(By.CSS_SELECTOR, ".tg-card")) == 8
    assert "ENFORCE" in _text(browser)


def test_it_fits_1280_pixels(browser: webdriver.Chrome) -> None:
    """A laptop beside the bed."""
    wide = browser.execute_script(
        "return [...document.querySelectorAll('.stMain, .tg-panel, .tg-verdict')].filter(e => e.scrollWidth > e.clientWidth + 1)"
        ".map(e => e.className + ' ' + e.scrollWidth + ' > ' + e.clientWidth)"
    )

    assert wide == []


def test_values_go_on_and_charts_are_not_built_anew(browser: webdriver.Chrome) -> None:
    """A chart that is rebuilt each second flickers."""
    mark = (
        "document.querySelectorAll('[data-testid=stVegaLiteChart] svg.marks').forEach(c => { c.seen = true })"
    )
    kept = "return [...document.querySelectorAll('[data-testid=stVegaLiteChart] svg.marks')].filter(c => c.seen).length"
    clock = "return document.querySelector('.tg-strip').innerText.split('as of')[1]"
    browser.execute_script(mark)
    before = browser.execute_script(clock)

    _until(lambda: browser.execute_script(clock) != before, "the clock of the page moves")
    time.sleep(4.0)

    assert browser.execute_script(kept) == 8


def test_a_bad_turn_appears_without_a_reload(browser: webdriver.Chrome, night: Night) -> None:
    """Nobody presses a key at night."""
    night.fake.play(SCENES["kv_critical"])
    _until(
        lambda: "Admission is stopped: KV usage 0.98 over critical 0.97" in _text(browser), "the new verdict"
    )

    night.fake.play(SCENES["healthy"])
    _until(lambda: "Healthy" in _text(browser), "all is well again")


def test_a_sidecar_that_goes_away_and_comes_back(browser: webdriver.Chrome, night: Night) -> None:
    """Away is a state; the last values stay, greyed."""
    night.die()
    _until(lambda: "No word from the sidecar" in _text(browser), "away is said")
    _until(lambda: bool(browser.find_elements(By.CSS_SELECTOR, ".tg-old")), "old values are grey")
    assert "Traceback" not in _text(browser)

    night.rise()
    _until(lambda: "Healthy" in _text(browser), "it is back")
    _until(lambda: not browser.find_elements(By.CSS_SELECTOR, ".tg-old"), "nothing is grey")


def test_a_target_is_picked_and_stays_in_the_address(browser: webdriver.Chrome, night: Night) -> None:
    """The other model may be the one in trouble."""
    night.fake.play(SCENES["two_targets"])
    _until(lambda: "qwen-7b" in _text(browser), "the picker")
    button = next(b for b in browser.find_elements(By.TAG_NAME, "button") if "qwen-7b" in b.text)

    button.click()

    _until(lambda: "target=qwen-7b" in browser.current_url, "the address names it")
    _until(lambda: "target qwen-7b" in _text(browser).replace("\n", " "), "the page shows it")
    night.fake.play(SCENES["healthy"])


def test_dark_is_dark(browser: webdriver.Chrome, page: str) -> None:
    """A white page at 3 am wakes the house."""
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    browser.get(page)
    _until(lambda: bool(browser.find_elements(By.CSS_SELECTOR, ".tg-panel")), "the tables")

    colour = browser.execute_script(
        "return getComputedStyle(document.querySelector('.tg-panel')).backgroundColor"
    )

    assert colour == "rgb(24, 32, 42)"


def test_the_console_has_no_error(browser: webdriver.Chrome) -> None:
    """Errors that nobody sees become errors that somebody does."""
    lines = browser.get_log("browser")  # type: ignore[no-untyped-call]
    severe = [line for line in lines if line["level"] == "SEVERE"]

    assert severe == []
    assert not browser.find_elements(By.CSS_SELECTOR, "[data-testid=stException]")
