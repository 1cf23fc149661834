"""Messages: found, read, sent, handled, sent again, deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.messages import ServiceBusMessage
from busway.client.service_bus_client import ServiceBusClient
from tests.console import shop
from tests.console.test_entities import go
from tests.harness.running_server import RunningServer


class Queue:
    """A queue for one test."""

    def __init__(self, connection_string: str) -> None:
        self.name = f"q-{uuid4().hex[:8]}"
        self._target = connection_string
        with ServiceBusAdministrationClient.from_connection_string(connection_string) as admin:
            admin.create_queue(self.name)

    def send(self, *messages: ServiceBusMessage) -> None:
        async def work() -> None:
            async with (
                ServiceBusClient.from_connection_string(self._target) as client,
                client.get_queue_sender(self.name) as sender,
            ):
                await sender.send_messages(list(messages))

        shop.run(work())

    def dead_letter(self, count: int) -> None:
        async def work() -> None:
            async with (
                ServiceBusClient.from_connection_string(self._target) as client,
                client.get_queue_receiver(self.name) as receiver,
            ):
                done = 0
                while done < count:
                    for message in await receiver.receive_messages(count - done, 5):
                        await receiver.dead_letter_message(message, reason="Broken", error_description="Why.")
                        done += 1

        shop.run(work())

    def counts(self) -> tuple[int, int]:
        """Active and dead letters."""
        with ServiceBusAdministrationClient.from_connection_string(self._target) as admin:
            (found,) = admin.fragments(self.name)
        return int(str(found["active"])), int(str(found["deadLettered"]))


@pytest.fixture
def queue(server: RunningServer) -> Iterator[Queue]:
    made = Queue(server.connection_string)
    yield made
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as admin:
        admin.delete_queue(made.name)


def plain(text: str, **properties: object) -> ServiceBusMessage:
    return ServiceBusMessage(text.encode(), application_properties=properties)


def opened(page: Page, queue: Queue) -> None:
    expect(page.get_by_role("row", name=queue.name)).to_be_attached()
    go(page, f"entity/{queue.name}")
    expect(page.get_by_role("heading", name=queue.name)).to_be_visible()


def test_messages_are_read_with_all_that_they_say(page: Page, picture) -> None:
    """R-60: body as JSON, text and bytes; system and custom properties."""
    go(page, "entity/orders")
    page.get_by_role("row", name="order-").first.click()
    view = page.get_by_role("complementary")
    expect(view.get_by_label("Body", exact=True)).to_contain_text('"order": 10')
    expect(view).to_contain_text("region")
    picture(page, "message")
    view.get_by_role("button", name="Bytes").click()
    expect(view.get_by_label("Body", exact=True)).to_contain_text("7b 22 6f 72")
    view.get_by_role("button", name="Text").click()
    expect(view.get_by_label("Body", exact=True)).to_contain_text("Grüße, ☕")


def test_messages_are_filtered_by_the_server(page: Page, queue: Queue) -> None:
    """T-20: by an expression; a mistake is told with its place."""
    queue.send(*(plain(str(n), total=n) for n in range(30)))
    opened(page, queue)
    page.get_by_label("Filter", exact=True).fill("total >= 27")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Choose all 3")).to_be_visible()
    page.get_by_label("Filter", exact=True).fill("")
    page.get_by_label("From number").fill("29")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Choose all 2")).to_be_visible()


def test_a_message_is_sent_with_everything(page: Page, queue: Queue) -> None:
    """S-5: body, properties of all kinds, many times; what is wrong is said at the field."""
    opened(page, queue)
    page.get_by_role("button", name="Send").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Body").fill('{"a": "ü☕"}')
    dialog.get_by_label("Subject").fill("Grüße")
    dialog.get_by_label("Message id").fill("id")
    dialog.get_by_label("Custom properties").fill("{nothing")
    dialog.get_by_label("How often").fill("3")
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("no JSON object")
    dialog.get_by_label("Custom properties").fill('{"region": "nörd", "total": 12, "on": true}')
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_text("3 messages are sent")).to_be_visible()
    page.get_by_role("row", name="id-2").click()
    view = page.get_by_role("complementary")
    expect(view).to_contain_text("ü☕")
    expect(view).to_contain_text("Grüße")
    expect(view).to_contain_text("nörd")


def test_a_message_is_scheduled(page: Page, queue: Queue) -> None:
    """S-30: it is there, and waits."""
    opened(page, queue)
    page.get_by_role("button", name="Send").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Body").fill("later")
    dialog.get_by_label("Scheduled for").fill("2090-01-01T00:00:00")
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_role("row", name="later")).to_contain_text("Scheduled")


def test_dead_letters_are_sent_again_one_some_and_all(page: Page, queue: Queue, picture) -> None:
    """D-20: each once, and none is left behind."""
    queue.send(*(plain(f"body-{n}", n=n) for n in range(12)))
    queue.dead_letter(12)
    opened(page, queue)
    page.get_by_role("button", name="Dead letters 12").click()
    page.get_by_role("row", name="body-3").click()
    picture(page, "dead-letters")
    page.get_by_role("complementary").get_by_role("button", name="Send again").click()
    expect(page.get_by_text("1 sent again.")).to_be_visible()
    page.get_by_role("row", name="body-5").get_by_role("checkbox").check()
    page.get_by_role("row", name="body-6").get_by_role("checkbox").check()
    page.get_by_role("button", name="Send 2 again").click()
    expect(page.get_by_text("2 sent again.")).to_be_visible()
    page.get_by_role("button", name="Send all again").click()
    page.get_by_role("dialog").get_by_role("button", name="Send again").click()
    expect(page.get_by_text("9 dead letters are sent again.")).to_be_visible()
    assert queue.counts() == (12, 0)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_dead_letter_is_edited_and_sent_with_or_without_the_original(
    page: Page, queue: Queue, keeps: bool
) -> None:
    """D-20: the choice is the user's, and the original stays until the copy is there."""
    queue.send(plain("wrong", region="north"))
    queue.dead_letter(1)
    opened(page, queue)
    page.get_by_role("row", name="wrong").click()
    page.get_by_role("button", name="Edit and send").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Body").fill("right")
    expect(dialog.get_by_label("Custom properties")).to_have_value('{\n  "region": "north"\n}')
    if not keeps:
        dialog.get_by_label("Keep the original").uncheck()
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_text("The message is sent")).to_be_visible()
    assert queue.counts() == (1, 1 if keeps else 0)


