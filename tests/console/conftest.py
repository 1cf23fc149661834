"""The browser, a server with a shop's entities in it, a page that is signed in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.console import shop
from tests.harness.running_server import RunningServer

pytest.importorskip("playwright", reason="make setup installs Playwright")

from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

CHROMIUM = "/usr/bin/chromium"
#: It runs as root in many places, without a screen, and looks nothing up by itself.
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
WAIT_MS = 15_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For a file only: Playwright keeps a loop running in this thread, where tests of other files want their own."""
    if os.environ.get("BUSWAY_NO_BROWSER") == "1":
        pytest.skip("BUSWAY_NO_BROWSER=1: the console is not tested")
    found = (
        CHROMIUM if os.path.exists(CHROMIUM) else shutil.which("chromium") or shutil.which("google-chrome")
    )
    assert found, (
        "There is no Chromium here, and make test may not install one (it is not run by root, or this is not"
        " Debian): apt-get install chromium, or leave the console out with BUSWAY_NO_BROWSER=1."
    )
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """For a file only: what other files make would be in its tables, or push what it looks for out of sight."""
    with RunningServer(tmp_path_factory.mktemp("console")) as running:
        shop.set_up(running.connection_string)
        yield running


Opened = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Opened]:
    """Opens an address in a browser that knows nothing; what a page complains about fails the test."""
    contexts = []
    complaints: list[str] = []

    def opened(address: str, *, may_complain: bool = False, **settings: object) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1360, "height": 900}, **settings})  # type: ignore[arg-type]
        context.set_default_timeout(WAIT_MS)
        contexts.append(context)
        page = context.new_page()
        if not may_complain:
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on(
                "console",
                lambda said: complaints.append(said.text) if _is_complaint(said) else None,
            )
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def _is_complaint(said: ConsoleMessage) -> bool:
    """A refusal of the server is told to the user; the browser notes it besides."""
    return said.type in ("error", "warning") and not said.text.startswith("Failed to load resource")


def sign_in(page: Page, text: str) -> None:
    page.get_by_label("Connection string, key, or token").fill(text)
    page.get_by_role("button", name="Sign in").click()


@pytest.fixture
def page(open_page: Opened, server: RunningServer) -> Page:
    """The overview, signed in with the root key."""
    opened = open_page(str(server.ready["console_url"]))
    sign_in(opened, server.connection_string)
    expect(opened.get_by_role("row", name="invoices")).to_be_visible()
    return opened


PICTURES = Path(__file__).parents[2] / "build" / "console"


@pytest.fixture
def picture() -> Callable[[Page, str], None]:
    """Keeps a screenshot in build/console, for people to look at."""

    def take(page: Page, name: str) -> None:
        PICTURES.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=PICTURES / f"{name}.png")

    return take
