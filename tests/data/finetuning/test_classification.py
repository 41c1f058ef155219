"""Classification data: golden features of the original's tasks, the formats of GLUE, files of one's own, bad input."""

import json
import sys
import warnings

import pytest

from tf_bert.data.finetuning.classification import (
    InputExample,
    PaddingInputExample,
    convert_examples_to_features,
    convert_single_example,
    file_based_convert_examples_to_features,
)
from tf_bert.data.finetuning.glue import PROCESSORS, DataProcessor, find_processor, read_splits
from tf_bert.data.finetuning.user_files import FileFormat, UserFilesProcessor
from tf_bert.data.text.tables import Row, read_csv, read_tsv
from tf_bert.data.tfrecord.files import decode_example, read_records
from tf_bert.tokenization import FullTokenizer, save_vocab

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] north south a b c d e f g h".split()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    save_vocab(WORDS, path)
    return FullTokenizer(path)


@pytest.fixture(scope="module")
def published(golden):
    return FullTokenizer(golden / "vocab/vocab.txt", do_lower_case=True)


@pytest.fixture(scope="module")
def golden_features(golden):
    lines = (golden / "H_processors/features.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("task", ["mnli", "mrpc", "cola", "xnli"])
@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_features_are_the_originals(golden, golden_features, published, task, split):
    processor = find_processor(task)
    expected = [line for line in golden_features if (line["task"], line.get("split")) == (task, split)]
    read = getattr(processor, f"get_{split}_examples")
    if (task, split) == ("xnli", "test"):
        with pytest.raises(NotImplementedError):
            read("anywhere")
        return
    examples = read(str(golden / "H_processors" / task))
    assert len(examples) == len(expected) > 0
    for i, (example, line) in enumerate(zip(examples, expected, strict=True)):
        assert processor.get_labels() == line["label_list"]
        assert (example.guid, example.label) == (line["guid"], line["label"])
        # The original reads CRLF without the CR, and so do we.
        assert (example.text_a, example.text_b) == (line["text_a"], line["text_b"])
        feature = convert_single_example(i, example, processor.get_labels(), line["max_seq_length"], published)
        for key in ("input_ids", "input_mask", "segment_ids", "label_id", "is_real_example"):
            assert getattr(feature, key) == line[key], (example.guid, key)


def test_padding_example(golden_features, published):
    (line,) = [line for line in golden_features if line["task"] == "padding"]
    feature = convert_single_example(0, PaddingInputExample(), ["0", "1"], line["max_seq_length"], published)
    assert feature.input_ids == line["input_ids"] and feature.label_id == line["label_id"]
    assert feature.input_mask == line["input_mask"] and feature.segment_ids == line["segment_ids"]
    assert feature.is_real_example is False and not line["is_real_example"]


def test_truncation_and_the_empty_second_text(tokenizer):
    def tokens(text_a, text_b=None, length=8):
        feature = convert_single_example(0, InputExample(None, text_a, text_b, "x"), ["x"], length, tokenizer)
        assert len(feature.input_ids) == length == len(feature.input_mask) == len(feature.segment_ids)
        kept = tokenizer.convert_ids_to_tokens(feature.input_ids[: sum(feature.input_mask)])
        return " ".join(kept), feature.segment_ids

    assert tokens("a b c d e f g h")[0] == "[CLS] a b c d e f [SEP]"
    assert tokens("a b c d", "e f g h") == ("[CLS] a b c [SEP] e f [SEP]", [0] * 5 + [1] * 3)  # ties: the second
    assert tokens("a b c d e f", "g")[0] == "[CLS] a b c d [SEP] g [SEP]"
    for nothing in ("", " ", "\u200b"):
        assert tokens("a b c d e f g", nothing) == ("[CLS] a b c d e f [SEP]", [0] * 8)
    with pytest.raises(ValueError, match="max_seq_length is 4"):
        tokens("a", length=4)


def test_records_hold_what_the_original_writes(tokenizer, tmp_path):
    examples = [InputExample("train-0", "a b", "c", "yes"), PaddingInputExample()]
    path = tmp_path / "train.tf_record"
    features = file_based_convert_examples_to_features(examples, ["no", "yes"], 8, tokenizer, path)
    first, second = map(decode_example, read_records(path))
    assert first == {
        "input_ids": [2, 7, 8, 3, 9, 3, 0, 0],
        "input_mask": [1, 1, 1, 1, 1, 1, 0, 0],
        "segment_ids": [0, 0, 0, 0, 1, 1, 0, 0],
        "label_ids": [1],
        "is_real_example": [1],
    }
    assert second["is_real_example"] == [0] and second["input_mask"] == [0] * 8
    assert features[0].input_ids == first["input_ids"]


# What GLUE's files look like: header, one row for training, the header and one row of the test file, and what is read.
GLUE = {
    "sst-2": ("sentence\tlabel", "a b\t1", "index\tsentence", "0\tc d", ("a b", None, "1"), ("c d", None)),
    "sts-b": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
        "0\tg\tf\ty\t1\tx\tx\ta\tb\t4.2",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2",
        "0\tg\tf\ty\t1\tx\tx\tc\td",
        ("a", "b", "4.2"),
        ("c", "d"),
    ),
    "qqp": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "0\t1\t2\ta\tb\t0",
        "id\tquestion1\tquestion2",
        "0\tc\td",
        ("a", "b", "0"),
        ("c", "d"),
    ),
    "qnli": (
        "index\tquestion\tsentence\tlabel",
        "0\ta\tb\tnot_entailment",
        "index\tquestion\tsentence",
        "0\tc\td",
        ("a", "b", "not_entailment"),
        ("c", "d"),
    ),
    "rte": (
        "index\tsentence1\tsentence2\tlabel",
        "0\ta\tb\tentailment",
        "index\tsentence1\tsentence2",
        "0\tc\td",
        ("a", "b", "entailment"),
        ("c", "d"),
    ),
    "wnli": (
        "index\tsentence1\tsentence2\tlabel",
        "0\ta\tb\t1",
        "index\tsentence1\tsentence2",
        "0\tc\td",
        ("a", "b", "1"),
        ("c", "d"),
    ),
}


