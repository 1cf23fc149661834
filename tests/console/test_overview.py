"""The first page: everything that there is, as it changes."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.messages import ServiceBusMessage
from busway.client.service_bus_client import ServiceBusClient
from tests.console import shop
from tests.console.conftest import Opened, sign_in
from tests.harness.running_server import RunningServer


def cell(page: Page, entity: str, column: str) -> object:
    heads = [text.strip(" ↑↓") for text in page.get_by_role("columnheader").all_inner_texts()]
    return page.get_by_role("row", name=entity).get_by_role("cell").nth(heads.index(column))


def send(server: RunningServer, queue: str, count: int) -> None:
    async def work() -> None:
        async with (
            ServiceBusClient.from_connection_string(server.connection_string) as client,
            client.get_queue_sender(queue) as sender,
        ):
            await sender.send_messages([ServiceBusMessage(b"x")] * count)

    shop.run(work())


def test_every_entity_is_there_with_its_counts(page: Page, picture) -> None:
    """E-100: queues, topics, subscriptions and hubs in one table; dead letters stand out."""
    for name in ("orders ×16", "invoices", "carts", "events", "events › audit", "clicks"):
        expect(page.get_by_role("row", name=name).first).to_be_visible()
    expect(cell(page, "invoices", "Active")).to_have_text("7")
    expect(cell(page, "invoices", "Dead letters")).to_have_text("5")
    expect(cell(page, "refunds", "Status")).to_have_text("Disabled")
    expect(page.get_by_text("Live")).to_be_visible()
    picture(page, "overview")


def test_it_follows_what_happens(page: Page, server: RunningServer) -> None:
    """E-100: pushed, without a reload: a new queue, its messages, its end."""
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as admin:
        admin.create_queue("passing")
        expect(page.get_by_role("row", name="passing")).to_be_visible()
        send(server, "passing", 3)
        expect(cell(page, "passing", "Active")).to_have_text("3")
        admin.delete_queue("passing")
    expect(page.get_by_role("row", name="passing")).to_have_count(0)


def test_it_is_filtered_and_sorted(page: Page) -> None:
    """Use: by name from the keyboard, by kind, by dead letters, by any column."""
    page.keyboard.press("/")
    page.keyboard.type("EVENTS nor")
    expect(page.get_by_role("row")).to_have_count(2)
    expect(page.get_by_role("row", name="events › north")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Topics").click()
    expect(page.get_by_role("row")).to_have_count(3)
    page.get_by_role("button", name="All").click()
    page.get_by_label("With dead letters").check()
    expect(page.get_by_role("row")).to_have_count(2)
    page.get_by_label("With dead letters").uncheck()
    page.get_by_role("button", name="Active").click()
    expect(page.get_by_role("row").nth(1)).to_contain_text("orders")
    page.get_by_role("button", name="Active").click()
    expect(page.get_by_role("row").nth(1)).not_to_contain_text("orders")


def test_it_comes_back_after_the_server_does(open_page: Opened, tmp_path) -> None:
    """Change under traffic: a restart is told as a lost connection, then everything is there again."""
    with RunningServer(tmp_path) as server:
        with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as admin:
            admin.create_queue("before")
        page = open_page(str(server.ready["console_url"]), may_complain=True)
        sign_in(page, server.connection_string)
        expect(page.get_by_role("row", name="before")).to_be_visible()
        server.stop()
        expect(page.get_by_text("Connection lost")).to_be_visible()
        server.start()
        expect(page.get_by_text("Live")).to_be_visible()
        with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as admin:
            admin.create_queue("after")
        expect(page.get_by_role("row", name="after")).to_be_visible()


def test_ten_pages_watch_at_once(page: Page, server: RunningServer) -> None:
    """Use: a browser gives a host six connections; sockets are not among them."""
    pages = [page]
    for _ in range(9):
        other = page.context.new_page()
        other.goto(str(server.ready["console_url"]))
        sign_in(other, server.connection_string)
        pages.append(other)
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as admin:
        admin.create_queue("for-all")
        for each in pages:
            expect(each.get_by_role("row", name="for-all")).to_be_attached()
        admin.delete_queue("for-all")


def test_it_is_dark_light_and_narrow(page: Page, picture) -> None:
    """Use: as the system has it, or as somebody chooses; on a telephone nothing is cut off."""
    button = page.get_by_role("button", name="As the system")
    button.click()
    page.get_by_role("button", name="Light").click()
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(17, 22, 29)"
    picture(page, "overview-dark")
    page.get_by_role("button", name="Dark").click()
    page.set_viewport_size({"width": 390, "height": 800})
    expect(page.get_by_role("button", name="Menu")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    picture(page, "overview-narrow")
