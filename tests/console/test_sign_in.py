"""Who is let in, by what, and what becomes of it."""

from __future__ import annotations

import json
import re
import subprocess
from time import time

from playwright.sync_api import expect

from busway.client.administration import ServiceBusAdministrationClient
from busway.client.atom_entries import KeyRule
from busway.client.connection_string import ConnectionString, sas_token
from tests.console.conftest import Opened, sign_in
from tests.harness.running_server import BUSWAY, RunningServer


def url(server: RunningServer) -> str:
    return str(server.ready["console_url"])


def key_of(server: RunningServer) -> tuple[str, str]:
    target = ConnectionString.parse(server.connection_string)
    return str(target.key_name), str(target.key)


def make_key(server: RunningServer, name: str, *rights: str) -> str:
    """A connection string with these rights on the namespace."""
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as admin:
        admin.put_key_rule(KeyRule(name, rights, f"{name}-primary-key", f"{name}-secondary-key"))
    return (
        f"Endpoint=sb://127.0.0.1:{server.port};SharedAccessKeyName={name};SharedAccessKey={name}-primary-key"
    )


def test_a_connection_string_signs_in(open_page: Opened, server: RunningServer, picture) -> None:
    """A-4: the page signs tokens by itself; nothing of the key is kept in the browser."""
    page = open_page(url(server))
    picture(page, "sign-in")
    sign_in(page, server.connection_string)
    expect(page.get_by_role("row", name="orders ×16")).to_be_visible()
    kept = page.evaluate(
        "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
    )
    assert key_of(server)[1] not in kept
    page.reload()
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()


def test_a_bare_key_signs_in(open_page: Opened, server: RunningServer) -> None:
    """A-4: with the name of its rule, which is the root's until somebody says another."""
    page = open_page(url(server))
    sign_in(page, key_of(server)[1])
    expect(page.get_by_role("row", name="invoices")).to_be_visible()


def test_a_token_signs_in(open_page: Opened, server: RunningServer) -> None:
    """A-5: one that was made elsewhere."""
    page = open_page(url(server))
    token = sas_token(f"http://127.0.0.1:{server.port}/", *key_of(server), int(time()) + 600)
    sign_in(page, token)
    expect(page.get_by_role("row", name="invoices")).to_be_visible()


def test_a_token_of_one_queue_shows_that_queue(open_page: Opened, server: RunningServer) -> None:
    """A-7: its scope is all that there is."""
    page = open_page(url(server))
    sign_in(page, sas_token(f"http://127.0.0.1:{server.port}/orders", *key_of(server), int(time()) + 600))
    expect(page.get_by_role("row", name="orders ×16")).to_be_visible()
    expect(page.get_by_role("row")).to_have_count(2)


def test_what_is_wrong_is_said_at_the_place(open_page: Opened, server: RunningServer, picture) -> None:
    """A-4: a sentence below the field, and another try."""
    page = open_page(url(server))
    name, _ = key_of(server)
    for text, sentence in (
        ("   ", "Paste a connection string"),
        ("two words", "neither a connection string"),
        ("Endpoint=sb://x;SharedAccessKeyName=y", "lacks SharedAccessKeyName or SharedAccessKey"),
        (f"Endpoint=sb://x;SharedAccessKeyName={name};SharedAccessKey=wrong", "invalid signature"),
        (sas_token("http://127.0.0.1/", *key_of(server), 1_000_000), "expired"),
    ):
        sign_in(page, text)
        expect(page.get_by_role("alert")).to_contain_text(sentence)
    picture(page, "sign-in-refused")
    sign_in(page, server.connection_string)
    expect(page.get_by_role("row", name="invoices")).to_be_visible()


def test_rights_decide_what_is_shown(open_page: Opened, server: RunningServer) -> None:
    """A-9: who may listen sees; who may only send is told so."""
    page = open_page(url(server))
    sign_in(page, make_key(server, "listener", "Listen"))
    expect(page.get_by_role("row", name="invoices")).to_be_visible()
    page = open_page(url(server))
    sign_in(page, make_key(server, "sender", "Send"))
    expect(page.get_by_text("may send and nothing else")).to_be_visible()


def test_a_key_that_is_taken_away_signs_out(open_page: Opened, server: RunningServer) -> None:
    """A-10: at once, with the reason; what was shown is gone."""
    page = open_page(url(server), may_complain=True)
    sign_in(page, make_key(server, "short-lived", "Listen"))
    expect(page.get_by_role("row", name="invoices")).to_be_visible()
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as admin:
        admin.delete_key_rule("short-lived")
        admin.create_queue("told-after-the-end")
    expect(page.get_by_role("alert")).to_contain_text("The token has ended")
    expect(page.get_by_role("row")).to_have_count(0)
    with ServiceBusAdministrationClient.from_connection_string(server.connection_string) as admin:
        admin.delete_queue("told-after-the-end")


def test_busway_console_opens_it_signed_in(open_page: Opened, server: RunningServer) -> None:
    """Command line: an address that is good once, and holds no key."""
    command = [str(BUSWAY), "console", "--no-open", "--connection-string", server.connection_string]
    address = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert re.fullmatch(rf"http://127\.0\.0\.1:{server.port}/\$console#code=[\w-]+", address)
    page = open_page(address)
    expect(page.get_by_role("row", name="invoices")).to_be_visible()
    assert "code" not in page.url
    again = open_page(address, may_complain=True)
    expect(again.get_by_role("alert")).to_contain_text("used already")


def test_signing_needs_no_web_crypto(open_page: Opened, server: RunningServer) -> None:
    """A-4: outside https and localhost a page has none; ours is right for any length."""
    page = open_page(url(server))
    page.evaluate("delete globalThis.crypto; Object.defineProperty(globalThis, 'crypto', {value: undefined})")
    module = re.search(r'"([^"]+/page/)app\.js"', page.content())
    assert module is not None
    script = """async ([base, lengths]) => {
        const { hmacSha256, sha256 } = await import(base + "bus/sha256.js");
        const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
        const of = (length) => Uint8Array.from({ length }, (_, n) => (n * 7) % 256);
        return lengths.map((length) => [hex(sha256(of(length))), hex(hmacSha256(of(length), of(length + 3)))]);
    }"""
    import hashlib
    import hmac

    lengths = [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000]

    def some(length: int) -> bytes:
        return bytes(n * 7 % 256 for n in range(length))

    wanted = [
        [
            hashlib.sha256(some(length)).hexdigest(),
            hmac.new(some(length), some(length + 3), hashlib.sha256).hexdigest(),
        ]
        for length in lengths
    ]
    assert json.loads(json.dumps(page.evaluate(script, [module[1], lengths]))) == wanted


def test_signing_out_forgets_everything(page, server: RunningServer) -> None:
    """A-10: nothing of the bus stays in the page."""
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    expect(page.get_by_text("invoices")).to_have_count(0)
    assert server.is_running
