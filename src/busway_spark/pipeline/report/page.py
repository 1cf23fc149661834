"""A report as one HTML file: style (`page.css`), sections, tables, notes. No script, nothing from a network.

Everything that is not made here is escaped on its way in; `Markup` is text that already is HTML. The page forbids
itself scripts and requests besides (Content-Security-Policy), in case that one day something slips through.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final, NewType
from uuid import uuid4

from busway_spark.pipeline.report.charts import text_of

Markup = NewType("Markup", str)
_CELL_LETTERS: Final = 240
_NUMBER: Final = ' class="num"'

_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)


def page(title: str, subtitle: str, parts: Sequence[Markup]) -> str:
    name = text_of(title)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        f'<meta http-equiv="Content-Security-Policy" content="{text_of(_POLICY)}"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        '<meta name="referrer" content="no-referrer"/>'
        f"<title>{name}</title><style>{_style()}</style></head>\n<body><main><h1>{name}</h1>"
        f'<p class="sub">{text_of(subtitle)}</p>\n{chr(10).join(parts)}\n</main></body></html>\n'
    )


def _style() -> str:
    return files("busway_spark.pipeline").joinpath("page.css").read_text(encoding="utf-8")


def tiles(pairs: Sequence[tuple[str, str]]) -> Markup:
    """Big numbers: (number, what it is)."""
    inner = "".join(
        f'<div class="tile"><b>{text_of(value)}</b><span>{text_of(name)}</span></div>'
        for value, name in pairs
    )
    return Markup(f'<div class="tiles">{inner}</div>')


def notes(sentences: Sequence[str]) -> Markup:
    """What is remarkable; nothing when there is nothing."""
    if not sentences:
        return Markup("")
    return Markup(f'<ul class="notes">{"".join(f"<li>{text_of(each)}</li>" for each in sentences)}</ul>')


def section(title: str, cards: Sequence[Markup], *, small: bool = False) -> Markup:
    if not cards:
        return Markup("")
    return Markup(
        f'<h2>{text_of(title)}</h2><div class="cards{" small" if small else ""}">{"".join(cards)}</div>'
    )


def card(title: str, content: str, explanation: str = "", more: str = "", *, wide: bool = False) -> Markup:
    """`content` and `more` are HTML already: charts and tables of ours."""
    said = f"<p>{text_of(explanation)}</p>" if explanation else ""
    return Markup(
        f'<div class="card{" wide" if wide else ""}"><h3>{text_of(title)}</h3>{said}{content}{more}</div>'
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Markup:
    """Numbers to the right."""
    numbers = [_is_number(cell) for cell in rows[0]] if rows else [False] * len(heads)
    top = "".join(
        f"<th{_NUMBER if is_number else ''}>{text_of(head)}</th>"
        for head, is_number in zip(heads, numbers, strict=False)
    )
    body = "".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in rows)
    return Markup(
        f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def details(summary: str, content: Markup) -> Markup:
    return Markup(f"<details><summary>{text_of(summary)}</summary>{content}</details>")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if value is None:
        return "<td>–</td>"
    if isinstance(value, int | float) and _is_number(value):
        return f"<td{_NUMBER}>{text_of(f'{value:,}')}</td>"
    return f"<td>{text_of(value, _CELL_LETTERS)}</td>"


def write_whole(path: Path, text: str) -> None:
    """A file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        half.write_text(text, encoding="utf-8")
        os.replace(half, path)
    except BaseException:
        half.unlink(missing_ok=True)
        raise
