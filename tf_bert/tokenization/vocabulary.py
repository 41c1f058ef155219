"""Reads vocabulary files: one piece a line; the line's number is its id.

The facts are the original's: a line ends only at ``\\n``, carriage returns are dropped, blanks around a piece too, an
empty line takes an id, and of two equal lines the last one has the id. The size of a vocabulary is its number of lines.
Beyond the original, what is silently wrong there is said: invalid UTF-8, a byte order mark, equal lines, an empty file.
"""

import collections
import hashlib
import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence

from tf_bert.files import atomic_writer, open_binary
from tf_bert.json_files import kind_of, parse_json

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# The directory that a published archive unpacks to, alone or followed by the checkpoint's name, at the end of a path.
_PUBLISHED_NAME = re.compile(
    r"""(?: ^ | [/\\] )
    (?P<name> (?P<kind> multi_cased | multilingual | chinese | (?:wwm_)? (?:un)? cased ) _L-\d+_H-\d+_A-\d+ )
    (?: [/\\]+ bert_model\.ckpt .* | [/\\]* ) $""",
    re.VERBOSE,
)


def read_vocab_lines(vocab_file: str | os.PathLike) -> list[str]:
    """Reads the pieces of a vocabulary file; the place of a piece in the list is its id.

    Args:
        vocab_file: UTF-8 text, one piece a line; a local path, or one with a scheme that ``tf.io.gfile`` knows.

    Returns:
        One piece for each line, equal and empty ones too.

    Raises:
        ValueError: the file is empty, not UTF-8 (says at which line and byte offset), or no vocabulary: JSON, binary,
            lines that end in carriage returns alone, or most lines with blanks inside.
        FileNotFoundError, IsADirectoryError, PermissionError, OSError: the file cannot be read.

    Warns:
        UserWarning: the file starts with a byte order mark (it is dropped; the original keeps it, so that the first
            piece is never found), lines are equal (the last one has the id), or a line has blanks inside.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     _ = file.write("[PAD]\\n[UNK]\\r\\n\\n b \\n".encode())
        ...     file.flush()
        ...     read_vocab_lines(file.name)
        ['[PAD]', '[UNK]', '', 'b']
    """
    with open_binary(vocab_file) as file:
        data = file.read()
    return _parse(data, os.fspath(vocab_file))


def _parse(data: bytes, name: str) -> list[str]:
    if data.startswith(_BYTE_ORDER_MARK):
        warnings.warn(f"{name}: dropped a byte order mark at the start of the vocabulary", stacklevel=3)
        data = data[len(_BYTE_ORDER_MARK) :]
        skipped = len(_BYTE_ORDER_MARK)
    else:
        skipped = 0
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    if not any(lines):
        raise ValueError(f"{name}: the vocabulary is empty; expected one piece a line")
    if found := _other_kind(data):
        raise ValueError(f"{name} is no vocabulary: {found}; expected UTF-8 text, one piece a line")
    pieces, offset = [], skipped
    for number, line in enumerate(lines, start=1):
        try:
            line.decode("utf-8")
            pieces.append(line.replace(b"\r", b"").decode("utf-8").strip())
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name}, line {number}: not valid UTF-8 at byte offset {offset + error.start} "
                f"(byte 0x{line[error.start]:02x}); a vocabulary must be UTF-8 text"
            ) from None
        offset += len(line) + 1
    _check_blanks(pieces, name)
    counts = collections.Counter(pieces)
    equal = [piece for piece, count in counts.items() if count > 1 and piece]
    if equal:
        first = equal[0]
        numbers = [number for number, piece in enumerate(pieces) if piece == first]
        warnings.warn(
            f"{name}: {len(equal)} pieces stand on several lines, as {first!r} with the ids {numbers}; the last line "
            "counts and the other ids are never used",
            stacklevel=3,
        )
    return pieces


def _other_kind(data: bytes) -> str | None:
    """What a file is that was taken for a vocabulary; None where it may be one."""
    if b"\0" in data:
        return "it holds NUL bytes, as a SentencePiece model or UTF-16 text does"
    if b"\r" in data and b"\n" not in data:
        return "its lines end in carriage returns alone"
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            return f"it holds JSON, {kind_of(parse_json(data, ''))}"
        except ValueError:
            return None
    return None


def _check_blanks(pieces: Sequence[str], name: str) -> None:
    """Looks at pieces that hold blanks: they are in no text, which is split at blanks first."""
    with_blanks = [number for number, piece in enumerate(pieces, start=1) if len(piece.split()) > 1]
    if not with_blanks:
        return
    first = f"such as {pieces[with_blanks[0] - 1]!r:.60} on line {with_blanks[0]}"
    if len(with_blanks) > len(pieces) / 2:
        raise ValueError(
            f"{name} is no vocabulary: {len(with_blanks)} of its {len(pieces)} lines hold blanks, {first}; expected "
            "one piece a line, without counts or scores"
        )
    warnings.warn(f"{name}: {len(with_blanks)} pieces hold blanks, {first}, and are in no text", stacklevel=4)


