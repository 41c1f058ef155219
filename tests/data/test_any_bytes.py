"""Every reader of files: damaged ones give a result or one error that names the file; what is written is read again."""

import gzip
import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_bert.data.finetuning.glue import find_processor
from tf_bert.data.finetuning.label_list import note_labels, noted_labels
from tf_bert.data.finetuning.multiple_choice import ChoiceFilesProcessor
from tf_bert.data.finetuning.squad import read_squad_examples
from tf_bert.data.finetuning.squad_scores import read_answers
from tf_bert.data.finetuning.tagging import TaggedSentence, read_tagged, write_tagged
from tf_bert.data.finetuning.user_files import FileFormat, UserFilesProcessor
from tf_bert.data.language_modeling import blocks
from tf_bert.data.language_modeling.input import check_blocks, find_blocks
from tf_bert.data.pretraining.input import check_records, find_records, id_limits
from tf_bert.data.text import documents
from tf_bert.data.text.lines import read_lines
from tf_bert.data.text.tables import read_csv, read_jsonl, read_tsv
from tf_bert.data.tfrecord.files import count_records, decode_example, encode_example, frame, read_records
from tf_bert.data.tfrecord.sidecar import read_sidecar, write_sidecar
from tf_bert.data.translation.pairs import read_pairs

TABLE = 'text,label,other\n"a, ""b""",x,1\nc,y,2\n\nd,x,3\n'
JSON_LINES = '{"text": "a\\u00e9", "label": "x"}\n{"text": "b", "label": ["y", "z"]}\n{"text": "", "label": 1.5}\n'
CONLL = "# id 1\nAda B-per\nsings O\n\n-DOCSTART- O\n\nRome B-town\n"
TAGS = '{"words": ["Ada", "sings"], "tags": ["B-per", "O"]}\n{"words": [], "tags": []}\n'
ANSWERS = [{"text": "b c", "answer_start": 2}]
QUESTIONS = [{"id": "q", "question": "?", "answers": ANSWERS, "is_impossible": False}]
SQUAD = json.dumps({"version": "2", "data": [{"title": "t", "paragraphs": [{"context": "a b c", "qas": QUESTIONS}]}]})
EXAMPLE = {
    "input_ids": [2, 5, 3, 6, 3, 0],
    "input_mask": [1, 1, 1, 1, 1, 0],
    "segment_ids": [0, 0, 0, 1, 1, 0],
    "masked_lm_positions": [1, 0],
    "masked_lm_ids": [7, 0],
    "masked_lm_weights": [1.0, 0.0],
    "next_sentence_labels": [1],
}
BLOCK = {"input_ids": [1, 2, 3], "document_ids": [0, 0, 1], "num_tokens": [3], "num_bytes": [9]}
GLUE = "Quality\tid\tid\ta\tb\n1\t1\t2\ta\tb\n0\t3\t4\tc\td\n"


def user_file(**format):
    return lambda path: UserFilesProcessor(FileFormat(files={"train": path}, **format)).get_train_examples(None)


def choices(path):
    processor = ChoiceFilesProcessor(FileFormat(label="other", files={"train": path}), ["text", "label"])
    return processor.get_train_examples(None)


def glue(path):
    processor = find_processor("mrpc")
    processor.files = {"train": path}
    return processor.get_train_examples("")


def pretraining(path):
    records = find_records(path)
    check_records(records, id_limits(9, 2))
    return records.counts()


def language_modeling(path):
    check_blocks(find_blocks(path), 9)


# name of the file -> what it holds, and what reads it.
READERS = {
    "lines.txt": ("one\r\ntwo é\n\n", lambda path: list(read_lines(path))),
    "lines.gz": (gzip.compress(b"one\ntwo\n", mtime=0), lambda path: list(read_lines(path))),
    "table.csv": (TABLE, read_csv),
    "table.tsv": (GLUE, read_tsv),
    "rows.jsonl": (JSON_LINES, read_jsonl),
    "train.csv": (TABLE, user_file()),
    "train.tsv": (GLUE, user_file(text="a", text_pair="b", label="Quality")),
    "train.jsonl": (JSON_LINES, user_file(format="jsonl", kind="multi")),
    "numbers.csv": (TABLE, user_file(label="other", kind="regression")),
    "choices.csv": ("text,label,other\na,b,0\nc,d,1\n", choices),
    "mrpc.tsv": (GLUE, glue),
    "tags.conll": (CONLL, read_tagged),
    "tags.jsonl": (TAGS, read_tagged),
    "train.json": (SQUAD, lambda path: read_squad_examples(path, True, True)),
    "dev.json": (SQUAD, read_answers),
    "records": (b"".join(map(frame, [b"one", b"two"])), lambda path: (list(read_records(path)), count_records(path))),
    "pre.tfrecord": (b"".join([frame(encode_example(EXAMPLE))] * 3), pretraining),
    "lm.tfrecord": (b"".join([frame(encode_example(BLOCK))] * 3), language_modeling),
    "pairs.tsv": ("a\tb\nc\td\n", lambda path: list(read_pairs([path]))),
    "documents.txt": ("One. Two.\n\nThree.\n", lambda path: list(documents.read_documents(path))),
    "documents.jsonl": (JSON_LINES, lambda path: list(documents.read_documents(path))),
    "blocks.txt": ("one\n\ntwo", lambda path: list(blocks.read_documents([path], "blank_line"))),
    "sidecar.json": (
        '{"max_seq_length": 128, "do_lower_case": true, "records": 2, "special_ids": {"[CLS]": 1}}',
        lambda path: read_sidecar(path.removesuffix(".json")),
    ),
    "label_list.json": ('{"kind": "single", "labels": ["a", "b"]}', noted_labels),
}


