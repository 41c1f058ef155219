"""Tagged words: files in and out, windows, first pieces, figures, and run_ner from files to files."""

import gzip
import json
import sys

import numpy as np
import pytest

from tf_bert import BertConfig, FullTokenizer
from tf_bert.commands import run_ner
from tf_bert.data.finetuning import tagging
from tf_bert.data.finetuning.batches import shuffled_batches
from tf_bert.data.finetuning.tagging import (
    TagColumns,
    TaggedSentence,
    convert_sentences_to_features,
    read_tagged,
    write_tagged,
)
from tf_bert.data.finetuning.tagging_scores import tagging_figures
from tf_bert.models import bert_tasks
from tf_bert.tokenization import save_vocab
from tf_bert.trainer.prediction import predict_tags, stack

NAMES, TOWNS, OTHERS = ["ada", "ben", "carl"], ["rome", "oslo", "bern"], ["sings", "in", "the", "and", "sun", "."]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *NAMES, *TOWNS, *OTHERS, "new", "a", "##a", "old"]
LABELS = ["O", "B-per", "B-town", "I-town"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    save_vocab(WORDS, path)
    return FullTokenizer(path)


CONLL = "\ufeffAda\tB-per\r\nsings\tO\n\n-DOCSTART- -X- O\n\n\u200b\tO\na b\tO\n \n\nRome\tB-town\n"


def test_columns_in_and_out(tmp_path):
    path = tmp_path / "a.conll"
    path.write_bytes(CONLL.encode())
    sentences = read_tagged(path)
    assert [s.words for s in sentences] == [["Ada", "sings"], ["\u200b", "a b"], ["Rome"]]
    assert [s.tags for s in sentences] == [["B-per", "O"], ["O", "O"], ["B-town"]]
    assert sentences[1].where(1) == f"{path}: line 7"
    write_tagged(tmp_path / "b.conll", path, [["X", "Y"], ["Z", "U"], ["V"]])
    expected = "Ada\tX\nsings\tY\n\n-DOCSTART- -X- O\n\n\u200b\tZ\na b\tU\n \n\nRome\tV\n"
    assert (tmp_path / "b.conll").read_text() == expected
    write_tagged(tmp_path / "c.conll", path, [s.tags for s in sentences])
    assert (tmp_path / "c.conll").read_bytes() == path.read_bytes().replace(b"\r", b"").removeprefix(b"\xef\xbb\xbf")


def test_columns_in_other_places(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("1  Ada  NNP B-per _\n2 sings VBZ  O _\n")
    columns = TagColumns(2, -2)
    assert read_tagged(path, columns)[0] == TaggedSentence(["Ada", "sings"], ["B-per", "O"], str(path), 1, True)
    write_tagged(tmp_path / "b.txt", path, [["X", "Y"]], columns)
    assert (tmp_path / "b.txt").read_text() == "1  Ada  NNP X _\n2 sings VBZ  Y _\n"
    path.write_text("Ada\n\u00a0\nsings\n\nRome\n")  # words alone; a no-break space is one
    assert [s.words for s in read_tagged(path, tags=False)] == [["Ada", "\u00a0", "sings"], ["Rome"]]
    write_tagged(tmp_path / "b.txt", path, [["X", "Y", "Z"], ["U"]])
    assert (tmp_path / "b.txt").read_text() == "Ada\tX\n\u00a0\tY\nsings\tZ\n\nRome\tU\n"
    path.write_text("Ada NNP\n")
    write_tagged(tmp_path / "b.txt", path, [["X"]], TagColumns(1, 3))
    assert (tmp_path / "b.txt").read_text() == "Ada NNP X\n"


COMMENTED = """# id 0001\tdomain=train
# text = Ada sings
Ada _ _ B-per
sings _ _ O
# _ _ O

# id 0002\tdomain=train
#tag _ _ B-per
"""


def test_comments_are_skipped_and_copied(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text(COMMENTED)
    sentences = read_tagged(path)
    assert [s.words for s in sentences] == [["Ada", "sings", "#"], ["#tag"]]
    assert [s.tags for s in sentences] == [["B-per", "O", "O"], ["B-per"]]
    assert sentences[0].where(0) == f"{path}: line 3"
    write_tagged(tmp_path / "b.conll", path, [["X", "Y", "Z"], ["U"]])
    expected = COMMENTED.replace("B-per", "X", 1).replace("_ O", "_ Y", 1).replace("_ O", "_ Z").replace("B-per", "U")
    assert (tmp_path / "b.conll").read_text() == expected
    path.write_text("# a comment of five words\n# here\nAda\tO\n\n# \tO\n")  # the last is a word: it has its columns
    assert [s.words for s in read_tagged(path)] == [["Ada"], ["# "]]


@pytest.mark.parametrize(
    "text, said",
    [
        ("a O\nb c O\n", "line 2: found 3 columns, expected 2 as in line 1"),
        ("a\tO\n\nb O\n", "line 3: found 1 column, expected 2 as in line 1, separated by a tab$"),
        ("# x y\na O\nb\n", "line 3: found 1 column, expected 2 as in line 2"),
        ("a O\n# x y\nb O\n", "line 2: found 3 columns, expected 2 as in line 1"),  # inside a sentence: no comment
    ],
)
def test_lines_of_unequal_columns(tmp_path, text, said):
    path = tmp_path / "a.conll"
    path.write_text(text)
    for read in (read_tagged, lambda path: write_tagged(tmp_path / "b.conll", path, [["X"] * 9] * 9)):
        with pytest.raises(ValueError, match=f"^{path}: {said}"):
            read(path)
    assert not (tmp_path / "b.conll").exists()


def test_compressed_files_are_what_their_names_say(tmp_path):
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write('{"words": ["Ada"], "tags": ["O"]}\n')
    assert read_tagged(tmp_path / "a.jsonl.gz")[0].words == ["Ada"]


def test_half_of_an_emoji_is_written_again(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"words": ["\\ud83d", "é"], "tags": ["O", "O"]}\n')
    assert read_tagged(path)[0].words == ["\ud83d", "é"]
    write_tagged(tmp_path / "b.jsonl", path, [["X", "Y"]])
    assert json.loads((tmp_path / "b.jsonl").read_text()) == {"words": ["\ud83d", "é"], "tags": ["X", "Y"]}


def test_json_lines_in_and_out(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 7, "words": ["Ad\u00e4"], "tags": ["B-per"]}\n\n{"words": [], "tags": []}\n')
    with pytest.warns(UserWarning, match="skipped 1 blank lines"):
        assert [(s.words, s.tags) for s in read_tagged(path)] == [(["Adä"], ["B-per"]), ([], [])]
    with pytest.warns(UserWarning):
        write_tagged(tmp_path / "b.jsonl", path, [["O"], []])
    lines = [json.loads(line) for line in (tmp_path / "b.jsonl").open()]
    assert lines == [{"id": 7, "words": ["Adä"], "tags": ["O"]}, {"words": [], "tags": []}]


@pytest.mark.parametrize(
    "name, text, said",
    [
        ("a.conll", "Ada\tO\nsings\n", "a.conll: line 2: found 1 column, expected 2 as in line 1, separated by a tab"),
        ("a.conll", '"\tO\n"Ada\n', "a.conll: line 2: found 1 column"),  # quotes are words like others
        ("a.conll", "Ada\t\n", "a.conll: line 1: found 2 columns, expected a word and its tag"),
        ("a.conll", "\n \n", "has no sentences"),
        ("a.jsonl", '{"words": ["a"], "tags": []}', "line 1: found 1 words and 0 tags, expected a tag for each"),
        ("a.jsonl", '{"words": "a", "tags": []}', 'line 1: words: found "a", expected a list of texts'),
        ("a.jsonl", '{"words": ["a"]}', "line 1: tags: found nothing, expected a list"),
        ("a.jsonl", '{"words": ["a"], "tags": [3]}', r"line 1: tags: found \[3\], expected a list of texts"),
        ("a.jsonl", "[1]", "line 1: found a list, expected a JSON object"),
        ("a.jsonl", '{"words": ["a"], "tags": ["\\ud83d"]}', r"line 1: the tag '.ud83d' holds half of a character"),
    ],
)
def test_bad_files(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=said):
        read_tagged(tmp_path / name)


def test_first_pieces_have_the_labels(tokenizer):
    assert tagging.IGNORED_LABEL == bert_tasks.IGNORED_LABEL
    sentence = TaggedSentence(["Aa", "\u200b", "sings"], ["B-per", "O", "B-town"])
    with pytest.warns(UserWarning, match=r"1 words have no pieces \('\\u200b'\): \[UNK\] stands for each"):
        (window,) = convert_sentences_to_features([sentence], LABELS, 8, tokenizer)
    tokens = tokenizer.convert_ids_to_tokens(window.input_ids)
    assert tokens == ["[CLS]", "a", "##a", "[UNK]", "sings", "[SEP]", "[PAD]", "[PAD]"]
    assert window.label_ids == [-100, 1, -100, 0, 2, -100, -100, -100]
    assert window.places == [(1, 0), (3, 1), (4, 2)]
    unknown = TaggedSentence(["ada"], ["B-ship"], "dev.conll", 7, True)
    with pytest.raises(ValueError, match="dev.conll: line 7: the tag 'B-ship' is not known; known tags: O, B-per"):
        convert_sentences_to_features([unknown], LABELS, 8, tokenizer)


@pytest.mark.parametrize("stride", [None, 1, 2, 6, 50])
def test_every_word_has_its_tag_once_in_a_window(tokenizer, stride):
    rng = np.random.default_rng(0)
    sentences = [TaggedSentence(["ada"] * 10), TaggedSentence(["a" * 12]), TaggedSentence([])]
    sentences += [TaggedSentence(list(rng.choice(["ada", "aaaa", "sun"], size))) for size in rng.integers(1, 40, 10)]
    windows = convert_sentences_to_features(sentences, LABELS, 8, tokenizer, stride)
    seen = {(window.sentence, word) for window in windows for _, word in window.places}
    assert seen == {(s, w) for s, sentence in enumerate(sentences) for w in range(len(sentence.words))}
    assert len(seen) == sum(len(window.places) for window in windows)
    for window in windows:
        assert len(window.input_ids) == 8 and window.input_ids[0] == 2
        assert [i for i, label in enumerate(window.label_ids) if label != -100] == [i for i, _ in window.places]
        for position, word in window.places:
            first = tokenizer.tokenize(sentences[window.sentence].words[word])[0]
            assert window.input_ids[position] == tokenizer.vocab[first]


def test_labels_that_are_as_many_as_the_pieces_are_cut_only_where_they_are_per_piece():
    mask = np.tile([1, 1, 0], (4, 1)).astype(np.int32)
    columns = {"input_ids": mask, "input_mask": mask, "label_ids": mask}
    assert next(shuffled_batches(columns, 4).as_numpy_iterator())["label_ids"].shape == (4, 3)
    cut = next(shuffled_batches(columns, 4, per_piece=["label_ids"]).as_numpy_iterator())
    assert cut["label_ids"].shape == cut["input_ids"].shape == (4, 2)


def test_figures():
    pytest.importorskip("seqeval")
    assert tagging_figures([["O", "O"]], [["O", "O"]]) == {"accuracy": 1.0, "precision": 0.0, "recall": 0.0, "f1": 0.0}
    missed = tagging_figures([["O", "B-PER"]], [["O", "O"]])
    assert missed["recall"] == missed["PER_recall"] == 0.0 and missed["PER_support"] == 1
    gold = [["B-a", "I-a", "O", "B-b", "B-a"], ["B-b", "O"]]
    found = [["B-a", "I-a", "O", "B-a", "O"], ["B-b", "B-b"]]
    figures = tagging_figures(gold, found)  # of 4 entities 2 are found, of 4 found 2 are right
    assert figures["precision"] == 2 / 4 and figures["recall"] == 2 / 4 and figures["accuracy"] == 4 / 7
    assert figures["a_precision"] == 1 / 2 and figures["a_recall"] == 1 / 2 and figures["b_f1"] == 1 / 2
    whole = [["B-a", "L-a", "U-b"]]
    assert tagging_figures(whole, [["B-a", "E-a", "S-b"]])["f1"] == 1.0  # BILOU and IOBES say the same
    assert tagging_figures(whole, [["B-a", "I-a", "O"]])["b_recall"] == 0.0
    with pytest.warns(UserWarning, match="accuracy only, without the F1 of entities: found the tags 'NN', 'VB'; exp"):
        assert tagging_figures([["NN", "VB"]], [["NN", "NN"]]) == {"accuracy": 0.5}


ENTITIES = [["B-a", "I-a", "I-a", "O"], ["B-b", "O", "B-a", "I-a"]]


@pytest.mark.parametrize(
    "first, second",
    [
        (["B-a", "M-a", "E-a", "O"], ["S-b", "O", "B-a", "E-a"]),  # BMES, IOBES
        (["B-a", "I-a", "L-a", "O"], ["U-b", "O", "B-a", "L-a"]),  # BILOU
        (["B-a", "M-a", "E-a", "O"], ["W-b", "O", "B-a", "E-a"]),  # BMEWO
        (["I-a", "I-a", "I-a", "O"], ["I-b", "O", "I-a", "I-a"]),  # IO
    ],
)
def test_every_scheme_gives_the_same_figures(first, second):
    pytest.importorskip("seqeval")
    expected = tagging_figures(ENTITIES, [ENTITIES[0], ["O"] * 4])
    assert tagging_figures([first, second], [first, ["O"] * 4]) == expected
    assert expected["f1"] == 0.5 and expected["a_support"] == 2


def test_letters_alone_are_one_type_without_a_name():
    pytest.importorskip("seqeval")
    gold = [["B", "I", "O", "B"]]
    assert tagging_figures(gold, [["B", "I", "O", "O"]]) == {
        "accuracy": 0.75,
        "precision": 1.0,
        "recall": 0.5,
        "f1": pytest.approx(2 / 3),
    }
    assert tagging_figures([["B", "M", "E", "S"]], [["B", "M", "E", "B"]])["f1"] == 1.0  # words of Chinese


@pytest.mark.parametrize("odd", ["0", "o", "B_a", "a", "b-a", "B"])
def test_one_odd_tag_leaves_the_others_their_score(odd):
    pytest.importorskip("seqeval")
    with pytest.warns(UserWarning, match=f"1 tags, of 1 words, are not those of entities and count as O: '{odd}'"):
        figures = tagging_figures([["B-a", "I-a", "O", odd]], [["B-a", "I-a", "O", "B-a"]])
    assert figures["recall"] == 1.0 and figures["precision"] == 0.5 and figures["accuracy"] == 0.75
    if odd != "B":
        with pytest.warns(UserWarning, match="count as O"):
            assert tagging_figures([["B", odd]], [["B", "O"]])["f1"] == 1.0


def test_tags_that_are_probably_not_what_was_meant(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("Ada B-per\nsings O\nBen b-per\n")
    with pytest.warns(UserWarning, match=rf"{path}: the tags 'B-per' \(1 words\) and 'b-per' .* equal but for case"):
        tagging.labels_of(read_tagged(path))
    path.write_text("Ada O\nsings O\n")
    with pytest.warns(UserWarning, match="all 2 words have the tag 'O': there is nothing to tell apart"):
        tagging.labels_of(read_tagged(path))


def test_the_loss_is_the_mean_over_words_whatever_the_windows(tokenizer):
    config = BertConfig(len(WORDS), 8, 1, 2, 16, max_position_embeddings=12, type_vocab_size=2, initializer_range=0.5)
    model = bert_tasks.BertTokenClassifier(config, num_labels=4)
    sentences = [
        TaggedSentence(["ada", "aa", "rome"], ["B-per", "O", "B-town"]),
        TaggedSentence(["sun"] * 20, ["O"] * 20),
    ]
    features = convert_sentences_to_features(sentences, LABELS, 8, tokenizer)
    labels, loss = predict_tags(model, features, [3, 20], 2)
    columns = stack(features, ("input_ids", "input_mask", "segment_ids", "label_ids"))
    model.compile("sgd")
    assert loss == pytest.approx(model.evaluate(columns, verbose=0, return_dict=True)["loss"], rel=1e-5)
    logits = np.array(model({name: columns[name] for name in ("input_ids", "input_mask")})["logits"])
    expected = [[logits[i, position].argmax() for position, _ in f.places] for i, f in enumerate(features)]
    assert [len(found) for found in labels] == [3, 20]
    assert np.concatenate(labels).tolist() == sum(expected, [])  # words come in the order of the windows


def sentence(rng):
    words, tags = [], []
    for _ in range(rng.integers(1, 9)):
        kind = rng.integers(3)
        if kind == 0:
            words, tags = [*words, str(rng.choice(NAMES))], [*tags, "B-per"]
        elif kind == 1:
            words, tags = [*words, "new", str(rng.choice(TOWNS))], [*tags, "B-town", "I-town"]
        else:
            words, tags = [*words, str(rng.choice(OTHERS))], [*tags, "O"]
    return words, tags


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """A folder with a small model's files and sentences whose tags can be learned."""
    folder = tmp_path_factory.mktemp("task")
    save_vocab(WORDS, folder / "vocab.txt")
    config = BertConfig(len(WORDS), 16, 1, 2, 32, max_position_embeddings=12, type_vocab_size=2)
    (folder / "bert_config.json").write_text(config.to_json_string())
    rng = np.random.default_rng(0)
    sentences = [sentence(rng) for _ in range(80)]
    for name, part in (("train", sentences[:60]), ("dev", sentences[60:]), ("test", sentences[60:])):
        lines = ["".join(f"{w} {t}\n" for w, t in zip(*s, strict=True)) for s in part]
        (folder / f"{name}.conll").write_text("\n".join(lines))
    rows = [json.dumps({"words": words, "n": i}) for i, (words, _) in enumerate(sentences[60:])]
    (folder / "words.jsonl").write_text("\n".join(rows))
    return folder


def flags(task, output_dir, *more):
    sizes = ["--max_seq_length=8", "--train_batch_size=8", "--learning_rate=5e-3", "--num_train_epochs=5"]
    files = [f"--vocab_file={task}/vocab.txt", f"--bert_config_file={task}/bert_config.json"]
    return [f"--data_dir={task}", f"--output_dir={output_dir}", *sizes, *files, *more]


@pytest.fixture(scope="module")
def trained(task, tmp_path_factory):
    pytest.importorskip("seqeval")
    folder = tmp_path_factory.mktemp("trained")
    assert run_ner.main(flags(task, folder, "--do_train", "--do_eval", "--do_predict")) == 0
    return folder


def test_files_of_a_run(task, trained):
    lines = (trained / "eval_results.txt").read_text().splitlines()
    figures = {key: float(value) for key, value in (line.split(" = ") for line in lines)}
    assert figures["eval_f1"] > 0.8 and figures["eval_town_support"] > 0 and figures["global_step"] > 30
    gold, found = read_tagged(task / "test.conll"), read_tagged(trained / "test_predictions.conll")
    assert [s.words for s in found] == [s.words for s in gold]
    assert tagging_figures([s.tags for s in gold], [s.tags for s in found])["f1"] == pytest.approx(figures["eval_f1"])
    assert json.loads((trained / "label_list.json").read_text())["labels"] == LABELS


def test_tagging_from_the_run_alone(task, trained, tmp_path, chunked_calls):
    out = [f"--init_checkpoint={trained}", f"--output_dir={tmp_path}", f"--test_file={task}/words.jsonl"]
    out += ["--max_seq_length=8", "--predict_batch_size=3", "--attention=chunked"]
    assert run_ner.main([*out, "--do_predict"]) == 0 and chunked_calls
    rows = [json.loads(line) for line in (tmp_path / "test_predictions.jsonl").open()]
    expected = read_tagged(trained / "test_predictions.conll")
    assert [(row["words"], row["tags"], row["n"]) for row in rows] == [
        (s.words, s.tags, number) for number, s in enumerate(expected)
    ]


def refused(capsys, arguments) -> str:
    assert run_ner.main(arguments) in (1, 2)
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("tf-bert run_ner: error: ")
    return error


def test_mistakes(task, trained, tmp_path, capsys, monkeypatch):
    assert "nothing else to do" in refused(capsys, flags(task, tmp_path))
    changed = flags(task, trained, "--do_predict", "--labels=O,I-town,B-town,B-per")
    assert "trained with kind tags and the labels O, B-per, B-town, I-town; now" in refused(capsys, changed)
    assert "the labels are not known" in refused(capsys, flags(task, tmp_path, "--do_predict"))
    missing = flags(tmp_path, tmp_path, "--do_train", f"--vocab_file={task}/vocab.txt")
    missing.append(f"--bert_config_file={task}/bert_config.json")
    assert "train.jsonl; --train_file names another one" in refused(capsys, missing)
    column = flags(task, trained, "--do_predict", "--text_column=words")
    assert "are numbers for" in refused(capsys, column)
    assert "no column 0" in refused(capsys, flags(task, trained, "--do_predict", "--label_column=0"))
    unknown = tmp_path / "dev.conll"
    unknown.write_text("ada B-per\noslo B-ship\n")
    evaluated = flags(task, trained, "--do_eval", f"--dev_file={unknown}")
    assert "dev.conll: line 2: the tag 'B-ship' is not known" in refused(capsys, evaluated)
    monkeypatch.setitem(sys.modules, "seqeval.metrics", None)
    error = refused(capsys, flags(task, trained, "--do_eval"))
    assert "the F1 of entities needs seqeval: pip install 'tf_bert[metrics]'" in error
    with pytest.warns(UserWarning, match="accuracy only"):
        assert tagging_figures([["NN", "VB"]], [["NN", "VB"]]) == {"accuracy": 1.0}  # parts of speech do not
