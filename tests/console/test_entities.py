"""One entity: made, looked at, changed, deleted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from busway.client.administration import ServiceBusAdministrationClient
from tests.console.conftest import Opened, sign_in
from tests.harness.running_server import RunningServer


@pytest.fixture
def admin(server: RunningServer) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as client:
        yield client


def go(page: Page, address: str) -> None:
    page.evaluate("address => { location.hash = address }", f"#/{address}")


def test_a_queue_is_made_partitioned_unless_somebody_unticks_it(
    page: Page, admin: ServiceBusAdministrationClient, picture
) -> None:
    """C-2: as in the service's portal; what is wrong is said at the field."""
    page.get_by_role("button", name="Create").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Partitioned")).to_be_checked()
    dialog.get_by_label("Name").fill("made-here")
    dialog.get_by_label("Lock duration").fill("PT9M")
    picture(page, "create")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text("LockDuration")
    expect(dialog.get_by_label("Lock duration")).to_have_attribute("aria-invalid", "true")
    dialog.get_by_label("Lock duration").fill("PT30S")
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="made-here")).to_be_visible()
    expect(page.get_by_text("partitioned ×16")).to_be_visible()
    made = admin.get_queue("made-here").properties
    assert (made["EnablePartitioning"], made["LockDuration"]) == (True, "PT30S")

    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Type made-here")
    dialog.get_by_label("Type made-here").fill("made-here")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Entities")).to_be_visible()
    assert "made-here" not in [queue.name for queue in admin.list_queues()]


def test_a_topic_a_subscription_a_rule_and_a_hub_are_made(
    page: Page, admin: ServiceBusAdministrationClient
) -> None:
    """E-60, T-11, H-1: all that there is can be made and deleted here."""
    page.get_by_role("button", name="Create").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Topic").click()
    dialog.get_by_label("Name").fill("made-topic")
    dialog.get_by_label("Partitioned").uncheck()
    dialog.get_by_role("button", name="Create").click()
    page.get_by_role("button", name="Subscription", exact=True).click()
    dialog.get_by_label("Name").fill("all-of-it")
    dialog.get_by_role("button", name="Create").click()
    page.get_by_role("tab", name="Rules").click()
    page.get_by_role("button", name="Add a rule").click()
    page.get_by_label("Name").fill("only-large")
    page.get_by_label("Selects messages where").fill("total > 100")
    page.get_by_label("Changes them by").fill("SET priority = 'high'")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("row", name="only-large")).to_contain_text("SET priority = 'high'")
    assert {rule.name for rule in admin.list_rules("made-topic", "all-of-it")} == {"$Default", "only-large"}
    page.get_by_role("row", name="$Default").get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("row", name="$Default")).to_have_count(0)
    admin.delete_topic("made-topic")

    go(page, "")
    page.get_by_role("button", name="Create").click()
    dialog.get_by_role("button", name="Event hub").click()
    dialog.get_by_label("Name").fill("made-hub")
    dialog.get_by_label("Partitions").fill("2")
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="Partitions 2")).to_be_visible()
    admin.hubs.delete("made-hub")


def test_a_rule_is_tried_on_what_is_there(page: Page, picture) -> None:
    """T-20: which messages it would select, as one types; a mistake is shown at its place."""
    go(page, "entity/events/Subscriptions/audit?tab=rules")
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Selects messages where").fill("region = 'north' AND total > 80")
    expect(page.get_by_role("heading", name="it selects 9")).to_be_visible()
    picture(page, "rules")
    page.get_by_label("Selects messages where").fill("region = 'north' AND")
    expect(page.get_by_role("alert")).to_contain_text("At character")


def test_settings_are_changed_where_they_can_be(
    page: Page, admin: ServiceBusAdministrationClient, picture
) -> None:
    """E-30: what was decided at the creation is greyed; the maximum size is told with its fragments."""
    go(page, "entity/orders?tab=settings")
    expect(page.get_by_label("Partitioned")).to_be_disabled()
    expect(page.get_by_text("MB × 16 =")).to_be_visible()
    picture(page, "settings")
    page.get_by_label("Maximum deliveries").fill("7")
    page.get_by_label("Status").select_option("No receiving")
    page.get_by_role("button", name="Save 2").click()
    expect(page.get_by_text("orders is changed.")).to_be_visible()
    assert admin.get_queue("orders").properties["MaxDeliveryCount"] == 7
    expect(page.get_by_text("ReceiveDisabled")).to_be_visible()
    page.get_by_label("Status").select_option("Active")
    page.get_by_role("button", name="Save 1").click()
    expect(page.get_by_text("ReceiveDisabled")).to_have_count(0)


def test_the_lanes_of_a_partitioned_queue_are_drawn(page: Page, picture) -> None:
    """O-8: store, health, depth and age of each fragment."""
    go(page, "entity/orders?tab=lanes")
    lanes = page.get_by_role("table", name="Fragments")
    expect(lanes.get_by_role("row")).to_have_count(17)
    expect(lanes.get_by_role("row").nth(1)).to_contain_text("store-0")
    picture(page, "lanes")


def test_sessions_are_listed(page: Page) -> None:
    """X-22: with what holds them and what was kept."""
    go(page, "entity/carts?tab=lanes")
    expect(page.get_by_role("row", name="customer-3")).to_contain_text("free")


def test_who_gets_what_of_a_topic_is_drawn(page: Page, picture) -> None:
    """T-1: each subscription with what its rules select."""
    go(page, "entity/events")
    expect(page.get_by_role("heading", name="Who gets what")).to_be_visible()
    expect(page.get_by_text("total > 100")).to_be_visible()
    picture(page, "topic")


def test_a_store_is_taken_out_of_service_and_back(page: Page, picture) -> None:
    """E-91: with its name typed; entities say what they miss."""
    go(page, "stores")
    page.get_by_role("row", name="store-3").get_by_role("button", name="Take out of service").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Type store-3").fill("store-3")
    dialog.get_by_role("button", name="Take out of service").click()
    expect(page.get_by_role("row", name="store-3")).to_contain_text("disabled")
    picture(page, "stores")
    page.get_by_role("row", name="store-3").get_by_role("button", name="Back into service").click()
    dialog.get_by_role("button", name="Bring back").click()
    expect(page.get_by_role("row", name="store-3")).to_contain_text("open")


def test_an_entity_that_goes_while_one_looks_says_so(
    page: Page, admin: ServiceBusAdministrationClient
) -> None:
    """Change under traffic: a sentence, and a way on."""
    admin.create_queue("going")
    expect(page.get_by_role("row", name="going")).to_be_visible()
    go(page, "entity/going?tab=lanes")
    expect(page.get_by_role("heading", name="going")).to_be_visible()
    admin.delete_queue("going")
    expect(page.get_by_role("alert")).to_contain_text("not any more")


def test_read_only_changes_nothing(open_page: Opened, tmp_path) -> None:
    """`serve --console read-only`: what changes something is not offered."""
    with RunningServer(tmp_path, "--console", "read-only") as server:
        with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as client:
            client.create_queue("orders")
        page = open_page(str(server.ready["console_url"]), may_complain=True)
        sign_in(page, server.connection_string)
        page.get_by_role("row", name="orders").click()
        expect(page.get_by_role("heading", name="orders")).to_be_visible()
        expect(page.get_by_text("read-only")).to_be_visible()
        for name in ("Create", "Delete", "Send", "Purge", "Receive next", "Import"):
            expect(page.get_by_role("button", name=name)).to_have_count(0)
        page.get_by_role("tab", name="Settings").click()
        expect(page.get_by_label("Maximum deliveries")).to_be_disabled()
