"""What mypyc makes of the hot modules, cut into C files that stand alone.

mypyc writes a C file for each module, two headers with the declarations of all of them, one table of literals that
all of them index, and for each module a small extension by which Python finds it. Compiled as it comes, a new method
or a new string in one module changes the headers or shifts the table, and with them every file. So each file is made
to depend on what it uses, and on nothing else:

  declarations  a file gets those that it names, with those that these name, instead of the headers;
  literals      a file numbers its own from 0 in a table of its own, filled from the common one at start;
  entries       the small extensions become one or two with an entry for each module: they are all alike, and the
                compiler spends its time on Python's headers.

A file that did not change then has the same text as before, and its object is taken from the cache.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

#: Behind the one place where the common table of literals has been filled.
_LITERALS_ARE_THERE = "    is_initialized = 1;\n"
_LITERAL = re.compile(r"\bCPyStatics\[(\d+)\]")
_NAME = re.compile(r"\b[A-Za-z_]\w*")


class NotCompilable(Exception):
    """mypyc refused the sources; the text is what it said."""


@dataclass(frozen=True)
class Library:
    """A shared library to be linked from units, which are named."""

    name: str
    units: tuple[str, ...]


@dataclass
class Units:
    """Everything to compile, and what is made of it."""

    #: name → text of a C file
    texts: dict[str, str] = field(default_factory=dict)
    libraries: list[Library] = field(default_factory=list)
    #: hot module → the library in which Python finds its entry
    entries: dict[str, str] = field(default_factory=dict)
    include_folders: tuple[str, ...] = ()


def units_of(modules: tuple[str, ...], group: str, cache: Path, target: Path) -> Units:
    """Runs mypyc on the sources below the working directory, and cuts what it writes into `target`."""
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(said):
        from mypyc.build import mypycify

        try:
            extensions = mypycify(
                [
                    "--strict",
                    # What hot modules import may itself import packages that are not installed yet: lint's business.
                    "--follow-imports=silent",
                    "--cache-dir",
                    str(cache),
                    *(module.replace(".", "/") + ".py" for module in modules),
                ],
                group_name=group,
                multi_file=True,
                target_dir=str(target),
            )
        except SystemExit as end:
            raise NotCompilable(said.getvalue().strip()) from end
    [shared] = [extension for extension in extensions if extension.name == f"{group}__mypyc"]
    units = Units(include_folders=tuple(dict.fromkeys([str(target), *shared.include_dirs])))
    _add_group(units, shared.name, [Path(source) for source in shared.sources], group)
    shims = {each.name: Path(each.sources[0]).read_text() for each in extensions if each is not shared}
    _add_entries(units, shims, group)
    return units


def _add_group(units: Units, library: str, sources: list[Path], group: str) -> None:
    headers = [sources[0].parent / name for name in (f"__native_{group}.h", f"__native_internal_{group}.h")]
    declarations = Declarations(line for header in headers for line in header.read_text().splitlines())
    tables: dict[str, list[int]] = {}
    for source in sources:
        text = source.read_text()
        if source.name.startswith("__native_") and source.name != f"__native_{group}.c":
            table = f"CPyStatics_{source.stem.removeprefix('__native_')}"
            text, tables[table] = _with_literals_of_its_own(text, table)
            text = _with_declarations_of_its_own(text, declarations)
        units.texts[source.name] = text
    common = f"__native_{group}.c"
    units.texts[common] = _filling(units.texts[common], tables)
    units.libraries.append(Library(library, tuple(source.name for source in sources)))


def _with_literals_of_its_own(text: str, table: str) -> tuple[str, list[int]]:
    """The text with its literals counted from 0 in the order of their use, and where each is in the common table."""
    places: dict[int, int] = {}
    body = _LITERAL.sub(lambda found: f"{table}[{places.setdefault(int(found[1]), len(places))}]", text)
    head, _, rest = body.partition("\n\n")
    return f"{head}\nPyObject *{table}[{max(1, len(places))}];\n\n{rest}", list(places)


def _filling(common: str, tables: dict[str, list[int]]) -> str:
    """The file with the common table, which fills the tables of the modules as well."""
    before, there, after = common.partition(_LITERALS_ARE_THERE)
    if not there:
        raise NotCompilable(
            "mypyc no longer fills its table of literals where scripts/c_units.py looks for it."
        )
    head, separator, body = before.partition("\n\n")
    declared, copied = [], []
    for table, places in tables.items():
        if places:
            numbers = ",".join(map(str, places))
            declared.append(
                f"extern PyObject *{table}[];\nstatic const int {table}_places[] = {{{numbers}}};"
            )
            copied.append(f"    for (int i = 0; i < {len(places)}; i++)\n")
            copied.append(f"        {table}[i] = CPyStatics[{table}_places[i]];\n")
    return "".join((head, "\n", "\n".join(declared), separator, body, *copied, there, after))


def _with_declarations_of_its_own(text: str, declarations: Declarations) -> str:
    includes = [line for line in text.splitlines() if line.startswith('#include "__native_')]
    body = text
    for line in includes:
        body = body.replace(line + "\n", "", 1)
    return "\n".join((*declarations.includes, *declarations.used_by(body), "", body))


class Declarations:
    """The declarations of mypyc's headers, by the name that each declares."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.includes: list[str] = []
        self._texts: list[str] = []
        self._places: dict[str, int] = {}
        block: list[str] = []
        end = ""
        for line in lines:
            if block:
                block.append(line)
                if line.startswith(end):
                    self._add("\n".join(block))
                    block = []
            elif line.startswith("#include"):
                if "__native_" not in line and line not in self.includes:
                    self.includes.append(line)
            elif line.startswith(("#ifndef MYPYC_DECLARED_", "typedef struct {")):
                block, end = [line], "#endif" if line.startswith("#") else "}"
            elif line and not line.startswith("#"):
                self._add(line)

    def _add(self, text: str) -> None:
        self._places.setdefault(_declared_by(text), len(self._texts))
        self._texts.append(text)

    def used_by(self, body: str) -> list[str]:
        """In the order of the headers, so that each stands behind what it needs."""
        wanted = set(_NAME.findall(body))
        places: set[int] = set()
        while new := {place for name in wanted if (place := self._places.get(name)) is not None} - places:
            places |= new
            wanted = {name for place in new for name in _NAME.findall(self._texts[place])}
        return [self._texts[place] for place in sorted(places)]


def _declared_by(text: str) -> str:
    """`} NAME;` at the end of a struct; else the name before the first bracket or the end."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    names = _NAME.findall(re.split(r"[(\[;]", lines[-1])[0])
    if not names:
        raise NotCompilable(f"scripts/c_units.py does not know what mypyc declares here: {text}")
    return names[-1]


def _add_entries(units: Units, shims: dict[str, str], group: str) -> None:
    """Python looks an entry up by the last word of the module's name, so that two alike need two libraries."""
    texts: list[dict[str, str]] = []
    for module, text in shims.items():
        leaf = module.rpartition(".")[2]
        number = next((place for place, taken in enumerate(texts) if leaf not in taken), len(texts))
        if number == len(texts):
            texts.append({})
        texts[number][leaf] = text.partition("// distutils sometimes")[0]
        units.entries[module] = f"{group}_entries_{number}"
    for number, found in enumerate(texts):
        name = f"{group}_entries_{number}"
        units.texts[f"{name}.c"] = "\n".join(found[leaf] for leaf in sorted(found))
        units.libraries.append(Library(name, (f"{name}.c",)))
