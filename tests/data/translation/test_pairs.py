"""Parallel text: reading, cleaning, records, and batches of like lengths."""

import gzip
import json
import random
from unittest import mock

import numpy as np
import pytest

from tf_bert.commands import create_translation_data
from tf_bert.data.tfrecord.files import RecordWriter, decode_example, encode_example, read_records
from tf_bert.data.tfrecord.sidecar import read_sidecar, write_sidecar
from tf_bert.data.translation import toy_pairs as toy_translation
from tf_bert.data.translation.pairs import Cleaning, is_held_out, read_pairs, write_pairs
from tf_bert.data.translation.scores import corpus_scores, edit_distance, exact_share, word_error_rate
from tf_bert.tokenization.subwords import load_subwords


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """400 reversed digit strings as records in two shards, a tenth held out."""
    folder = tmp_path_factory.mktemp("reverse")
    flags = ["--task=reverse", "--num_pairs=400", "--subwords=char", "--num_shards=2", "--heldout_fraction=0.1"]
    assert create_translation_data.main([*flags, f"--output_dir={folder}"]) == 0
    return folder


def test_files_of_unequal_length(tmp_path, capsys):
    for name, lines in (("a.en", ["one", "two", "three"]), ("a.de", ["eins", "zwei"])):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    flags = [f"--source_file={tmp_path}/a.en", f"--target_file={tmp_path}/a.de", f"--output_dir={tmp_path}/out"]
    assert create_translation_data.main(flags) == 1
    error = capsys.readouterr().err
    assert "a.de ends after line 2, and" in error and "a.en has a line 3" in error and "Traceback" not in error
    with pytest.raises(ValueError, match="2 source files and 1 target files"):
        list(read_pairs(["a", "b"], ["c"]))


def test_tables(tmp_path):
    path = tmp_path / "pairs.tsv.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("1\ta house\tein Haus\n2\ta\u2028b\t c \n3\tone column less\n")
    pairs = read_pairs([str(path)], columns=(3, 2))
    assert [next(pairs), next(pairs)] == [("ein Haus", "a house"), ("c", "a\u2028b")]
    with pytest.raises(ValueError, match=r"line 3 has 2 columns between tabs, expected at least 3"):
        next(pairs)


def test_what_is_skipped_is_counted(tmp_path, made):
    tokenizer = load_subwords(made / "vocab.model")
    pairs = [("123", "321"), ("", "1"), ("1", ""), ("1" * 9, "1"), ("1" * 7, "12"), ("12", "21"), ("狐1", "1")]
    path = str(tmp_path / "a.tfrecord")
    kept = []
    cleaning = Cleaning(max_length=9, max_ratio=2.0)  # of pieces: a blank, the digits, and for the length the end
    counts = write_pairs(pairs, [path], tokenizer, tokenizer, cleaning, lambda *pair: kept.append(pair))
    assert kept == [("123", "321"), ("12", "21"), ("狐1", "1")]
    assert counts.skipped == {"empty": 2, "too long": 1, "lengths too different": 1}
    assert (counts.kept, counts.unknown, counts.source_pieces) == (3, 1, 4 + 3 + 3)
    records = [decode_example(record) for record in read_records(path)]
    assert [record["source_ids"][-1] for record in records] == [3, 3, 3]
    assert tokenizer.decode(records[0]["target_ids"]) == "321"
    sidecar = read_sidecar(path)
    assert sidecar["records"] == 3 and sidecar["lengths"] == {"4": 2, "5": 1} and sidecar["source_vocab_size"] == 15
    with pytest.raises(ValueError, match="no pair is left .*: 1 empty"):
        write_pairs([("", "")], [path], tokenizer, tokenizer)


def test_a_ratio_that_is_reached_exactly_is_allowed():
    """2.3 * 50 is 114.99999999999999 in floating point."""
    cleaning = Cleaning(max_length=999, max_ratio=2.3)
    assert cleaning.problem([5] * 115, [5] * 50) is None and cleaning.problem([5] * 50, [5] * 115) is None
    assert cleaning.problem([5] * 116, [5] * 50) == "lengths too different"


def test_held_out_pairs_are_chosen_by_their_source(made):
    sources = (made / "heldout.source.txt").read_text(encoding="utf-8").split()
    assert 20 < len(sources) < 60 and all(is_held_out(source, 0.1) for source in sources)
    tokenizer = load_subwords(made / "vocab.model")
    trained = [
        decode_example(record) for path in sorted(made.glob("train-*.tfrecord")) for record in read_records(path)
    ]
    assert len(trained) + len(sources) == 400
    assert not {tokenizer.decode(pair["source_ids"]) for pair in trained} & set(sources)
    for pair in trained:
        assert tokenizer.decode(pair["source_ids"]) == tokenizer.decode(pair["target_ids"])[::-1]