@pytest.mark.parametrize("task", GLUE)
def test_glue_files(task, tmp_path, tokenizer):
    header, row, test_header, test_row, expected, expected_test = GLUE[task]
    (tmp_path / "train.tsv").write_text(f"{header}\n{row}\n")
    (tmp_path / "dev.tsv").write_text(f"{header}\n{row}\n{row}\n")
    (tmp_path / "test.tsv").write_text(f"{test_header}\n{test_row}\n")
    processor = find_processor(task)
    (example,) = processor.get_train_examples(str(tmp_path))
    assert (example.text_a, example.text_b, example.label) == expected
    assert len(processor.get_dev_examples(str(tmp_path))) == 2
    (example,) = processor.get_test_examples(str(tmp_path))
    assert (example.text_a, example.text_b) == expected_test
    (feature,) = convert_examples_to_features([example], processor.get_labels(), 8, tokenizer, processor.kind)
    assert feature.label_id == 0  # the stand-in is the first label


def test_names_of_tasks():
    assert type(find_processor("CoLA")) is PROCESSORS["cola"]
    assert type(find_processor("sts_b")) is type(find_processor("STSB"))
    with pytest.raises(ValueError, match="'mnil' is not known.*mnli.*csv and jsonl"):
        find_processor("mnil")


def test_a_processor_by_import_path(tmp_path, monkeypatch):
    (tmp_path / "weather_task.py").write_text(
        "from tf_bert.data.finetuning.glue import DataProcessor\n"
        "class Weather(DataProcessor):\n"
        "    def get_labels(self):\n"
        "        return ['fair', 'foul']\n"
        "    def get_dev_examples(self, data_dir):\n"
        "        return [row[2] for row in self._read_tsv(data_dir)]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    processor = find_processor("weather_task:Weather")
    assert isinstance(processor, DataProcessor) and processor.get_labels() == ["fair", "foul"]
    (tmp_path / "dev.tsv").write_text("a\tb\tc\n\na\tb\n")
    with pytest.warns(UserWarning, match="blank"), pytest.raises(ValueError, match="line 3: found 2 .* at least 3"):
        processor.get_dev_examples(tmp_path / "dev.tsv")
    with pytest.raises(NotImplementedError, match="Weather has no examples to predict"):
        processor.get_test_examples("")
    with pytest.raises(ValueError, match="weather_task:Wether: the module has no DataProcessor"):
        find_processor("weather_task:Wether")
    with pytest.raises(ValueError, match="PYTHONPATH"):
        find_processor("no_such_module:Weather")
    del sys.modules["weather_task"]
    (tmp_path / "broken_task.py").write_text("class Broken(:\n")
    with pytest.raises(
        ValueError, match="broken_task:Broken: importing broken_task fails: SyntaxError: invalid syntax"
    ):
        find_processor("broken_task:Broken")


def test_byte_order_mark_quotes_blank_rows_and_long_fields(tmp_path):
    path = tmp_path / "dev.tsv"
    long = "x" * 200_000
    path.write_bytes(f'\ufeffNorth\t"open\r\n\r\n  \nb\t"c" d\n\nlong\t{long}'.encode())
    with pytest.warns(UserWarning, match=rf"{path}: skipped 3 blank lines \(2, 3, 5\)"):
        rows = read_tsv(path)
    assert rows == [["North", '"open'], ["b", '"c" d'], ["long", long]]
    assert [row.where for row in rows] == [f"{path}: line {number}" for number in (1, 4, 6)]


def test_too_few_columns_name_file_line_and_columns(tmp_path):
    (tmp_path / "dev.tsv").write_text("Quality\tid\tid\ta\tb\n1\t1\t2\ta\tb\n0\tonly two\n1\t1\t2\tc\td\n")
    with pytest.raises(ValueError, match=r"dev.tsv: line 3: found 2 columns, expected at least 4"):
        find_processor("mrpc").get_dev_examples(str(tmp_path))
    with pytest.warns(UserWarning, match=r"dev.tsv: skipped 1 rows with too few columns \(3\)"):
        kept = find_processor("mrpc", skip_bad_rows=True).get_dev_examples(str(tmp_path))
    assert [example.text_a for example in kept] == ["a", "c"]
    assert Row(["a"], "x")[-1] == "a"
    with pytest.raises(IndexError):  # processors written for the original may catch this
        Row(["a"], "x")[1]
    with pytest.raises(FileNotFoundError, match="train.tsv"):
        find_processor("mrpc").get_train_examples(str(tmp_path))


def test_an_unknown_label_names_itself_the_line_and_those_that_are_known(tmp_path, tokenizer):
    (tmp_path / "train.csv").write_text("text,label\na,north\nb,east\n")
    (tmp_path / "test.csv").write_text("text\na\nb\n")
    processor = UserFilesProcessor(FileFormat(labels=("north", "south")))
    with pytest.raises(ValueError, match=r"train.csv: line 3: the label 'east' is not known; .* north, south"):
        convert_examples_to_features(processor.get_train_examples(str(tmp_path)), processor.get_labels(), 8, tokenizer)
    features = convert_examples_to_features(
        processor.get_test_examples(str(tmp_path)), processor.get_labels(), 8, tokenizer
    )
    assert [feature.label_id for feature in features] == [0, 0]
    with pytest.raises(ValueError, match="example 7 .* 'east' is not known"):
        convert_single_example(7, InputExample("dev-7", "a", None, "east"), ["north"], 8, tokenizer)


def test_csv_of_ones_own(tmp_path, tokenizer):
    (tmp_path / "train.csv").write_text(
        '\ufeffid,premise,hypothesis,verdict\n1,"a, b\nc","say ""d""",yes\n\n2,e,f,no\n', encoding="utf-8"
    )
    processor = UserFilesProcessor(FileFormat(text="premise", text_pair="hypothesis", label="verdict"))
    with pytest.warns(UserWarning, match=r"skipped 1 blank lines \(4\)"):
        examples = processor.get_train_examples(str(tmp_path))
    assert [(e.text_a, e.text_b, e.label) for e in examples] == [("a, b\nc", 'say "d"', "yes"), ("e", "f", "no")]
    assert examples[1].source.endswith("line 5")
    assert processor.get_labels() == ["no", "yes"]
    with pytest.raises(FileNotFoundError, match=r"dev.csv or .*dev.tsv; --dev_file"):
        processor.get_dev_examples(str(tmp_path))


def test_columns_by_number_without_a_header(tmp_path):
    (tmp_path / "reviews.txt").write_text('pos\ta "quoted" b\nneg\tc\n')
    format = FileFormat(text="2", label="1", header=False, delimiter="\t", files={"train": f"{tmp_path}/reviews.txt"})
    examples = UserFilesProcessor(format).get_train_examples(None)
    assert [(e.text_a, e.label) for e in examples] == [('a "quoted" b', "pos"), ("c", "neg")]


def test_several_labels_and_numbers(tmp_path, tokenizer):
    (tmp_path / "train.jsonl").write_text(
        '{"text": "a", "label": ["x", "z"]}\n{"text": "b", "label": []}\n{"text": "c", "label": "y"}\n'
    )
    processor = UserFilesProcessor(FileFormat("jsonl", kind="multi"))
    examples = processor.get_train_examples(str(tmp_path))
    assert processor.get_labels() == ["x", "y", "z"]
    features = convert_examples_to_features(examples, processor.get_labels(), 8, tokenizer, "multi")
    assert [feature.label_id for feature in features] == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]

    (tmp_path / "dev.jsonl").write_text('{"text": "a", "label": 2.5}\n{"text": "b", "label": "3"}\n')
    processor = UserFilesProcessor(FileFormat("jsonl", kind="regression"))
    examples = processor.get_dev_examples(str(tmp_path))
    features = convert_examples_to_features(examples, processor.get_labels(), 8, tokenizer, "regression")
    assert [feature.label_id for feature in features] == [2.5, 3.0]
    with pytest.raises(ValueError, match="'high' is not a number"):
        convert_single_example(0, InputExample("x", "a", label="high"), [], 8, tokenizer, "regression")


