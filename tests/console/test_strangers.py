"""What strangers write is shown as text, and nothing of it runs; what everybody sees can be read by everybody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from busway.client.messages import ServiceBusMessage
from tests.console.conftest import Opened
from tests.console.test_entities import go
from tests.console.test_messages import Queue, opened
from tests.harness.running_server import RunningServer

AXE = Path(__file__).parents[1] / "conformance" / "node" / "node_modules" / "axe-core" / "axe.min.js"
#: Each would run where text becomes markup, an address, or a template.
CORPUS = (
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "'><svg/onload=window.hacked=1>",
    "javascript:window.hacked=1",
    "${window.hacked = 1}",
    "{{constructor.constructor('window.hacked = 1')()}}",
    "</pre></textarea><iframe srcdoc='<script>parent.hacked=1</script>'>",
    "\u202eecneuqes desrever\u202c \u0000\u0007 \ud7ff",
    "__proto__",
)


@pytest.fixture
def queue(server: RunningServer) -> Queue:
    return Queue(server.connection_string)


def test_nothing_that_a_message_says_runs(page: Page, queue: Queue) -> None:
    """Attack: bodies, ids, subjects, names and values of properties, reasons, and errors that repeat them."""
    queue.send(
        *(
            ServiceBusMessage(
                text.encode(),
                message_id=text[:100],
                subject=text,
                content_type="text/html",
                application_properties={text: text, "plain": n},
            )
            for n, text in enumerate(CORPUS)
        )
    )
    opened(page, queue)
    expect(page.get_by_text(f"Choose all {len(CORPUS)}")).to_be_visible()
    for n in range(len(CORPUS)):
        page.get_by_role("table", name="Messages").get_by_role("row").nth(n + 1).click()
        expect(page.get_by_role("complementary")).to_contain_text("Custom properties 2")
    for text in CORPUS[:4]:
        page.get_by_label("Filter", exact=True).fill(text)
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert").first).to_be_visible()
    assert page.evaluate("window.hacked") is None
    assert page.locator("iframe, #main script, #main img").count() == 0


def test_a_page_cannot_be_made_to_load_anything_else(open_page: Opened, server: RunningServer) -> None:
    """Attack: even code that ran could bring nothing in, write no markup, and send nothing away."""
    page = open_page(str(server.ready["console_url"]), may_complain=True)
    refused = page.evaluate(
        """async () => {
            const tries = {
                markup: () => { document.body.innerHTML = "<b>x</b>"; },
                script: () => { document.createElement("script").src = "https://evil.example/x.js"; },
            };
            const told = {};
            for (const [name, attempt] of Object.entries(tries)) {
                try { attempt(); told[name] = false; } catch { told[name] = true; }
            }
            told.fetched = await fetch("https://evil.example/").then(() => false, () => true);
            return told;
        }"""
    )
    assert refused == {"markup": True, "script": True, "fetched": True}


def test_nobody_is_left_out(page: Page) -> None:
    """Access: no serious finding of axe on any page, in light and in dark."""
    if not AXE.exists():
        pytest.skip("axe-core is not there: npm install --prefix tests/conformance/node")
    places = (
        "",
        "entity/orders",
        "entity/orders?tab=lanes",
        "entity/events",
        "entity/orders?tab=settings",
        "stores",
    )
    found = []
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        for place in places:
            go(page, place)
            page.wait_for_timeout(300)
            # By the debugger, which the page's policy does not bind.
            told = page.evaluate(f"{AXE.read_text()}; axe.run(document, {{resultTypes: ['violations']}})")
            found += [
                (theme, place, each["id"], [node["html"][:120] for node in each["nodes"][:3]])
                for each in told["violations"]
                if each["impact"] in ("serious", "critical")
            ]
    assert not found, json.dumps(found, indent=1)


def test_everything_goes_by_the_keyboard(page: Page) -> None:
    """Access: from the filter to an entity, to a message, and back."""
    page.keyboard.press("/")
    page.keyboard.type("invoices")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="invoices")).to_be_visible()
    grid = page.get_by_label("Messages: arrow keys move, Enter opens")
    grid.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("complementary")).to_be_visible()
    page.get_by_role("button", name="Close the message").press("Enter")
    expect(page.get_by_role("complementary")).to_have_count(0)
