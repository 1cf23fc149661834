"""Bytes put together, and numbers read out of them, without an object for each step.

Theory of operation. Hot modules take these names from here. The type checker sees those of `librt`, mypyc's own
library, and so does mypyc: in compiled code each of them is a few machine instructions, and what stands below never
runs. As Python sources the same modules run what stands below. This module is therefore never compiled, and what it
makes never passes between compiled code and other code: to each its own writer.

A writer's methods are `write`, `append`, `truncate`, `getvalue` and `len`. The functions write and read numbers,
big-endian or little-endian as they are named: what is written is cut to its width, what is read is signed, and a
place outside the bytes is an IndexError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from librt.strings import BytesWriter as BytesWriter
    from librt.strings import read_i16_le as read_i16_le
    from librt.strings import read_i32_be as read_i32_be
    from librt.strings import read_i32_le as read_i32_le
    from librt.strings import read_i64_be as read_i64_be
    from librt.strings import write_i16_be as write_i16_be
    from librt.strings import write_i32_be as write_i32_be
    from librt.strings import write_i32_le as write_i32_le
    from librt.strings import write_i64_be as write_i64_be
    from librt.strings import write_i64_le as write_i64_le
    from mypy_extensions import i16 as i16
    from mypy_extensions import i32 as i32
    from mypy_extensions import i64 as i64
else:
    from struct import Struct
    from struct import error as StructError

    #: Outside of compiled code a number has no width.
    i16 = i32 = i64 = int

    class BytesWriter(bytearray):
        __slots__ = ()

        write = bytearray.extend

        def getvalue(self):
            return bytes(self)

        def truncate(self, size):
            del self[size:]

    def _writer(form, mask):
        pack = Struct(form).pack

        def write(out, number):
            out.extend(pack(number & mask))

        return write

    def _reader(form):
        unpack_from = Struct(form).unpack_from

        def read(data, at):
            if at < 0:
                raise ValueError("index must be non-negative")
            try:
                return unpack_from(data, at)[0]
            except StructError:
                raise IndexError(f"index {at} out of range for bytes of length {len(data)}") from None

        return read

    write_i16_be = _writer(">H", 0xFFFF)
    write_i32_be = _writer(">I", 0xFFFF_FFFF)
    write_i32_le = _writer("<I", 0xFFFF_FFFF)
    write_i64_be = _writer(">Q", 0xFFFF_FFFF_FFFF_FFFF)
    write_i64_le = _writer("<Q", 0xFFFF_FFFF_FFFF_FFFF)
    read_i16_le = _reader("<h")
    read_i32_be = _reader(">i")
    read_i32_le = _reader("<i")
    read_i64_be = _reader(">q")
