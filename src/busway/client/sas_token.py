"""Making shared access signatures (A-4)."""

import base64
import hashlib
import hmac
from typing import Final
from urllib.parse import quote

from busway.client.connection_string import BadConnectionString, ConnectionString

LIFETIME_S: Final = 3_600


def sas_token(uri: str, key_name: str, key: str, expires_at_s: int) -> str:
    """The key's text itself is the HMAC key; what is signed is the encoded URI, exactly as sent."""
    resource = _encoded(uri)
    signed = f"{resource}\n{expires_at_s}".encode()
    signature = base64.b64encode(hmac.new(key.encode(), signed, hashlib.sha256).digest()).decode()
    parts = (
        f"sr={resource}",
        f"sig={_encoded(signature)}",
        f"se={expires_at_s}",
        f"skn={_encoded(key_name)}",
    )
    return "SharedAccessSignature " + "&".join(parts)


def _encoded(text: str) -> str:
    return quote(text, safe="")


def token_for(target: ConnectionString, uri: str, now_s: float) -> str:
    """A token for `uri` that lives LIFETIME_S, or the one the connection string brings along."""
    if target.signature is not None:
        return target.signature
    if target.key_name is None or target.key is None:
        raise BadConnectionString("The connection string has no key to sign with.")
    return sas_token(uri, target.key_name, target.key, int(now_s) + LIFETIME_S)
