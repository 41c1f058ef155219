"""English text that is on every machine: what Python's ``help()`` shows.

That is the language reference (``pydoc_data.topics``: some 80 topics of English technical prose, 460 to 510 KB, as
Sphinx prints them) and the docstrings of the standard library. Kept is what reads as prose, without headings, code,
grammar, tables and marks: some 1.4 MB.
"""

import ast
import re
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from tf_bert.data.text.sentences import split_sentences

_RULE = re.compile(r"""([-=*~^"'.#+|])\1{2,}|[-+=|].*[-+=|]""")  # under a heading, around a table
_BULLET = re.compile(r"^(?:[*•]|\d{1,2}\.|\[\d{1,2}\])\s+")
_EMPHASIS = re.compile(r"(?<![\w*\"])(\*\*?)(\w[^*\"]*?)\1(?![\w*])")
_ENDS_AS_PROSE = re.compile(r"""[.!?:;][)”"\]]*(?: \[\d+\])*$""")
_CODE = re.compile(r">>>|::=|^\s*(?:def|class|for|while|if|elif|else|try|with|match|case|@)\b.*:$", re.MULTILINE)
_WORD = re.compile(r"""[("'“‘]*[A-Za-z][a-z]*(?:[-’'/][a-z]+)*[)"'”’]*[.,;:!?]*[)"”’]*""")
_LEAST_WORDS, _LEAST_SHARE_OF_WORDS = 4, 0.6
_LEAST_CHARACTERS = 1000  # of a module's prose, to be a document
_NOT_OF_THE_LIBRARY = {"test", "tests", "site-packages", "dist-packages", "pydoc_data", "__phello__"}


def builtin_corpus(topics: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yields the sentences of the built-in corpus, and an empty line after each document.

    Paragraphs that stand in a longer topic too are left out, and topics of which that takes more than half ("while" is
    a section of "compound"), so that a held-out document has not been read in training under another name.

    Args:
        topics: name -> text; by default the topics of the running Python and the docstrings of each of its modules.

    Example:
        >>> topics = {"zero": "Title\\n*****\\n\\nA number is *zero* or\\nit is not.  See below.\\n\\n   x = 0\\n"}
        >>> list(builtin_corpus(topics))
        ['A number is zero or it is not.', 'See below.', '']
    """
    if topics is None:
        from pydoc_data.topics import topics

        topics = topics | library_docstrings()
    prose = {name: prose_paragraphs(text) for name, text in topics.items()}
    seen: set[str] = set()
    for name in sorted(prose, key=lambda name: (-sum(map(len, prose[name])), name)):
        new = [paragraph for paragraph in prose[name] if paragraph not in seen]
        seen.update(new)
        prose[name] = new if len(new) > len(prose[name]) / 2 else []
    for name in sorted(prose):
        for paragraph in prose[name]:
            yield from split_sentences(paragraph)
        if prose[name]:
            yield ""


def library_docstrings() -> dict[str, str]:
    """The docstrings of each module of the standard library, by its path: those with prose enough for a document."""
    library = Path(sysconfig.get_path("stdlib"))
    docstrings = {}
    for path in sorted(library.rglob("*.py")):
        name = path.relative_to(library)
        if _NOT_OF_THE_LIBRARY.isdisjoint(name.parts):
            text = "\n\n".join(_docstrings(path))
            if sum(map(len, prose_paragraphs(text))) >= _LEAST_CHARACTERS:
                docstrings[name.as_posix()] = text
    return docstrings


def _docstrings(path: Path) -> Iterator[str]:
    """Those of a module, its classes and functions, read without importing it."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # templates and samples of tools, such as lib2to3's
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def prose_paragraphs(text: str) -> list[str]:
    """The paragraphs of a topic that read as prose, each on one line."""
    found = []
    for block in re.split(r"\n\s*\n", text):
        lines = block.strip("\n").split("\n")
        if any(_RULE.fullmatch(line.strip()) for line in lines) or _CODE.search(block):
            continue
        if len(lines) > 1 and _indentation(lines[0]) < _indentation(lines[1]) and not _BULLET.match(lines[0].strip()):
            lines = lines[1:]  # what is explained: "Strings", "object.__del__(self)"
        paragraph = _BULLET.sub("", " ".join(" ".join(lines).split()))
        paragraph = re.sub(r"(?<=\w)- (?=[a-z])", "-", paragraph)  # wrapped at a hyphen
        paragraph = _EMPHASIS.sub(r"\2", paragraph)
        if _is_prose(paragraph):
            found.append(paragraph)
    return found


def _is_prose(paragraph: str) -> bool:
    words = paragraph.split()
    plain = sum(_WORD.fullmatch(word) is not None for word in words)
    enough = len(words) >= _LEAST_WORDS and plain >= _LEAST_SHARE_OF_WORDS * len(words)
    return enough and _ENDS_AS_PROSE.search(paragraph) is not None


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())
