"""docs/rules.md has a sentence for every rule that is named, and no docstring is a list of rules and nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.rules import PAGE, ROOT, RULE, rows

KINDS = ("recorded", "SDK", "documentation", "standard", "report", "decided")
#: Where rules are named.
FOLDERS = ("src", "tests", "benchmarks", "scripts", "docs", "examples")
TEXTS = {".py", ".md", ".sql", ".mjs", ".java", ".go", ".rs"}
#: Generated from rules.md itself.
PROOFS = PAGE.with_name("proofs.md")
#: What may stand beside an id without saying anything.
MARK = re.compile(r"\[(?:rec|dec)\]|\b(?:and|to)\b")
WORD = re.compile(r"[^\W\d_]{2}")


def files(*suffixes: str) -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and not {"node_modules", "_compiled"} & set(path.parts):
                yield path


def test_every_rule_that_is_named_has_its_sentence() -> None:
    """Documentation: an id in code, tests or pages leads to a row of docs/rules.md."""
    known = rows()
    missing = {
        f"{path.relative_to(ROOT)}: {rule}"
        for path in [*files(*TEXTS), *ROOT.glob("*.md")]
        if path != PROOFS
        for rule in RULE.findall(path.read_text())
        if rule not in known
    }
    assert sorted(missing) == []


def test_every_rule_is_a_sentence_with_a_source() -> None:
    """Documentation: at least three words, and sources of known kinds whose pages are listed at the end."""
    defined = set(re.findall(r"^\[([^\]]+)\]: https://\S+$", PAGE.read_text(), re.MULTILINE))
    faults: list[str] = []
    for rule, (sentence, source) in rows().items():
        if len(sentence.split()) < 3 or not sentence.endswith((".", ".)")):
            faults.append(f"{rule} is no sentence: {sentence}")
        kinds = [part.partition(" [")[0] for part in source.split(", ")]
        links = re.findall(r"\[([^\]]+)\]", source)
        faults += [f"{rule} has a source of no kind: {kind}" for kind in kinds if kind not in KINDS]
        faults += [f"{rule} has a source without a page: {link}" for link in links if link not in defined]
    assert faults == []


def says_nothing(docstring: str) -> bool:
    """It names rules and has no word beside them."""
    return RULE.search(docstring) is not None and WORD.search(MARK.sub("", RULE.sub("", docstring))) is None


def test_a_docstring_is_more_than_the_ids_of_rules() -> None:
    """House style: an id says where to read on, the sentence beside it what is meant here."""
    bare = [
        f"{path.relative_to(ROOT)}:{node.body[0].lineno} {ast.get_docstring(node)}"
        for path in files(".py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and says_nothing(ast.get_docstring(node) or "")
    ]
    assert bare == []


@pytest.mark.parametrize(
    "text", ["R-17.", "R-17, ERR-11", "D-22: 404.", "[rec] E-38", "TX-12…TX-17 and TX-19."]
)
def test_ids_and_numbers_say_nothing(text: str) -> None:
    """House style: what the test above takes for an empty docstring."""
    assert says_nothing(text)
    assert not says_nothing(f"{text} A lost lock settles nothing.")