def test_the_command_explains_mistakes(tmp_path, made, capsys):
    out = f"--output_dir={tmp_path}"
    for flags, message in (
        ([], "give --source_file and --target_file, or --input_file, or --task"),
        (["--source_file=a"], "go together"),
        (["--input_file=a.tsv", "--columns=1"], "--columns is two numbers"),
        (["--input_file=none.tsv"], "'none.tsv' does not exist"),
        (["--task=dates", "--target_subwords=word"], "give --noshare_vocabulary"),
        (["--task=dates", f"--source_vocab_file={made}/vocab.model"], "go together"),
        (["--task=dates", f"--vocab_file={made}/heldout.source.txt"], "lacks the padding symbol"),
    ):
        assert create_translation_data.main([*flags, out]) != 0
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1, error


def test_two_vocabularies_of_two_kinds(tmp_path, capsys):
    table = tmp_path / "words.tsv"
    table.write_text("hello\tHH AH L OW\nworld\tW ER L D\n" * 3, encoding="utf-8")
    flags = [f"--input_file={table}", "--subwords=char", "--target_subwords=word", "--noshare_vocabulary"]
    assert create_translation_data.main([*flags, "--max_ratio=0", f"--output_dir={tmp_path}"]) == 0
    (path,) = tmp_path.glob("train-*.tfrecord")
    pair = decode_example(next(read_records(path)))
    assert load_subwords(tmp_path / "target.model").decode(pair["target_ids"]) == "HH AH L OW"
    assert len(pair["target_ids"]) == 5 and len(pair["source_ids"]) == 7
    assert "6 pairs, none skipped" in capsys.readouterr().out


def test_vocabularies_of_one_name_do_not_take_each_others_place(tmp_path):
    (tmp_path / "pairs.tsv").write_text("ein zug\ta train\n")
    symbols = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    for side, words in (("source", ["zug", "ein"]), ("target", ["a", "train", "mat"])):
        (tmp_path / side).mkdir()
        (tmp_path / side / "vocab.txt").write_text("\n".join([*symbols, *words]) + "\n")
    flags = [f"--{side}_vocab_file={tmp_path}/{side}/vocab.txt" for side in ("source", "target")]
    flags += [f"--input_file={tmp_path}/pairs.tsv", f"--output_dir={tmp_path}/out"]
    assert create_translation_data.main(flags) == 0
    sidecar = json.loads(next((tmp_path / "out").glob("train-*.json")).read_text())
    assert (sidecar["source_vocab_size"], sidecar["target_vocab_size"]) == (6, 7)
    for side in ("source", "target"):
        copy = tmp_path / "out" / sidecar[f"{side}_vocab_file"]
        assert copy.read_text() == (tmp_path / side / "vocab.txt").read_text()


def test_dates_mean_what_they_say():
    import datetime

    for text, iso in toy_translation.dates(300, random.Random(1)):
        date = datetime.date.fromisoformat(iso)
        assert str(date.year) in text and str(date.day) in text
        assert date.strftime("%B")[:3].lower() in text.lower()
    texts = {text for text, _ in toy_translation.dates(300, random.Random(1))}
    assert any("11th" in text for text in texts) and not any("11st" in text or "13rd" in text for text in texts)


@pytest.fixture(scope="module")
def records(made):
    from tf_bert.data.translation.input import find_translation_records

    return find_translation_records(str(made / "train-*.tfrecord"))


