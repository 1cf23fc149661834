"""Where a PostgreSQL database is, how many stores it holds and how they are called, as one address:

    postgresql://bus@db1,db2:5433/bus?name=east&stores=16&sslmode=verify-full

Everything but `name` and `stores` is libpq's, and what the address leaves out libpq finds in its usual places:
environment, service file, passfile. The address is read here all the same, before there is any connection: who
writes a wrong one is told so at once, and no sentence repeats what may be a piece of a password that was not
written as it should be.

Some of libpq's options are not taken: they would undo what every session must have (`server_checks`).
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from busway.store.contract import StoreError

STORES_DEFAULT: Final = 16
STORES_MAX: Final = 64
#: Of the stores in a database whose address gives no name.
NAME_DEFAULT: Final = "postgres"
SCHEMES: Final = ("postgresql", "postgres")

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.]*(-[A-Za-z0-9_.]+)*")
_NAME_CHARACTERS_MAX: Final = 40
_OWN: Final = frozenset({"name", "stores"})
_SECRETS: Final = frozenset({"password", "sslpassword"})
#: Options of libpq that an address may give.
_TAKEN: Final = frozenset(
    {
        "application_name", "channel_binding", "connect_timeout", "dbname", "gssdelegation", "gssencmode", "gsslib",
        "host", "hostaddr", "krbsrvname", "load_balance_hosts", "passfile", "port", "require_auth", "requirepeer",
        "service", "ssl_max_protocol_version", "ssl_min_protocol_version", "sslcert", "sslcertmode",
        "sslcompression", "sslcrl", "sslcrldir", "sslkey", "sslmode", "sslnegotiation", "sslrootcert", "sslsni",
        "target_session_attrs", "user",
    }
)  # fmt: skip
_PORT: Final = 5432
#: A connection whose other end is gone is noticed within seconds. The first two may be given otherwise.
_ALWAYS: Final = {
    "application_name": "busway",
    "connect_timeout": "5",
    "client_encoding": "UTF8",
    "keepalives": "1",
    "keepalives_idle": "2",
    "keepalives_interval": "1",
    "keepalives_count": "3",
    "tcp_user_timeout": "3000",
}

PASSWORD_IN_ARGUMENT: Final = (
    "A password does not belong into --store, where everybody on this machine can read it: leave it to libpq"
    " (passfile, service file, PGPASSWORD), or write the address into the configuration file, or into a file of its"
    " own and give --store @FILE."
)


class PostgresUrl:
    """An address that was read. Its options may hold a password; nothing that it shows does."""

    __slots__ = ("_options", "name", "stores")

    def __init__(self, name: str, stores: int, options: dict[str, str]) -> None:
        #: Its stores are called name-0, name-1 and so on.
        self.name = name
        self.stores = stores
        self._options = options

    def conninfo(self, left: tuple[str, int] | None = None) -> str:
        """For libpq. It holds a password only if the address did. `left`: of several hosts the one, with its port,
        that is asked last."""
        options = {**_ALWAYS, **self._options, **({} if left is None else self._other_hosts_first(*left))}
        return " ".join(f"{key}={_quoted(value)}" for key, value in options.items())

    def _other_hosts_first(self, left_host: str, left_port: int) -> dict[str, str]:
        hosts = self._options.get("host", "").split(",")
        ports = self._options.get("port", "").split(",")
        ports = ports if len(ports) == len(hosts) else ports[:1] * len(hosts)
        pairs = list(zip(hosts, ports, strict=True))
        others = [pair for pair in pairs if pair[0] != left_host or int(pair[1] or _PORT) != left_port]
        if len(others) == len(pairs) or "hostaddr" in self._options:
            return {}
        others += [pair for pair in pairs if pair not in others]
        return {
            "host": ",".join(host for host, _ in others),
            "port": ",".join(port for _, port in others),
        }

    @property
    def place(self) -> str:
        """Hosts and database, by which two addresses of one database are noticed before anything is opened."""
        hosts, ports = self._options.get("host", ""), self._options.get("port", "")
        return "/".join((hosts, ports, self._options.get("dbname", ""), self._options.get("service", "")))

    @property
    def shown(self) -> str:
        """Without user, secrets and options."""
        hosts = self._options.get("host", "").split(",")
        ports = self._options.get("port", "").split(",")
        ports = ports if len(ports) == len(hosts) else ports[:1] * len(hosts)
        named = ",".join(
            _shown_host(host) + (f":{port}" if port else "") for host, port in zip(hosts, ports, strict=True)
        )
        database = self._options.get("dbname", "") or self._options.get("service", "")
        return f"postgresql://{named}/{database}"

    def without_secrets(self, text: str) -> str:
        """For what others say about the address."""
        for key in _SECRETS:
            if secret := self._options.get(key):
                text = text.replace(secret, "…")
        return text

    def store_name(self, number: int) -> str:
        return f"{self.name}-{number}"

    @property
    def store_names(self) -> list[str]:
        return [self.store_name(number) for number in range(self.stores)]

    def __repr__(self) -> str:
        return f"PostgresUrl({self.shown!r}, name={self.name!r}, stores={self.stores})"


def is_postgres(text: str) -> bool:
    """Whether a store's address is for here."""
    return text.partition(":")[0].lower() in SCHEMES