@st.composite
def damaged(draw, content: bytes) -> bytes:
    """Content with a few faults: cut, changed, doubled or moved stretches."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.integers(0, 12)))
        stretch, inserted = (
            content[start:end],
            draw(st.binary(max_size=4) | st.sampled_from([b"\xff\xfe", b"\n", b'"'])),
        )
        middle = draw(st.sampled_from([b"", inserted, stretch * 2, stretch[::-1], inserted + stretch]))
        content = content[:start] + middle + content[end:]
        content = content[: draw(st.sampled_from([len(content), start]))]
    return content


@pytest.mark.parametrize("name", READERS)
def test_what_is_whole_is_read(tmp_path, name):
    content, read = READERS[name]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read(str(tmp_path / name))


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_what_is_damaged_is_read_or_refused(tmp_path_factory, name, data):
    content, read = READERS[name]
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(data.draw(damaged(content if isinstance(content, bytes) else content.encode()) | st.binary()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read(str(path))
        except (ValueError, OSError, KeyError) as error:
            assert str(path) in str(error) and "\n" not in str(error), repr(error)


WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters=" #\ufeff"), min_size=1, max_size=5)


TAGS_OF_WORDS = WORDS.filter(lambda tag: not any(char.isspace() for char in tag))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.tuples(WORDS, TAGS_OF_WORDS), min_size=1, max_size=4), min_size=1, max_size=4),
    st.sampled_from("\t "),
)
def test_tagged_files_are_read_as_they_were_written(tmp_path_factory, sentences, separator):
    folder = tmp_path_factory.getbasetemp()
    words = [[word.replace("-DOC", "doc") for word, _ in sentence] for sentence in sentences]
    tags = [[tag for _, tag in sentence] for sentence in sentences]
    lines = ["\n".join(f"{word}{separator}O" for word in sentence) for sentence in words]
    (folder / "in.conll").write_text("\n\n".join(lines), encoding="utf-8")
    (folder / "in.jsonl").write_text("".join(json.dumps({"words": sentence}) + "\n" for sentence in words))
    for ending in (".conll", ".jsonl"):
        out, source = folder / f"out{ending}", folder / f"in{ending}"
        write_tagged(out, source, tags)
        found = read_tagged(out)
        assert [(sentence.words, sentence.tags) for sentence in found] == list(zip(words, tags, strict=True))
        assert isinstance(found[0], TaggedSentence) and found[0].source == str(out)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.text(max_size=5), max_size=3), st.sampled_from(["single", "multi"]))
def test_labels_are_read_as_they_were_noted(tmp_path_factory, labels, kind):
    folder = tmp_path_factory.getbasetemp()
    note_labels(folder, kind, labels, max_seq_length=9)
    noted = noted_labels(folder)
    assert (noted["kind"], noted["labels"], noted["max_seq_length"]) == (kind, labels, 9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 9), st.booleans(), st.text(max_size=5))
def test_sidecars_are_read_as_they_were_written(tmp_path_factory, number, switch, text):
    path = tmp_path_factory.getbasetemp() / "noted"
    path.touch()
    sidecar = {"records": number, "do_lower_case": switch, "vocab_file": text, "special_ids": {text: number}}
    write_sidecar(path, sidecar)
    assert read_sidecar(path) == sidecar


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 8), min_size=6, max_size=6), st.integers(0, 1))
def test_records_are_read_as_they_were_written(tmp_path_factory, ids, label):
    path = tmp_path_factory.getbasetemp() / "written.tfrecord"
    example = EXAMPLE | {"input_ids": ids, "next_sentence_labels": [label]}
    path.write_bytes(frame(encode_example(example)))
    check_records(find_records(str(path)), id_limits(9, 2))
    (found,) = map(decode_example, read_records(path))
    assert found == {name: np.asarray(values).tolist() for name, values in example.items()}