class TestBatches:
    def rows(self, batches):
        """The pairs of batches, without padding."""
        return [
            (tuple(s[m > 0]), tuple(t[n > 0]))
            for batch in batches
            for s, m, t, n in zip(
                *(batch[name].numpy() for name in ("source_ids", "source_mask", "target_ids", "target_mask")),
                strict=True,
            )
            if m.any()
        ]

    def test_a_pass_holds_every_pair_once(self, records):
        from tf_bert.data.translation.input import Batching, bucket_widths, eval_dataset, train_dataset

        batching = Batching(tokens=160, least=2, pad_to_bucket=True)
        number = batching.batches_in_pass(records)
        for dataset in (eval_dataset(records, batching), train_dataset(records, batching).take(number)):
            batches = list(dataset)
            assert len(batches) == number
            rows = self.rows(batches)
            assert len(rows) == len(set(rows)) == records.count
            for batch in batches:
                size, width = batch["source_ids"].shape
                assert width in bucket_widths(records.longest) and batch["target_ids"].shape == (size, width)
                assert size == batching.rows(width) and size * width <= 160
                real = batch["target_mask"].numpy() > 0
                assert (batch["target_ids"].numpy()[~real] == 0).all() and (batch["target_ids"].numpy()[real] > 0).all()
                ends = real.sum(axis=1)[real.any(axis=1)]
                assert (np.diff(np.sort(ends)) >= 0).all() and ends.max() > width - 8

    def test_one_shape_for_a_tpu(self, records):
        import tensorflow as tf

        from tf_bert.data.translation.input import Batching, eval_dataset, train_dataset
        from tf_bert.training.distribution import distribute

        batching = Batching(tokens=400, least=3, one_shape=True)
        size, number = 400 // records.longest // 3 * 3, batching.batches_in_pass(records)
        tpu = mock.Mock(spec=tf.distribute.TPUStrategy)
        for dataset in (eval_dataset(records, batching), train_dataset(records, batching)):
            dataset = distribute(tpu, lambda tokens, worker, made=dataset: made, 400, by_worker=True)
            assert {tuple(part.shape) for part in dataset.element_spec.values()} == {(size, records.longest)}
            rows = self.rows(dataset.take(number))
            assert len(rows) == len(set(rows)) == records.count

    def test_skipping_is_going_on(self, records):
        from tf_bert.data.translation.input import Batching, train_dataset

        batching = Batching(tokens=400)
        number = batching.batches_in_pass(records)
        whole = [self.rows([batch]) for batch in train_dataset(records, batching, seed=3).take(2 * number + 3)]
        for skipped in (2, number + 1):
            rest = train_dataset(records, batching, seed=3, skip_batches=skipped).take(2 * number + 3 - skipped)
            assert [self.rows([batch]) for batch in rest] == whole[skipped:]
        assert whole[:number] != whole[number : 2 * number]  # another order in the second pass

    def test_records_that_do_not_fit(self, records, made, tmp_path):
        from tf_bert.data.translation.input import (
            Batching,
            eval_dataset,
            find_translation_records,
            translation_record_errors,
        )

        with pytest.raises(ValueError, match=r"train-0.*: record \d+: source_ids holds 1\d, expected 0 to 9; were"):
            with translation_record_errors(records, (10, 10)):
                list(eval_dataset(records, Batching(100), limits=(10, 10)))
        with translation_record_errors(records, (15, 15)):
            list(eval_dataset(records, Batching(1000), limits=(15, 15)))
        path = tmp_path / "a.tfrecord"
        with RecordWriter(path) as writer:
            writer.write(encode_example({"source_ids": [4]}))
        with pytest.raises(ValueError, match="a.tfrecord.json is not there; see create_translation_data"):
            find_translation_records(str(path))
        sidecar = {**read_sidecar(records.files[0]), "records": 1, "lengths": {"1": 1}}
        write_sidecar(path, {**sidecar, "records": 2})
        with pytest.raises(ValueError, match="a.tfrecord holds 1 records, and .*a.tfrecord.json notes 2"):
            find_translation_records(str(path))
        write_sidecar(path, {**sidecar, "lengths": {"1": 2}})
        with pytest.raises(ValueError, match="a.tfrecord.json notes the lengths of other pairs than its 1 records"):
            find_translation_records(str(path))
        write_sidecar(path, {**sidecar, "target_vocab_sha256": "other"})
        with pytest.raises(ValueError, match="do not go together: target_vocab_sha256"):
            find_translation_records([records.files[0], str(path)])
        write_sidecar(path, sidecar)
        alone = find_translation_records(str(path))
        for record, said in (
            ({"source_ids": [4]}, "record 1: target_ids missing, found source_ids"),
            ({"source_ids": [4], "target_ids": np.zeros(0, np.int64)}, "record 1: target_ids has 0 values"),
            ({"source_ids": [4], "target_ids": [0.5]}, "record 1: target_ids holds 0.5, expected whole numbers"),
            ({"source_ids": [4], "target_ids": [-1]}, "record 1: target_ids holds -1, expected 0 to"),
            ({"source_ids": [4, 4], "target_ids": [4]}, "record 1 has a side of 2 ids, and .* notes 1 as the longest"),
        ):
            with RecordWriter(path) as writer:
                writer.write(encode_example(record))
            with pytest.raises(ValueError, match=said), translation_record_errors(alone):
                list(eval_dataset(alone, Batching(100)))


def test_a_vocabulary_that_has_changed_is_named(tmp_path):
    from tf_bert.data.translation.input import find_translation_records

    flags = ["--task=reverse", "--num_pairs=9", "--subwords=wordpiece", "--vocab_size=40", f"--output_dir={tmp_path}"]
    assert create_translation_data.main(flags) == 0
    records = find_translation_records(str(tmp_path / "train-*.tfrecord"))
    source, target = records.tokenizers()
    assert source is target
    with open(tmp_path / "vocab.txt", "a") as file:
        file.write("more\n")
    with pytest.raises(ValueError, match="vocab.txt has changed: .*train-0.* was made with another vocabulary"):
        records.tokenizers()


def test_scores():
    assert edit_distance("kitten", "sitting") == 3
    assert word_error_rate(["a b", "c"], ["a b", "d"]) == pytest.approx(1 / 3)
    assert exact_share(["a", "b"], ["a", "c"]) == 0.5
    with pytest.raises(ValueError, match="there are 1 translations and 2 references"):
        exact_share(["a"], ["a", "b"])


def test_bleu_is_sacrebleus():
    sacrebleu = pytest.importorskip("sacrebleu")
    hypotheses = ["the cat sat on the mat .", "a dog"]
    references = ["the cat sits on the mat .", "A dog barks"]
    scores = corpus_scores(hypotheses, references)
    assert scores["bleu"] == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score)
    assert scores["chrf"] == pytest.approx(sacrebleu.corpus_chrf(hypotheses, [references]).score)
    assert corpus_scores(hypotheses, references, lower_case=True)["bleu"] > scores["bleu"]


def test_without_sacrebleu_a_line_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(ImportError, match=r"pip install 'tf_bert\[metrics\]'"):
        corpus_scores(["a"], ["a"])
