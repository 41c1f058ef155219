"""Seeded mutations of a call's files and flags, and what may come of them."""

import csv
import dataclasses
import json
import random
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import google_crc32c

from tests.support.tiny_calls import VOCABULARY, Call, Result

TEXT = (".txt", ".csv", ".tsv", ".conll", ".json", ".jsonl", ".bpe")
WHOLE = ("tfrecord", ".index", ".data-00000-of-00001")  # files with checksums: a change shows, or changes nothing
ODD_VALUES = [0, -1, 1.5, "x", "", None, [], {}, True, 7, 1 << 40, float("nan")]
WRITTEN = re.compile("--(out|heldout|arrays|png|plot)")
# Numbers of steps and passes: a larger one is no mistake, and never ends.
COUNTS = re.compile("steps|epochs|dupe|passes|num_pairs|num_samples")


@dataclasses.dataclass
class Mutation:
    """A changed call.

    Args:
        said: what was changed, for messages.
        flags: the arguments.
        contents: file -> its new content; None where it is removed.
        stdin: what comes on standard input.
        fails: whether the call has to fail.
    """

    said: str
    flags: Sequence[str]
    contents: Mapping[str, bytes | None]
    stdin: bytes
    fails: bool = False


def mutate(call: Call, folder: Path, number: int) -> Mutation:
    """Draws mutation ``number`` of a call whose files are in a folder."""
    rng = random.Random(f"{call.command} {' '.join(call.flags)} {number}")
    files = [*call.files, *(["standard input"] if call.stdin else [])]
    if not files or rng.random() < 0.25:
        said, flags, fails = _mutated_flags(call.flags, rng)
        return Mutation(said, flags, {}, call.stdin, fails)
    name = rng.choice(files)
    if name == "standard input":
        how, content = _mutated_text(call.stdin, rng)
        return Mutation(f"standard input: {how}", call.flags, {}, content)
    content = (folder / name).read_bytes()
    other = (folder / rng.choice([file for file in call.files if file != name] or [name])).read_bytes()
    how, content = _mutated_content(name, content, other, rng)
    return Mutation(
        f"{name}: {how}", call.flags, {name: content}, call.stdin, content is None and name not in call.optional
    )


def _mutated_flags(flags: Sequence[str], rng: random.Random) -> tuple[str, list[str], bool]:
    """Returns what was done, the flags, and whether that has to fail."""
    flags = list(flags)
    named = [number for number, flag in enumerate(flags) if flag.startswith("--")]
    kind = rng.choice(["unknown", "stray", *(["misspelt", "value", "value", "value", "twice"] if named else [])])
    place = rng.choice(named or [0])
    name, _, value = flags[place].partition("=")
    number = bool(re.fullmatch(r"-?[\d.e-]+", value)) and name != "--layers"
    if kind == "misspelt":
        at = rng.randrange(3, len(name))
        flags[place] = name[:at] + name[at + 1 :] + ("=" + value if value else "")
        kind = flags[place]
        return f"flag {kind}", flags, True
    if kind == "unknown":
        return "flag --no_such_flag=1", [*flags, "--no_such_flag=1"], True
    if kind == "stray":
        return "stray words", [*flags, "some", "stray", "words"], True
    if kind == "twice":
        return f"{flags[place]} twice", [*flags, flags[place]], False
    if number:
        odd = rng.choice(["", "x", "nan", "1e999", "-1", "0", "1.5", "1,5", "0x10", str(1 << 40)])
        if odd == str(1 << 40) and COUNTS.search(name):
            odd = "many"
        fails = odd in ("", "x", "nan", "1,5", "many")
    elif value:
        odd = rng.choice(["", "missing.xyz", "/dev/null", "bert", "\udcff", "a" * 300, ",", "*"])
        fails = "file" in name and not WRITTEN.match(name) and odd in ("missing.xyz", "bert", ",")
    else:
        odd, fails = rng.choice(["maybe", "", "2"]), True
    flags[place] = f"{name}={odd}"
    return f"flag {ascii(flags[place])}", flags, fails


