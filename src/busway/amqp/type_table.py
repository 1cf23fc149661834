"""The composite types of AMQP 1.0 as one table, and how they are read and written by it.

The types are frames, SASL frames, termini, delivery states, and the two list sections of a message. Each type is a
class whose constructor takes its fields in the order of the standard, and a row in TABLE with name, code and the
wire type of each field. What is absent on the wire is None here, except the flags of frames, which are then False.
Values are shared (a decoded outcome may be the same object for many frames), so nobody changes them.

A composite type is a described list whose fields have names and wire types (`CompositeTable`). Written are always
all fields, trailing nulls included, as list8 or list32 and never list0, behind the descriptor `00 53 code`:
deployed clients index the fields blindly and look at that one byte. Read are both descriptors, the code and the
symbol, each compared whole. A mandatory field that is missing, a field of another type and a field too many are
DecodeErrors. An absent field is None; only a flag with the default false becomes False. An empty repeated field is
written as null, which means the same: one deployed decoder loses its place in an empty array.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from busway.amqp.decode import DecodeError
from busway.amqp.encode import EncodeError, append_list, append_value
from busway.amqp.errors import AmqpError
from busway.amqp.types import Array, Described, Symbol, Timestamp, UByte, UInt, ULong, UShort

#: Wire kinds and the Python types that a decoded value of that kind has, exactly.
_TYPES: Final[dict[str, tuple[type[Any], ...]]] = {
    "boolean": (bool,),
    "ubyte": (UByte,),
    "ushort": (UShort,),
    "uint": (UInt,),
    "ulong": (ULong,),
    "timestamp": (Timestamp,),
    "binary": (bytes,),
    "string": (str,),
    "symbol": (Symbol,),
    "map": (dict,),
    "fields": (dict,),
    "message-id": (str, UUID, ULong, bytes),
}
#: Integers are plain on the Python side; the table knows the wire type.
_INTEGERS: Final[dict[str, Callable[[int], object]]] = {
    "ubyte": UByte,
    "ushort": UShort,
    "uint": UInt,
    "ulong": ULong,
    "timestamp": Timestamp,
}


class Field:
    """One field of a composite type: its wire kind, and what the standard says about its absence."""

    __slots__ = ("default", "kind", "mandatory", "multiple", "name")

    def __init__(self, text: str) -> None:
        """`name:kind`, then `*` multiple, `!` mandatory, `=false` a flag that is False when absent."""
        name, kind = text.split(":")
        self.name = name
        self.mandatory = kind.endswith("!")
        self.default = False if kind.endswith("=false") else None
        kind = kind.removesuffix("!").removesuffix("=false")
        self.multiple = kind.endswith("*")
        self.kind = kind.removesuffix("*")


class CompositeDefinition:
    """One row of the table. `make` takes the fields in this order."""

    __slots__ = ("code", "fields", "make", "name")

    def __init__(self, make: type[Any], name: str, code: int, fields: str = "") -> None:
        self.make = make
        self.name = name
        self.code = code
        self.fields = [Field(text) for text in fields.split()]


class CompositeTable:
    """All composite types of a protocol, looked up by descriptor for reading and by class for writing.

    `unions` names kinds of fields that hold a composite value, with the classes that may stand there. A union that
    lists Described also takes described values that the table does not know.
    """

    __slots__ = ("_by_class", "_by_descriptor", "_unions", "rows")

    def __init__(
        self, rows: tuple[CompositeDefinition, ...], unions: dict[str, tuple[type[Any], ...]]
    ) -> None:
        self.rows = rows
        self._unions = unions
        self._by_class: dict[type, CompositeDefinition] = {row.make: row for row in rows}
        self._by_descriptor: dict[object, CompositeDefinition] = {}
        for row in rows:
            self._by_descriptor[row.code] = row
            self._by_descriptor[row.name] = row

    def definition(self, descriptor: object) -> CompositeDefinition | None:
        """The row that a descriptor names, by code or by symbol."""
        if isinstance(descriptor, (ULong, Symbol)):
            return self._by_descriptor.get(descriptor)
        return None

    def compose(self, value: object) -> object:
        """A described value as the composite type that the table names for it; anything else as it is."""
        if not isinstance(value, Described):
            return value
        row = self.definition(value.descriptor)
        return value if row is None else self.make(row, value.value)

    def make(self, row: CompositeDefinition, value: object) -> object:
        """The composite value of a row out of its decoded list."""
        if not isinstance(value, list):
            raise DecodeError(f"{row.name} is not a list")
        fields = row.fields
        if len(value) > len(fields):
            raise DecodeError(f"{row.name} has {len(value)} fields instead of {len(fields)}")
        values = [self._read_field(row, field, item) for field, item in zip(fields, value, strict=False)]
        for field in fields[len(value) :]:
            values.append(self._read_field(row, field, None))
        return row.make(*values)

    def _read_field(self, row: CompositeDefinition, field: Field, value: Any) -> object:
        if value is None:
            if field.mandatory:
                raise DecodeError(f"{row.name} lacks its field {field.name}")
            return field.default
        kind = field.kind
        if field.multiple:
            return _read_symbols(row, field, value)
        expected = _TYPES.get(kind)
        if expected is not None:
            if type(value) not in expected:
                raise _mismatch(row, field, value)
            return int(value) if kind in _INTEGERS else value
        return value if kind == "any" else self._read_union(row, field, value)

    def _read_union(self, row: CompositeDefinition, field: Field, value: object) -> object:
        made = self.compose(value)
        if not isinstance(made, self._unions[field.kind]):
            raise _mismatch(row, field, value)
        return made

    def append(self, out: bytearray, value: object) -> None:
        """Write a composite value."""
        row = self._by_class.get(type(value))
        if row is None:
            raise EncodeError(f"{type(value).__name__} is no composite type of AMQP")
        body = bytearray()
        for field in row.fields:
            self._append_field(body, field, getattr(value, field.name))
        out += bytes((0x00, 0x53, row.code))
        append_list(out, body, len(row.fields))

    def _append_field(self, out: bytearray, field: Field, value: Any) -> None:
        if value is None:
            if field.mandatory:
                raise EncodeError(f"The mandatory field {field.name} is None")
            out.append(0x40)
        elif field.multiple:
            append_value(out, _symbols(value) if value else None)
        elif type(value) in self._by_class:
            self.append(out, value)
        else:
            append_value(out, _typed(field.kind, value))


def _read_symbols(row: CompositeDefinition, field: Field, value: object) -> list[str]:
    """A field that may repeat: one symbol, or an array of them."""
    if isinstance(value, Symbol):
        return [value]
    if not isinstance(value, Array) or value.descriptors or value.code not in (0xA3, 0xB3):
        raise _mismatch(row, field, value)
    return [str(item) for item in value.items]


def _mismatch(row: CompositeDefinition, field: Field, value: object) -> DecodeError:
    return DecodeError(f"{row.name}: field {field.name} is a {type(value).__name__}, not {field.kind}")


def _symbols(names: list[str]) -> Array:
    return Array([Symbol(name) for name in names], 0xB3 if any(len(name) > 255 for name in names) else 0xA3)


def _typed(kind: str, value: Any) -> object:
    """A plain Python value as the AMQP type that its field has on the wire."""
    if kind in _INTEGERS:
        return _INTEGERS[kind](value)
    if kind == "symbol":
        return Symbol(value)
    if kind == "fields":
        return {_field_key(key): item for key, item in value.items()}
    if kind == "message-id" and type(value) is int:
        return ULong(value)
    return value


def _field_key(key: object) -> object:
    """Keys of `fields` are symbols; plain text is taken for one."""
    return Symbol(key) if type(key) is str else key


#: A map with symbols as keys ("fields" in the standard), or any other map.
Fields = dict[Any, Any]


class Performative:
    """Any composite type of the table (except AmqpError, which is a plain value of `errors`)."""

    __slots__ = ()


#: The role field of attach and disposition.
ROLE_SENDER: Final = False
ROLE_RECEIVER: Final = True

#: Sender and receiver settle modes.
SENDER_UNSETTLED: Final = 0
SENDER_SETTLED: Final = 1
SENDER_MIXED: Final = 2
RECEIVER_FIRST: Final = 0
RECEIVER_SECOND: Final = 1

#: Codes of SASL outcomes.
SASL_OK: Final = 0
SASL_AUTH: Final = 1


@dataclass
class Open(Performative):
    container_id: str
    hostname: str | None = None
    max_frame_size: int | None = None
    channel_max: int | None = None
    idle_time_out: int | None = None
    outgoing_locales: list[str] | None = None
    incoming_locales: list[str] | None = None
    offered_capabilities: list[str] | None = None
    desired_capabilities: list[str] | None = None
    properties: Fields | None = None


@dataclass
class Begin(Performative):
    remote_channel: int | None
    next_outgoing_id: int
    incoming_window: int
    outgoing_window: int
    handle_max: int | None = None
    offered_capabilities: list[str] | None = None
    desired_capabilities: list[str] | None = None
    properties: Fields | None = None


@dataclass
class Attach(Performative):
    name: str
    handle: int
    role: bool
    snd_settle_mode: int | None = None
    rcv_settle_mode: int | None = None
    source: Source | None = None
    target: Target | Coordinator | None = None
    unsettled: Fields | None = None
    incomplete_unsettled: bool = False
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: list[str] | None = None
    desired_capabilities: list[str] | None = None
    properties: Fields | None = None


class Flow(Performative):
    __slots__ = (
        "available",
        "delivery_count",
        "drain",
        "echo",
        "handle",
        "incoming_window",
        "link_credit",
        "next_incoming_id",
        "next_outgoing_id",
        "outgoing_window",
        "properties",
    )

    def __init__(
        self,
        next_incoming_id: int | None,
        incoming_window: int,
        next_outgoing_id: int,
        outgoing_window: int,
        handle: int | None = None,
        delivery_count: int | None = None,
        link_credit: int | None = None,
        available: int | None = None,
        drain: bool = False,
        echo: bool = False,
        properties: Fields | None = None,
    ) -> None:
        self.next_incoming_id = next_incoming_id
        self.incoming_window = incoming_window
        self.next_outgoing_id = next_outgoing_id
        self.outgoing_window = outgoing_window
        self.handle = handle
        self.delivery_count = delivery_count
        self.link_credit = link_credit
        self.available = available
        self.drain = drain
        self.echo = echo
        self.properties = properties


class Transfer(Performative):
    __slots__ = (
        "aborted",
        "batchable",
        "delivery_id",
        "delivery_tag",
        "handle",
        "message_format",
        "more",
        "rcv_settle_mode",
        "resume",
        "settled",
        "state",
    )

    def __init__(
        self,
        handle: int,
        delivery_id: int | None = None,
        delivery_tag: bytes | None = None,
        message_format: int | None = None,
        settled: bool | None = None,
        more: bool = False,
        rcv_settle_mode: int | None = None,
        state: object = None,
        resume: bool = False,
        aborted: bool = False,
        batchable: bool = False,
    ) -> None:
        self.handle = handle
        self.delivery_id = delivery_id
        self.delivery_tag = delivery_tag
        self.message_format = message_format
        self.settled = settled
        self.more = more
        self.rcv_settle_mode = rcv_settle_mode
        self.state = state
        self.resume = resume
        self.aborted = aborted
        self.batchable = batchable


class Disposition(Performative):
    __slots__ = ("batchable", "first", "last", "role", "settled", "state")

    def __init__(
        self,
        role: bool,
        first: int,
        last: int | None = None,
        settled: bool = False,
        state: object = None,
        batchable: bool = False,
    ) -> None:
        self.role = role
        self.first = first
        #: None means the same as `first`.
        self.last = last
        self.settled = settled
        self.state = state
        self.batchable = batchable


@dataclass
class Detach(Performative):
    handle: int
    closed: bool = False
    error: AmqpError | None = None


@dataclass
class End(Performative):
    error: AmqpError | None = None


@dataclass
class Close(Performative):
    error: AmqpError | None = None


@dataclass
class SaslMechanisms(Performative):
    sasl_server_mechanisms: list[str]


@dataclass(repr=False)  # the response holds a secret
class SaslInit(Performative):
    mechanism: str
    initial_response: bytes | None = None
    hostname: str | None = None


@dataclass(repr=False)
class SaslChallenge(Performative):
    challenge: bytes


@dataclass(repr=False)
class SaslResponse(Performative):
    response: bytes


@dataclass
class SaslOutcome(Performative):
    code: int
    additional_data: bytes | None = None


@dataclass
class Source(Performative):
    address: Any = None
    durable: int | None = None
    expiry_policy: str | None = None
    timeout: int | None = None
    dynamic: bool | None = None
    dynamic_node_properties: Fields | None = None
    distribution_mode: str | None = None
    filter: Fields | None = None
    default_outcome: Any = None
    outcomes: list[str] | None = None
    capabilities: list[str] | None = None


@dataclass
class Target(Performative):
    address: Any = None
    durable: int | None = None
    expiry_policy: str | None = None
    timeout: int | None = None
    dynamic: bool | None = None
    dynamic_node_properties: Fields | None = None
    capabilities: list[str] | None = None


@dataclass
class Coordinator(Performative):
    capabilities: list[str] | None = None


@dataclass
class Received(Performative):
    section_number: int
    section_offset: int


@dataclass
class Accepted(Performative):
    pass


@dataclass
class Rejected(Performative):
    error: AmqpError | None = None


@dataclass
class Released(Performative):
    pass


@dataclass
class Modified(Performative):
    delivery_failed: bool | None = None
    undeliverable_here: bool | None = None
    message_annotations: Fields | None = None


@dataclass
class Declare(Performative):
    global_id: Any = None


@dataclass
class Discharge(Performative):
    txn_id: bytes
    fail: bool | None = None


@dataclass
class Declared(Performative):
    txn_id: bytes


class TransactionalState(Performative):
    """Three to each operation of a transaction: not a dataclass, whose constructor is never compiled."""

    __slots__ = ("outcome", "txn_id")

    def __init__(self, txn_id: bytes, outcome: Any = None) -> None:
        self.txn_id = txn_id
        self.outcome = outcome

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TransactionalState):
            return NotImplemented
        return self.txn_id == other.txn_id and bool(self.outcome == other.outcome)

    def __hash__(self) -> int:
        return hash(self.txn_id)

    def __repr__(self) -> str:
        return f"TransactionalState(txn_id={self.txn_id!r}, outcome={self.outcome!r})"


@dataclass
class Header(Performative):
    durable: bool | None = None
    priority: int | None = None
    ttl: int | None = None
    first_acquirer: bool | None = None
    delivery_count: int | None = None


@dataclass
class Properties(Performative):
    message_id: Any = None
    user_id: bytes | None = None
    to: Any = None
    subject: str | None = None
    reply_to: Any = None
    correlation_id: Any = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


ErrorPerformative = AmqpError

#: Outcomes without fields need no second instance.
ACCEPTED: Final = Accepted()
RELEASED: Final = Released()

#: Lifetime policies: values of the dynamic node property `lifetime-policy`.
DELETE_ON_CLOSE: Final = Described(ULong(0x2B), [])
DELETE_ON_NO_LINKS: Final = Described(ULong(0x2C), [])
DELETE_ON_NO_MESSAGES: Final = Described(ULong(0x2D), [])
DELETE_ON_NO_LINKS_OR_MESSAGES: Final = Described(ULong(0x2E), [])


_CAPABILITIES: Final = "offered_capabilities:symbol* desired_capabilities:symbol* properties:fields"
_TERMINUS: Final = (
    "address:any durable:uint expiry_policy:symbol timeout:uint dynamic:boolean"
    " dynamic_node_properties:fields"
)

# fmt: off
TABLE: Final = CompositeTable((
    CompositeDefinition(Open, "amqp:open:list", 0x10,
               "container_id:string! hostname:string max_frame_size:uint channel_max:ushort idle_time_out:uint"
               f" outgoing_locales:symbol* incoming_locales:symbol* {_CAPABILITIES}"),
    CompositeDefinition(Begin, "amqp:begin:list", 0x11,
               "remote_channel:ushort next_outgoing_id:uint! incoming_window:uint! outgoing_window:uint!"
               f" handle_max:uint {_CAPABILITIES}"),
    CompositeDefinition(Attach, "amqp:attach:list", 0x12,
               "name:string! handle:uint! role:boolean! snd_settle_mode:ubyte rcv_settle_mode:ubyte"
               " source:source target:target unsettled:map incomplete_unsettled:boolean=false"
               f" initial_delivery_count:uint max_message_size:ulong {_CAPABILITIES}"),
    CompositeDefinition(Flow, "amqp:flow:list", 0x13,
               "next_incoming_id:uint incoming_window:uint! next_outgoing_id:uint! outgoing_window:uint!"
               " handle:uint delivery_count:uint link_credit:uint available:uint drain:boolean=false"
               " echo:boolean=false properties:fields"),
    CompositeDefinition(Transfer, "amqp:transfer:list", 0x14,
               "handle:uint! delivery_id:uint delivery_tag:binary message_format:uint settled:boolean"
               " more:boolean=false rcv_settle_mode:ubyte state:state resume:boolean=false"
               " aborted:boolean=false batchable:boolean=false"),
    CompositeDefinition(Disposition, "amqp:disposition:list", 0x15,
               "role:boolean! first:uint! last:uint settled:boolean=false state:state batchable:boolean=false"),
    CompositeDefinition(Detach, "amqp:detach:list", 0x16, "handle:uint! closed:boolean=false error:error"),
    CompositeDefinition(End, "amqp:end:list", 0x17, "error:error"),
    CompositeDefinition(Close, "amqp:close:list", 0x18, "error:error"),
    CompositeDefinition(SaslMechanisms, "amqp:sasl-mechanisms:list", 0x40, "sasl_server_mechanisms:symbol*!"),
    CompositeDefinition(SaslInit, "amqp:sasl-init:list", 0x41,
               "mechanism:symbol! initial_response:binary hostname:string"),
    CompositeDefinition(SaslChallenge, "amqp:sasl-challenge:list", 0x42, "challenge:binary!"),
    CompositeDefinition(SaslResponse, "amqp:sasl-response:list", 0x43, "response:binary!"),
    CompositeDefinition(SaslOutcome, "amqp:sasl-outcome:list", 0x44, "code:ubyte! additional_data:binary"),
    CompositeDefinition(AmqpError, "amqp:error:list", 0x1D, "condition:symbol! description:string info:fields"),
    CompositeDefinition(Source, "amqp:source:list", 0x28,
               f"{_TERMINUS} distribution_mode:symbol filter:fields default_outcome:outcome outcomes:symbol*"
               " capabilities:symbol*"),
    CompositeDefinition(Target, "amqp:target:list", 0x29, f"{_TERMINUS} capabilities:symbol*"),
    CompositeDefinition(Coordinator, "amqp:coordinator:list", 0x30, "capabilities:symbol*"),
    CompositeDefinition(Received, "amqp:received:list", 0x23, "section_number:uint! section_offset:ulong!"),
    CompositeDefinition(Accepted, "amqp:accepted:list", 0x24),
    CompositeDefinition(Rejected, "amqp:rejected:list", 0x25, "error:error"),
    CompositeDefinition(Released, "amqp:released:list", 0x26),
    CompositeDefinition(Modified, "amqp:modified:list", 0x27,
               "delivery_failed:boolean undeliverable_here:boolean message_annotations:fields"),
    CompositeDefinition(Declare, "amqp:declare:list", 0x31, "global_id:any"),
    CompositeDefinition(Discharge, "amqp:discharge:list", 0x32, "txn_id:binary! fail:boolean"),
    CompositeDefinition(Declared, "amqp:declared:list", 0x33, "txn_id:binary!"),
    CompositeDefinition(TransactionalState, "amqp:transactional-state:list", 0x34, "txn_id:binary! outcome:outcome"),
    CompositeDefinition(Header, "amqp:header:list", 0x70,
               "durable:boolean priority:ubyte ttl:uint first_acquirer:boolean delivery_count:uint"),
    CompositeDefinition(Properties, "amqp:properties:list", 0x73,
               "message_id:message-id user_id:binary to:any subject:string reply_to:any"
               " correlation_id:message-id content_type:symbol content_encoding:symbol"
               " absolute_expiry_time:timestamp creation_time:timestamp group_id:string group_sequence:uint"
               " reply_to_group_id:string"),
), unions={
    "source": (Source,),
    "target": (Target, Coordinator),
    "error": (AmqpError,),
    "outcome": (Accepted, Rejected, Released, Modified, Described),
    "state": (Accepted, Rejected, Released, Modified, Received, Declared, TransactionalState, Described),
})
# fmt: on