def test_one_message_is_deleted(page: Page, queue: Queue) -> None:
    """R-80: that one, wherever it stands in the queue."""
    queue.send(plain("first"), plain("second"), plain("third"))
    opened(page, queue)
    page.get_by_role("row", name="second").click()
    page.get_by_role("complementary").get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("1 of 1 deleted.")).to_be_visible()
    expect(page.get_by_role("row", name="second")).to_have_count(0)
    assert queue.counts() == (2, 0)


def test_a_purge_wants_the_name(page: Page, queue: Queue) -> None:
    """R-80: what kind, how many, and the name typed; then it says how far it is."""
    queue.send(*(plain(str(n)) for n in range(150)))
    opened(page, queue)
    page.get_by_role("button", name="Purge").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Purge").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Type")
    assert queue.counts() == (150, 0)
    dialog.get_by_label("Type").fill(queue.name)
    dialog.get_by_role("button", name="Purge").click()
    expect(page.get_by_text("150 messages are deleted.")).to_be_visible()
    assert queue.counts() == (0, 0)


@pytest.mark.parametrize(
    ("button", "after"),
    [("Complete", (0, 0)), ("Abandon", (1, 0)), ("Defer", (0, 0)), ("Dead-letter", (0, 1))],
)
def test_a_received_message_is_settled(page: Page, queue: Queue, button: str, after: tuple[int, int]) -> None:
    """R-20: by every verb; its lock is shown as it runs."""
    queue.send(plain("taken"))
    opened(page, queue)
    page.get_by_role("button", name="Receive next").click()
    received = page.get_by_role("region", name="Received message")
    expect(received).to_contain_text("locked for")
    received.get_by_role("button", name="Renew the lock").click()
    expect(page.get_by_text("The lock is renewed.")).to_be_visible()
    received.get_by_role("button", name=button, exact=True).click()
    expect(received).to_have_count(0)
    assert queue.counts() == after


def test_messages_go_into_a_file_and_come_back(page: Page, queue: Queue, tmp_path: Path) -> None:
    """Use: JSON lines, with whole bodies, also such as are no text."""
    queue.send(plain("x" * 5000, region="north"), ServiceBusMessage(b"\xff\x00\x01", message_id="raw"))
    opened(page, queue)
    expect(page.get_by_text("Choose all 2")).to_be_visible()
    with page.expect_download() as loaded:
        page.get_by_role("button", name="Export 2").click()
    file = tmp_path / "messages.jsonl"
    loaded.value.save_as(file)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [len(lines[0]["Body"]), lines[1]["BodyBase64"]] == [5000, "/wAB"]
    page.get_by_label("File to import").set_input_files(file)
    expect(page.get_by_text("2 messages are sent to")).to_be_visible()
    assert queue.counts() == (4, 0)
    file.write_text("{}\nnonsense\n")
    page.get_by_label("File to import").set_input_files(file)
    expect(page.get_by_text("Line 2 is no message")).to_be_visible()