@pytest.mark.parametrize(
    "name, text, said",
    [
        ("train.csv", "text,label\na\n", "line 2: found 1 columns, expected 2"),
        ("train.csv", "text,mark\na,b\n", "line 2: found the columns text, mark, expected one that is named 'label'"),
        ("train.csv", 'text,label\n"a,b\nc,d\n', "line 2: the row that begins here is not well-formed"),
        ("train.csv", 'text,label\nc,d\n"a" b,x\n', "line 3: the row that begins here is not well-formed"),
        ("train.csv", "text,label\na,\n", "line 2: the label is empty"),
        ("train.csv", "text,label\n", "train.csv has no rows"),
        (
            "train.jsonl",
            '{"text": "a", "label": 1}\n{"text": 1, "label": 1}\n',
            "line 2: text is a number, expected a text",
        ),
        ("train.jsonl", '{"text": "a", "label": 1}\n[1]\n', "line 2: found a list, expected a JSON object"),
        ("train.jsonl", '{"text"\n', "line 1: not JSON"),
        ("train.csv", "text,label,text\na,b,c\n", "line 2: several columns have the name 'text'"),
        ("train.jsonl", '{"text": "a", "label": null}', "line 1: the label is null, expected a text or a number"),
        ("train.jsonl", '{"text": "a", "label": ["b"]}', "line 1: the label is a list, expected a text or a number"),
        ("train.jsonl", '{"text": null, "label": "b"}', "line 1: text is null, expected a text"),
        ("train.jsonl", '{"text": "a", "text": "b", "label": "c"}', "line 1: an object has the name 'text' twice"),
        (
            "train.jsonl",
            '{"text": "a", "label": "b\\ud83d"}',
            r"line 1: the label 'b.ud83d' holds half of a character",
        ),
        ("train.jsonl", "[" * 200_000, "line 1: lists or objects are nested too deeply"),
    ],
)
def test_bad_files_of_ones_own(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=said):
        UserFilesProcessor(FileFormat(name.rpartition(".")[2])).get_train_examples(str(tmp_path))