def parse(text: str, *, is_argument: bool = False) -> PostgresUrl:
    """Raises StoreError with a sentence. `is_argument`: it stands in a command line, which must hold no password."""
    scheme, _, rest = text.partition("://")
    if scheme.lower() not in SCHEMES or not rest:
        raise StoreError(
            "The address of a PostgreSQL store has the form postgresql://USER@HOST:PORT/DATABASE?OPTION=VALUE&…"
        )
    before_query, _, query = rest.partition("?")
    authority, _, database = before_query.partition("/")
    if "@" in database or "@" in query or ("/" in query and not _is_query(query)):
        raise StoreError(
            "The address of a PostgreSQL store has an @ or / where none can be: in its user, password and options"
            " write @ as %40, / as %2F, ? as %3F, # as %23 and : as %3A."
        )
    options = _endpoint(authority, database)
    for key, value in _query_options(query).items():
        if key in options:
            raise StoreError(f"The address of a PostgreSQL store gives {key} twice.")
        options[key] = value
    if is_argument and not _SECRETS.isdisjoint(options):
        raise StoreError(PASSWORD_IN_ARGUMENT)
    name = _name(options.pop("name", NAME_DEFAULT))
    stores = _count(options.pop("stores", str(STORES_DEFAULT)))
    if "," in options.get("host", "") or "," in options.get("hostaddr", ""):
        options.setdefault("target_session_attrs", "read-write")  # follows a fail-over
        options.setdefault("connect_timeout", "2")  # one that is gone holds up the way to the others
    return PostgresUrl(name, stores, options)


def _is_query(query: str) -> bool:
    return all("=" in pair for pair in query.split("&"))


def _endpoint(authority: str, database: str) -> dict[str, str]:
    found: dict[str, str] = {}
    userinfo, _, hosts = authority.rpartition("@")
    user, has_password, password = userinfo.partition(":")
    if has_password:
        found["password"] = _decoded(password)
    found["user"] = _decoded(user)
    pairs = [_host_and_port(each) for each in hosts.split(",")]
    found["host"] = ",".join(host for host, _ in pairs)
    if any(port for _, port in pairs):
        found["port"] = ",".join(port for _, port in pairs)
    found["dbname"] = _decoded(database)
    return {key: value for key, value in found.items() if value.strip(",")}


def _host_and_port(text: str) -> tuple[str, str]:
    host, bracket, rest = text.rpartition("]")
    if bracket:  # an IPv6 address
        host, port = host.removeprefix("["), rest.removeprefix(":")
    else:
        host, _, port = text.partition(":")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise StoreError(
            "The port in the address of a PostgreSQL store must be a number between 1 and 65535."
        )
    return _decoded(host), port


def _query_options(query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in query.split("&") if query else ():
        key, has_value, value = pair.partition("=")
        if key not in _OWN | _SECRETS | _TAKEN:
            raise StoreError(
                f"The address of a PostgreSQL store has an unknown option{_shown_key(key)}: there are name, stores"
                f" and, of libpq's, {', '.join(sorted(_TAKEN))}."
            )
        if not has_value or not value:
            raise StoreError(f"The option {key} in the address of a PostgreSQL store has no value.")
        if key in found:
            raise StoreError(f"The address of a PostgreSQL store gives {key} twice.")
        found[key] = _decoded(value)
    return found


def _shown_key(key: str) -> str:
    """Only what looks like an option's name: the rest of a password may stand there."""
    return f" {key}" if re.fullmatch(r"[a-z_]{1,32}", key) else ""


def _decoded(text: str) -> str:
    try:
        found = unquote(text, errors="strict")
    except UnicodeDecodeError:
        found = "\0"
    if "\0" in found:
        raise StoreError("The address of a PostgreSQL store has a %-sequence in it that is no text.")
    return found


def _name(text: str) -> str:
    if len(text) > _NAME_CHARACTERS_MAX or not _NAME.fullmatch(text):
        raise StoreError(
            f"The name in the address of a PostgreSQL store must be a letter and then letters, digits, _ . or -, at"
            f" most {_NAME_CHARACTERS_MAX} in all."
        )
    return text


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= STORES_MAX):
        raise StoreError(f"A PostgreSQL database holds between 1 and {STORES_MAX} stores: write stores=16.")
    return int(text)


def _shown_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