def _mutated_content(name: str, content: bytes, other: bytes, rng: random.Random) -> tuple[str, bytes | None]:
    general: list[tuple[str, Callable[[], bytes | None]]] = [
        ("removed", lambda: None),
        ("empty", lambda: b""),
        ("another file", lambda: other),
        ("doubled", lambda: content * 2),
    ]
    if rng.random() < 0.2:
        how, change = rng.choice(general)
        return how, change()
    if name.endswith(".json") and rng.random() < 0.7:
        return _mutated_json(content, rng)
    if name.endswith(TEXT):
        return _mutated_text(content, rng)
    return _mutated_bytes(content, rng)


def _mutated_bytes(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    place = rng.randrange(len(content))
    return rng.choice(
        [
            (f"cut at {place}", content[:place]),
            (
                f"bit at {place}",
                content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :],
            ),
            (f"byte more at {place}", content[:place] + b"\x07" + content[place:]),
            (f"zeros from {place}", content[:place] + bytes(len(content) - place)),
            ("bytes appended", content + b"\x01\x02\x03"),
        ]
    )


def _mutated_text(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    lines = content.split(b"\n")
    number = rng.randrange(len(lines))
    line = lines[number]
    columns = re.split(rb"([\t, ])", line)
    place = rng.randrange(len(content) + 1)

    def with_line(*new: bytes) -> bytes:
        return b"\n".join([*lines[:number], *new, *lines[number + 1 :]])

    changes = [
        (f"cut at {place}", content[:place]),
        (f"byte 0xff at {place}", content[:place] + b"\xff" + content[place:]),
        (f"NUL at {place}", content[:place] + b"\0" + content[place:]),
        (f"line {number + 1} twice", with_line(line, line)),
        (f"line {number + 1} removed", with_line()),
        (f"columns of line {number + 1} reversed", with_line(b"".join(reversed(columns)))),
        (f"column removed from line {number + 1}", with_line(b"".join(columns[:-2]))),
        (f"tab and word after line {number + 1}", with_line(line + b"\tword")),
        (f"comma and quote after line {number + 1}", with_line(line + b',"')),
        ("UTF-16", content.decode("utf-8").encode("utf-16")),
        ("Latin-1", content.replace(b"e", "é".encode("latin-1"), 1)),
        ("carriage returns", content.replace(b"\n", b"\r")),
        ("a byte order mark", b"\xef\xbb\xbf" + content),
        ("a long line", content + b"the " * 5000 + b"\n"),
        ("lines reversed", b"\n".join(reversed(lines))),
    ]
    return rng.choice(changes)


def _mutated_json(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    value = json.loads(content)
    places: list[tuple[list | dict, object]] = []

    def walk(node):
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, member in items:
            places.append((node, key))
            walk(member)

    walk(value)
    node, key = rng.choice(places)
    if rng.random() < 0.25:
        del node[key]
        return f"{key!r} removed", json.dumps(value).encode()
    if rng.random() < 0.1:
        node[key] = json.loads("[" * 400 + "]" * 400)
        return f"{key!r} nested", json.dumps(value).encode()
    node[key] = rng.choice(ODD_VALUES)
    return f"{key!r}: {node[key]!r}", json.dumps(value).encode()


def fault_of(name: str, before: bytes, after: bytes, with_model: bool = True) -> str | None:
    """What is wrong with a changed file, by rules of this module alone; None where it is as good as before."""
    if name.endswith(TEXT):
        try:
            text = after.decode("utf-8-sig")
        except UnicodeDecodeError:
            return "not UTF-8"
        if not text.strip():
            return "empty"
        if name.endswith("vocab.txt"):
            pieces = [line.strip() for line in text.replace("\r", "").removesuffix("\n").split("\n")]
            lacking = [token for token in VOCABULARY[:5] if token not in pieces and token.encode() in before]
            shorter = with_model and len(pieces) < before.count(b"\n")
            doubtful = lacking or shorter or len(set(pieces)) < len(pieces) or " " in "".join(pieces)
            return "no vocabulary of the model" if doubtful else None
        rules = {
            ".json": _fault_of_json,
            ".jsonl": _fault_of_json_lines,
            ".csv": _fault_of_csv,
            ".conll": _fault_of_conll,
        }
        rule = next((rule for ending, rule in rules.items() if name.endswith(ending)), None)
        return rule(text) if rule else None
    if name.endswith("tfrecord"):
        return _fault_of_records(after)
    return None


def _fault_of_json(text: str) -> str | None:
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    return None


def _fault_of_json_lines(text: str) -> str | None:
    return next((fault for line in text.split("\n") if line.strip() and (fault := _fault_of_json(line))), None)


def _fault_of_csv(text: str) -> str | None:
    try:
        rows = [row for row in csv.reader(text.replace("\r", "").split("\n"), strict=True) if row]
    except csv.Error as error:
        return str(error)
    return "unequal columns" if len(set(map(len, rows))) > 1 else None


def _fault_of_conll(text: str) -> str | None:
    rows = [line.split("\t") for line in text.replace("\r", "").split("\n") if line.strip()]
    return "unequal columns" if len(set(map(len, rows))) > 1 else None


def _fault_of_records(data: bytes) -> str | None:
    def masked(part: bytes) -> int:
        crc = google_crc32c.value(part)
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

    place = 0
    while place < len(data):
        header = data[place : place + 12]
        if len(header) < 12 or struct.unpack("<I", header[8:])[0] != masked(header[:8]):
            return "damaged header"
        length = struct.unpack("<Q", header[:8])[0]
        body = data[place + 12 : place + 16 + length]
        if len(body) < length + 4 or struct.unpack("<I", body[-4:])[0] != masked(body[:-4]):
            return "damaged record"
        place += 16 + length
    return None if data else "empty"


def complaint(
    call: Call, mutation: Mutation, result: Result, folder: Path, originals: Path, whole: tuple[Result, Path]
) -> str | None:
    """What is wrong with how a changed call ended; None where it ended as it may.

    Args:
        call: the call before it was changed.
        mutation: the change.
        result: how the changed call ended.
        folder: where it ran.
        originals: where the files are that it was to read.
        whole: how the call ends without a change, and where it ran.
    """
    errors = [line for line in result.err.splitlines() if re.match(r"tf-bert [a-z_]+: error: ", line)]
    if result.error is not None:
        return f"{type(result.error).__name__} came out of the command: {result.error}"
    if "Traceback" in result.err or "{{" in result.err or "\x1b[" in result.err:
        return "a traceback, names of nodes or colours were printed"
    if result.status:
        if len(errors) != 1:
            return f"status {result.status} with {len(errors)} lines that say why"
        return "the line says nothing" if len(errors[0].partition(": error: ")[2]) < 10 else None
    if mutation.fails:
        return "status 0, but the call cannot have worked"
    elsewhere = any(WRITTEN.match(flag) for flag in set(mutation.flags) ^ set(call.flags))
    unsound = [name for name in call.outputs if not _is_sound(folder / name)]
    if unsound and not elsewhere and "is empty" not in result.err:
        return f"status 0, but {unsound[0]} is missing or unsound"
    for name, content in mutation.contents.items():
        if content is None:
            continue
        if name.endswith(WHOLE) and _said(call, result, folder) != _said(call, *whole):
            return f"status 0 and another result, but the checksums of {name} cannot fit"
        before = (originals / name).read_bytes()
        fault = fault_of(name, before, content, with_model=not call.command.startswith("create_"))
        named = Path(name).name in result.err or (name.endswith("vocab.txt") and "vocabulary" in result.err)
        if fault and not named:
            return f"status 0 and no warning that names {name}, which is {fault}"
    return None


def _said(call: Call, result: Result, folder: Path) -> list[str]:
    """What a call printed and wrote, without what time it took."""
    texts = [result.out, *((folder / name).read_text() for name in call.outputs if name.endswith(TEXT))]
    return [re.sub(r"[\d.]+ (s|steps/s|tokens/s)\b|_per_second.*", "", text) for text in texts]


def _is_sound(path: Path) -> bool:
    """Whether an output is whole and holds no NaN and no infinity."""
    if not path.is_file() or not path.stat().st_size:
        return False
    if path.suffix in (".json", ".jsonl"):
        texts = [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines()
        return all(not re.search(r"\b(NaN|Infinity)\b", text) and json.loads(text) is not None for text in texts)
    if path.suffix == ".tfrecord":
        return _fault_of_records(path.read_bytes()) is None
    return path.suffix not in (".txt", ".tsv") or not re.search(r"\b(nan|inf)\b", path.read_text())