def load_vocab(vocab_file: str | os.PathLike) -> dict[str, int]:
    """Reads a vocabulary file into an ordered mapping from piece to id.

    As in the original, equal lines are one entry, at the place of the first and with the id of the last; so the mapping
    may be shorter than the file, whose number of lines is `vocab_size` of the mapping.

    Args and errors: see `read_vocab_lines`.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     _ = file.write("[PAD]\\n[UNK]\\ncat".encode())
        ...     file.flush()
        ...     load_vocab(file.name)
        {'[PAD]': 0, '[UNK]': 1, 'cat': 2}
    """
    return ids_of(read_vocab_lines(vocab_file))


def ids_of(pieces: Iterable[str]) -> dict[str, int]:
    """Maps each piece of a list to its place; of equal ones to the last."""
    return {piece: number for number, piece in enumerate(pieces)}


def vocab_size(vocab: Mapping[str, int]) -> int:
    """The number of lines of the vocabulary file, which is the number of rows that the embedding table needs.

    Example:
        >>> vocab_size({"[PAD]": 0, "twice": 2})
        3
    """
    return max(vocab.values(), default=-1) + 1


def save_vocab(pieces: Sequence[str], vocab_file: str | os.PathLike) -> None:
    """Writes a vocabulary file from which `read_vocab_lines` reads the same pieces.

    Args:
        pieces: one for each line, in the order of their ids. Empty and equal ones are written as they are.
        vocab_file: where to write; the file appears whole or not at all.

    Raises:
        TypeError: ``pieces`` is a mapping, which has one entry for equal pieces, and whose order need not be the ids'.
        ValueError: a piece would be read back as another: it holds a line feed or carriage return, or has blanks around
            it.
        OSError: the file cannot be written.
    """
    if isinstance(pieces, Mapping):
        raise TypeError(
            "save_vocab takes a list of pieces in the order of their ids, not a mapping: in a vocabulary with equal "
            "lines, as load_vocab returns it, the ids would shift. read_vocab_lines(file) gives the list"
        )
    for number, piece in enumerate(pieces):
        if piece != piece.strip() or "\n" in piece or "\r" in piece:
            raise ValueError(f"piece {number} of the vocabulary, {piece!r}, has blanks around it or a line break in it")
    with atomic_writer(vocab_file) as file:
        file.write("".join(piece + "\n" for piece in pieces).encode("utf-8"))


def vocab_sha256(vocab_file: str | os.PathLike) -> str:
    """The SHA-256 of the bytes of a vocabulary file, in hexadecimal; data creation writes it beside its records."""
    with open_binary(vocab_file) as file:
        return hashlib.sha256(file.read()).hexdigest()


def check_special_tokens(
    vocab: Mapping[str, int], vocab_file: str | os.PathLike = "the vocabulary", required: Sequence[str] = SPECIAL_TOKENS
) -> None:
    """Stops where a vocabulary lacks special tokens, before any text is read.

    Raises:
        ValueError: names the missing tokens, and those that are there in another case.

    Example:
        >>> check_special_tokens({"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[mask]": 4}, "vocab.txt")
        Traceback (most recent call last):
        ...
        ValueError: vocab.txt lacks the special token [MASK] (but has [mask]); ...
    """
    missing = [token for token in required if token not in vocab]
    if missing:
        lowered = {piece.lower(): piece for piece in vocab}
        similar = [lowered[token.lower()] for token in missing if token.lower() in lowered]
        but = f" (but has {', '.join(similar)})" if similar else ""
        raise ValueError(
            f"{os.fspath(vocab_file)} lacks the special token{'s' * (len(missing) > 1)} {', '.join(missing)}{but}; "
            f"a vocabulary for BERT holds {' '.join(required)}, each on a line of its own"
        )


def special_tokens(choice: bool | Sequence[str], vocab: Mapping[str, int], vocab_file: str | os.PathLike) -> list[str]:
    """Returns the tokens that are looked for in texts, longer ones first, so that none hides another.

    Raises:
        ValueError: one of them is not in the vocabulary or empty.
    """
    if isinstance(choice, str) or (not isinstance(choice, bool) and "" in choice):
        raise ValueError(f"special_tokens_in_text must be a bool or some tokens, not {choice!r}")
    tokens = list(SPECIAL_TOKENS if choice is True else choice or [])
    check_special_tokens(vocab, vocab_file, tokens)
    return sorted(tokens, key=len, reverse=True)


