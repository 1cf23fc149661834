"""The files of the page: read once, compressed, under a version of their content.

All files have addresses with the version in them, `/$console/VERSION/page/app.js`, which is a digest of all of them:
a browser keeps them for ever, and a server with other files has other addresses. Only the page itself is asked for
anew each time. Nothing is loaded from anywhere else, and the page says so in its Content-Security-Policy: scripts
and styles are files of this server, the map of modules is known by its digest, and nothing may be put into a frame.
"""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

#: Below this package, with their files.
_FOLDERS: Final = ("page", "vendor")
_TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
#: Names by which modules import what is in `vendor`.
_IMPORTS: Final = {
    "preact": "vendor/preact.mjs",
    "preact/hooks": "vendor/preact-hooks.mjs",
    "htm": "vendor/htm.mjs",
}
#: Loaded before anybody asks: all modules that the first screen needs would be asked for one after the other else.
_FIRST: Final = (
    "page/overview/",
    "page/sign_in/",
    "page/parts/",
    "page/bus/",
    "page/frame.js",
    "page/routes.js",
)
_VERSION_LETTERS: Final = 16
_SAVING_MIN: Final = 0.9


@dataclass(frozen=True)
class PageFile:
    content: bytes
    content_type: str
    #: None where compressing saves nothing.
    compressed: bytes | None
    etag: str


class PageFiles:
    """Read from the package; takes some 50 ms, so call it in a thread."""

    def __init__(self) -> None:
        found: dict[str, bytes] = {}
        for folder in _FOLDERS:
            found.update(_read(files(__package__) / folder, folder))
        digest = sha256()
        for name, content in sorted(found.items()):
            digest.update(f"{name}\n{len(content)}\n".encode() + content)
        self.version = digest.hexdigest()[:_VERSION_LETTERS]
        self._files = {name: _file_of(name, content) for name, content in found.items()}
        self._import_map = self._imports()

    def find(self, name: str) -> PageFile | None:
        return self._files.get(name)

    def names(self) -> list[str]:
        return sorted(self._files)

    def address(self, name: str) -> str:
        return f"/$console/{self.version}/{name}"

    def _imports(self) -> str:
        addresses = {name: self.address(file) for name, file in _IMPORTS.items()}
        return json.dumps({"imports": addresses}, separators=(",", ":"))

    def page(self) -> bytes:
        """The one HTML page. Nothing in it depends on the bus or on who asks."""
        first = [name for name in self.names() if name.startswith(_FIRST) and name.endswith(".js")]
        ahead = "".join(
            f'<link rel="modulepreload" href="{self.address(name)}">' for name in [*_IMPORTS.values(), *first]
        )
        return (
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Busway</title>'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f'<link rel="icon" href="{self.address("page/icon.svg")}">'
            f'<link rel="stylesheet" href="{self.address("page/console.css")}">'
            f'<link rel="stylesheet" href="{self.address("vendor/uplot.css")}">'
            f'<script type="importmap">{self._import_map}</script>{ahead}'
            f'<script defer src="{self.address("vendor/uplot.js")}"></script>'
            f'<script type="module" src="{self.address("page/app.js")}"></script></head>'
            '<body><div id="console"></div><noscript><p>The console needs JavaScript. Everything that it does can be'
            " done on the command line, too: busway --help.</p></noscript></body></html>"
        ).encode()

    def policy(self, authority: str) -> str:
        """`authority`: the Host header, of which it is known that it is one. Not every browser takes a WebSocket for
        something of the page's own host."""
        digest = base64.b64encode(sha256(self._import_map.encode()).digest()).decode()
        return (
            f"default-src 'none'; script-src 'self' 'sha256-{digest}'; style-src 'self'; img-src 'self' data:;"
            f" connect-src 'self' ws://{authority} wss://{authority}; base-uri 'none'; form-action 'none';"
            " frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types busway-xml"
        )


def _read(folder: Traversable, name: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for entry in folder.iterdir():
        below = f"{name}/{entry.name}"
        if entry.is_dir():
            found.update(_read(entry, below))
        elif _type_of(entry.name) is not None:
            found[below] = entry.read_bytes()
    return found


def _type_of(name: str) -> str | None:
    return next((kind for ending, kind in _TYPES.items() if name.endswith(ending)), None)


def _file_of(name: str, content: bytes) -> PageFile:
    compressed = gzip.compress(content, 9, mtime=0)
    is_worth_it = len(compressed) < _SAVING_MIN * len(content)
    etag = f'"{sha256(content).hexdigest()[:_VERSION_LETTERS]}"'
    return PageFile(content, _type_of(name) or "", compressed if is_worth_it else None, etag)