def warned(format: FileFormat, tmp_path, name: str, text: str) -> list[str]:
    """The warnings of reading a training file."""
    (tmp_path / name).write_text(text)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        UserFilesProcessor(format).get_train_examples(str(tmp_path))
    return [str(warning.message).removeprefix(f"{tmp_path}/") for warning in caught]


@pytest.mark.parametrize(
    "labels, said",
    [
        (["1", "0", "1.0", "0"], ["'1' (1 rows) and '1.0' (1 rows) are equal as numbers"]),
        (["01", "2", "1e0"], ["'01' (1 rows) and '1e0' (1 rows) are equal as numbers"]),
        (["yes", "no", "Yes", "YES"], ["'YES' (1 rows) and 'Yes' (1 rows) and 'yes' (1 rows) are equal but for case"]),
        (["a b", "a\u00a0b", "c"], ["'a b' (1 rows) and 'a\\xa0b' (1 rows) are equal but for case or blanks"]),
        (["a", "a\u200b", "c"], ["'a' (1 rows) and 'a\\u200b' (1 rows) are equal but for case or blanks"]),
        (["good"] * 3, ["all 3 rows have the label 'good': there is nothing to tell apart"]),
        ([f"text {i}" for i in range(12)], ["12 different labels in 12 rows, such as 'text 0': is this the column"]),
        ([" 1", "0", "1"], []),  # blanks around a label are no part of it
        (["nan", "inf", "1"], []),
        ([str(i // 2) for i in range(40)], []),
    ],
)
def test_labels_that_are_probably_not_what_was_meant(tmp_path, labels, said):
    rows = "".join(f"a,{label}\n" for label in labels)
    found = warned(FileFormat(), tmp_path, "train.csv", f"text,label\n{rows}")
    assert len(found) == len(said) and all(map(str.__contains__, found, said)), found
    assert all(message.startswith("train.csv: ") for message in found)


def test_labels_of_other_kinds(tmp_path):
    several = FileFormat(kind="multi")
    assert warned(several, tmp_path, "train.csv", "text,label\na,x\nb,\n") == []  # one label, not in all rows
    (one,) = warned(several, tmp_path, "train.csv", "text,label\na,x;x\nb,x\n")
    assert "all 2 rows have the label 'x'" in one
    (one,) = warned(several, tmp_path, "train.csv", "text,label\na,x;1\nb,1.0\n")
    assert "equal as numbers" in one
    with pytest.raises(ValueError, match="train.csv: no row has a label in the column 'label'"):
        warned(several, tmp_path, "train.csv", "text,label\na,\nb,;\n")
    with pytest.raises(ValueError, match="line 1: the label is an object, expected a text or a number, or a list of"):
        warned(FileFormat("jsonl", kind="multi"), tmp_path, "train.jsonl", '{"text": "a", "label": [{}]}')
    (one,) = warned(FileFormat(kind="regression"), tmp_path, "train.csv", "text,label\na,2\nb,2.0\n")
    assert "all 2 rows have the number 2.0" in one
    (one,) = warned(FileFormat(labels=("x", "y", "z")), tmp_path, "train.csv", "text,label\na,x\nb,y\n")
    assert "1 of the 3 labels never occur: 'z'" in one


@pytest.mark.parametrize("label", ["nan", "inf", "1e999", "", "high", "true", "1" + "0" * 400, "null", "[1]"])
def test_numbers_that_are_none(tmp_path, label):
    (tmp_path / "train.csv").write_text(f"text,label\na,1\nb,{label}\n")
    with pytest.raises(ValueError, match="train.csv: line 3: the label .* is not a number"):
        UserFilesProcessor(FileFormat(kind="regression")).get_train_examples(str(tmp_path))
    if label in ("", "high", "inf", "nan"):
        return
    (tmp_path / "train.jsonl").write_text(f'{{"text": "a", "label": {label}}}')
    with pytest.raises(ValueError, match="train.jsonl: line 1: the label .* is not a number"):
        UserFilesProcessor(FileFormat("jsonl", kind="regression")).get_train_examples(str(tmp_path))


def test_rows_without_text_are_counted(tmp_path):
    (one,) = warned(FileFormat(), tmp_path, "train.csv", "text,label\na,x\n ,y\n,y\n")
    assert one == "train.csv: 2 rows have no text in the column 'text' (line 3, line 4)"


def test_columns_that_are_too_many_without_a_header(tmp_path):
    (tmp_path / "train.csv").write_text("good,a b\nbad,Well, no\n")
    with pytest.raises(ValueError, match=r"train.csv: line 2: found 3 columns, expected 2 \(1, 2\), separated by ','"):
        UserFilesProcessor(FileFormat(text="2", label="1", header=False)).get_train_examples(str(tmp_path))


@pytest.mark.parametrize("options", [{"delimiter": ""}, {"delimiter": "ab"}, {"delimiter": '"'}, {"delimiter": "\n"}])
def test_what_cannot_stand_between_columns(options):
    with pytest.raises(ValueError, match="expected one character between columns"):
        FileFormat(**options)


def test_labels_that_are_named_badly():
    with pytest.raises(ValueError, match="name 'a' twice"):
        FileFormat(labels=("a", "b", "a"))
    with pytest.raises(ValueError, match="label 2 of a, , b is empty"):
        FileFormat(labels=("a", "", "b"))
    with pytest.raises(ValueError, match="label_separator is empty"):
        FileFormat(label_separator="")


def test_odd_rows_of_published_files(tmp_path):
    row = "{0}\t1\t2\ta\tb"
    (tmp_path / "train.tsv").write_text("\n".join(map(row.format, "111")) + "\tc\n")
    with pytest.warns(UserWarning) as caught:
        assert len(find_processor("mrpc").get_train_examples(str(tmp_path))) == 2
    messages = [str(warning.message) for warning in caught]
    assert "train.tsv: line 1: taken for the names of the columns, but it holds '1'" in messages[0]
    assert messages[1].endswith("train.tsv: 1 rows have more columns than the 5 of the first (line 3)")
    assert "all 2 rows have the label '1': there is nothing to tell apart" in messages[2]


def test_a_quoted_field_may_be_long(tmp_path):
    (tmp_path / "a.csv").write_text(f'"{"y" * 140_000}",1\n')
    assert len(read_csv(tmp_path / "a.csv")[0][0]) == 140_000


def test_a_share_of_the_training_file_is_held_out(tmp_path):
    lines = "".join(f"text {number},{number % 2}\n" for number in range(20))
    (tmp_path / "train.csv").write_text("text,label\n" + lines)
    processor = UserFilesProcessor(FileFormat())
    wanted = {"train": True, "dev": True, "test": False}
    train, dev, test = read_splits(processor, str(tmp_path), wanted, 0.1, seed=7)
    assert test is None and len(dev) == 2 and len(train) == 18
    assert {example.text_a for example in [*train, *dev]} == {f"text {number}" for number in range(20)}
    _, again, _ = read_splits(processor, str(tmp_path), wanted | {"train": False}, 0.1, seed=7)
    assert [example.text_a for example in again] == [example.text_a for example in dev]
    with pytest.raises(ValueError, match="dev_share 0.01 of 20 examples is 0"):
        read_splits(processor, str(tmp_path), wanted, 0.01)
    with pytest.raises(FileNotFoundError, match="--dev_file names another one, --dev_share=0.1 holds a tenth"):
        read_splits(processor, str(tmp_path), wanted)