def any_of(tokens: Iterable[str]) -> str:
    """A regular expression for any of some tokens."""
    return "|".join(map(re.escape, tokens))


def convert_by_vocab(vocab: Mapping, items: Iterable) -> list:
    """Looks up each item; the name and the strictness are the original's: there is no fall-back to [UNK].

    Raises:
        KeyError: an item is not in the vocabulary.

    Example:
        >>> convert_by_vocab({"cat": 7, "dog": 8}, ["dog", "cat"])
        [8, 7]
    """
    try:
        return [vocab[item] for item in items]
    except KeyError as error:
        raise KeyError(f"{error.args[0]!r} is not in the vocabulary of {len(vocab)} entries") from None


def convert_tokens_to_ids(vocab: Mapping[str, int], tokens: Iterable[str]) -> list[int]:
    """Returns the id of each token; see `convert_by_vocab`."""
    return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(inv_vocab: Mapping[int, str], ids: Iterable[int]) -> list[str]:
    """Returns the token of each id; see `convert_by_vocab`."""
    return convert_by_vocab(inv_vocab, ids)


def validate_case_matches_checkpoint(do_lower_case: bool, init_checkpoint: str | os.PathLike | None) -> None:
    """Stops where ``--do_lower_case`` contradicts the name of a published checkpoint.

    The original knows seven names; here also the whole-word-masking and the 24 small models, the directory without
    ``bert_model.ckpt`` and Windows paths are. Other paths say nothing about casing and pass.

    Args:
        do_lower_case: the flag.
        init_checkpoint: the path, such as ``uncased_L-12_H-768_A-12/bert_model.ckpt``; None or empty passes.

    Raises:
        ValueError: the flag and the name contradict each other.

    Example:
        >>> validate_case_matches_checkpoint(True, "models/wwm_uncased_L-24_H-1024_A-16/bert_model.ckpt")
        >>> validate_case_matches_checkpoint(True, "models/cased_L-12_H-768_A-12/bert_model.ckpt")
        Traceback (most recent call last):
        ...
        ValueError: You passed in `--do_lower_case=True` with `--init_checkpoint=models/cased_L-12_H-768_A-12/...
    """
    found = _PUBLISHED_NAME.search(os.fspath(init_checkpoint)) if init_checkpoint else None
    if found is None:
        return
    lower = found["kind"] in ("uncased", "wwm_uncased", "multilingual", "chinese")
    if lower == bool(do_lower_case):
        return
    raise ValueError(
        f"You passed in `--do_lower_case={bool(do_lower_case)}` with `--init_checkpoint={os.fspath(init_checkpoint)}`. "
        f"However, `{found['name']}` seems to be a {'lowercased' if lower else 'cased'} model, so you should pass in "
        f"`--do_lower_case={lower}` so that the fine-tuning matches how the model was pre-trained. If this is wrong, "
        "rename the directory."
    )


def casing_problem(vocab: Iterable[str], do_lower_case: bool) -> str | None:
    """Says in a sentence that the pieces of a vocabulary do not fit ``do_lower_case``; None where nothing is wrong.

    A vocabulary made from lower-cased text holds next to no piece with a capital letter (the published uncased one
    none, the Chinese one two); one made from text as written holds many (29 % of the published cased one). A
    lower-casing tokenizer never uses the pieces with capitals; a cased one makes [UNK] of every word with a capital
    where there are none. Pieces in brackets ([PAD], [unused1]) do not count. Of fewer than 100 pieces with letters
    nothing is said.

    Args:
        vocab: the pieces.
        do_lower_case: how the tokenizer is going to be used.

    Example:
        >>> casing_problem([f"Word{i}" for i in range(200)], do_lower_case=True)
        'do_lower_case is True, but 200 of 200 pieces of the vocabulary that have letters hold capitals, ...'
        >>> casing_problem([f"word{i}" for i in range(200)], do_lower_case=True)
    """
    lettered = [piece for piece in vocab if piece.lower() != piece.upper() and not piece.startswith("[")]
    capital = sum(piece != piece.lower() for piece in lettered)
    if len(lettered) < 100:
        return None
    counts = f"{capital} of {len(lettered)} pieces of the vocabulary that have letters hold capitals"
    if do_lower_case and capital > 0.05 * len(lettered):
        return (
            f"do_lower_case is True, but {counts}, which would never be used; pass --do_lower_case=False, or the "
            "vocabulary that was made from lower-cased text"
        )
    if not do_lower_case and capital < 0.001 * len(lettered):
        return (
            f"do_lower_case is False, but {counts}, so that words with capitals become [UNK]; pass "
            "--do_lower_case=True, or the vocabulary that was made from text as written"
        )
    return None
