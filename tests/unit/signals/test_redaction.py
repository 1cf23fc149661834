"""Secrets taken out of text."""

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.client.connection_string import sas_token
from busway.log_lines import HIDDEN, redacted

KEY = base64.b64encode(bytes(range(32))).decode()
TEXTS = [
    "Endpoint=sb://h:1;SharedAccessKeyName=Root;SharedAccessKey={};UseDevelopmentEmulator=true",
    "sharedaccesskey = {} is wrong",
    "SharedAccessSignature sr=sb%3A%2F%2Fh&sig={}&se=1&skn=Root",
    "Authorization: 'SharedAccessSignature sig={}'",
    "SharedAccessSignature=SharedAccessSignature sr=h&sig={}&se=1",
    "https://h/q?sr=x&SIG={}",
    "sr%3Dx%26sig%3D{}%26se%3D1",
    '{{"primaryKey": "{}", "rights": []}}',
    "{{'secondary_key': '{}'}}",
    "<SecondaryKey>{}</SecondaryKey>",
    "Password={}",
    "Authorization: Bearer {}",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("secret", [KEY, "short-key", "SAS_KEY_VALUE", "a%2Bb%3D"])
def test_a_secret_beside_its_name_is_hidden(text: str, secret: str) -> None:
    """O-7, A-4: whatever the secret looks like; what stands around it stays."""
    hidden = redacted(text.format(secret))
    assert secret not in hidden
    assert HIDDEN in hidden
    assert hidden.count("Root") == text.count("Root")
    assert "se=1" not in text or "se=1" in hidden


def test_a_key_without_a_name_is_hidden() -> None:
    """A-4: 256 bits in base64 are taken for a key wherever they stand."""
    assert redacted(f"bad key {KEY!r}, sorry") == f"bad key '{HIDDEN}', sorry"


def test_a_real_token_loses_its_signature_only() -> None:
    """A-4: the name of the rule and the expiry help whoever looks for the fault."""
    token = sas_token("sb://localhost/orders", "Sender", KEY, 4_000_000_000)
    signature = next(part for part in token.split("&") if part.startswith("sig="))
    hidden = redacted(token)
    assert hidden == token.replace(signature, f"sig={HIDDEN}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SharedAccessKeyName=Root",
        "Update Queue signals/design=1",
        "the signature of 'orders' is wrong",
        "activity=6fa459ea-ee8a-4ca4-894e-db77e160355e",
        "sha256:" + "0" * 64,
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    """O-7: a log that hides everything helps nobody."""
    assert redacted(text) == text


@given(st.text(), st.sampled_from(TEXTS))
def test_hiding_again_changes_nothing(around: str, text: str) -> None:
    """A-4: text of strangers around a secret does not bring it back."""
    once = redacted(around + " " + text.format(KEY) + " " + around)
    assert KEY not in once
    assert redacted(once) == once


@pytest.mark.parametrize(
    "piece", ["sig=", "SharedAccessKey", "A", "sig" + " " * 4, '"', "primaryKey:", "%2B", " "]
)
def test_a_line_ten_times_as_long_takes_about_ten_times_as_long(piece: str) -> None:
    """A-4: a client that can choose what is logged cannot stop the server with it. Were it the square, it would be a
    hundred times; seconds of the processor are counted, so that other work on the machine does not matter."""
    short, long = piece * (2_000 // len(piece)), piece * (20_000 // len(piece))
    assert _quickest(long) < 35 * _quickest(short)


def _quickest(text: str) -> float:
    """Of several runs: the one that nothing disturbed."""
    seconds = []
    for _ in range(5):
        began = time.process_time()
        redacted(text)
        seconds.append(time.process_time() - began)
    return min(seconds)
