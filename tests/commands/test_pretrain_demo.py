"""The chain of commands from text to a trained model, and the predictors that it is compared with."""

import collections
import json
import re

import numpy as np
import pytest

from tf_bert.commands import demo_report, pretrain_demo
from tf_bert.data.pretraining.left_neighbours import LeftNeighbourCounts, Questions, baselines, read_questions
from tf_bert.data.tfrecord.files import RecordWriter, encode_example
from tf_bert.tokenization import FullTokenizer, save_vocab


def plain_prediction(documents, neighbours, left):
    """The likeliest id after the longest known context; of equally likely ones the smallest."""
    for n in range(neighbours, -1, -1):
        context = tuple(left[len(left) - n :])
        counts = collections.Counter(
            document[place]
            for document in documents
            for place in range(n, len(document))
            if tuple(document[place - n : place]) == context
        )
        if counts:
            return min(counts, key=lambda number: (-counts[number], number))


@pytest.mark.parametrize("neighbours", [0, 1, 2, 3])
def test_counting_neighbours(neighbours):
    rng = np.random.default_rng(neighbours)
    documents = [rng.integers(0, 6, length).tolist() for length in (30, 1, 17, 40)]
    left = np.concatenate([rng.integers(0, 8, (60, 3)), [[-1, -1, 2], [-1, -1, -1]]])
    predicted = LeftNeighbourCounts(documents, neighbours).predict(left)
    assert predicted.tolist() == [plain_prediction(documents, neighbours, row.tolist()) for row in left]


def test_questions_are_the_masked_words_with_true_neighbours(tmp_path):
    with RecordWriter(tmp_path / "a") as writer:
        writer.write(
            encode_example(
                {
                    "input_ids": [2, 4, 4, 8, 3, 0],
                    "masked_lm_positions": [1, 2, 0],
                    "masked_lm_ids": [6, 7, 0],
                    "masked_lm_weights": [1.0, 1.0, 0.0],
                }
            )
        )
    questions = read_questions([str(tmp_path / "a")])
    assert questions.answers.tolist() == [6, 7]
    assert questions.left.tolist() == [[-1, -1, 2], [-1, 2, 6]]


def test_baselines():
    text = [[5, 6, 7, 5, 6, 8, 5, 6, 7]]
    questions = Questions(np.array([[-1, 5, 6], [-1, -1, 9], [-1, 8, 5]]), np.array([7, 5, 7]))
    shares = baselines(text, questions)
    assert list(shares) == ["most frequent token", "1 left neighbour", "2 left neighbours", "3 left neighbours"]
    assert [round(share, 3) for share in shares.values()] == [0.333, 0.667, 0.667, 0.667]


def test_contexts_that_do_not_fit_in_64_bits_are_left_out():
    questions = Questions(np.array([[1, 2, 119_000]]), np.array([5]))
    assert list(baselines([[5, 119_000, 5]], questions)) == [
        "most frequent token", "1 left neighbour", "2 left neighbours",
    ]  # fmt: skip


def test_masked_sentences_stand_in_their_own_words(tmp_path):
    save_vocab(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"the cat sat on mat , . und ##er".split()], tmp_path / "v"
    )
    tokenizer = FullTokenizer(tmp_path / "v")
    (tmp_path / "text").write_text("The  Cat sat on the mat, under the mat.\nToo short.\n")
    assert demo_report.masked_sentences(str(tmp_path / "text"), tokenizer) == [
        ("The  Cat sat on [MASK] mat, under the mat.", "the")
    ]


def test_the_folder_of_a_corpus():
    assert demo_report.folder_for(None) == "runs/pretrain"
    assert demo_report.folder_for(None, short=True) == "runs/pretrain-short"
    assert demo_report.folder_for("/a/my books/") == "runs/pretrain-mybooks"
    assert demo_report.folder_for("x/*.txt") == "runs/pretrain-corpus"


def test_a_corpus_that_is_not_there(tmp_path, capsys):
    assert pretrain_demo.main([f"--corpus={tmp_path}/none", f"--output_dir={tmp_path}/out"]) == 1
    assert "none" in capsys.readouterr().err


@pytest.mark.slow
def test_the_whole_chain(tmp_path, capsys):
    """A made-up language in which a word says what comes next: a small model finds that out in a few steps."""
    rng = np.random.default_rng(3)
    follows = {f"w{chr(97 + i)}": f"w{chr(97 + (7 * i + 3) % 20)}" for i in range(20)}
    text = []
    for _ in range(60):
        for _ in range(8):
            word, words = rng.choice(list(follows)), []
            for _ in range(8):
                words.append(word)
                word = follows[word] if rng.random() < 0.9 else rng.choice(list(follows))
            text.append(" ".join(words) + " .")
        text.append("")
    (tmp_path / "text.txt").write_text("\n".join(text))
    flags = [f"--corpus={tmp_path}/text.txt", f"--output_dir={tmp_path}/out", "--vocab_size=100"]
    flags += ["--document_break=blank_line", "--num_train_steps=120", "--learning_rate=3e-3"]
    assert pretrain_demo.main(flags) == 0
    said = capsys.readouterr().out
    for text in (
        "$ tf-bert prepare_corpus",
        "always the most frequent token",
        "What to run next",
        "is what is masked in",
    ):
        assert text in said
    held_out = [json.loads(line) for line in (tmp_path / "out/run/training.jsonl").read_text().splitlines()][-1]
    assert held_out["eval"]["masked_lm_accuracy"] > 0.5
    assert (tmp_path / "out/curves.png").stat().st_size > 10_000


SCRIPTS = {
    "Chinese": "今天天气很好，我们去公园散步。孩子们在湖边玩耍；老人在树下下棋。你吃饭了吗？还没有！他走了……",
    "traditional Chinese": "人人生而自由，在尊嚴和權利上一律平等。他們賦有理性和良心。這是為什麼？",
    "Japanese": "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。「行こう！」と彼は言った。",
    "Korean": "대한민국은 민주공화국이다. 대한민국의 주권은 국민에게 있다. 모든 권력은 국민으로부터 나온다.",
    "Thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกัน ต่างมีเหตุผลและมโนธรรม และควรปฏิบัติต่อกันด้วยเจตนารมณ์แห่งภราดรภาพ",
    "Hindi": "सभी मनुष्य जन्म से स्वतंत्र हैं। उन्हें बुद्धि और अन्तरात्मा की देन प्राप्त है। क्या यह सच है?",
    "Arabic": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق. وقد وهبوا عقلا وضميرا. هل هذا صحيح؟",
}
ENDS = {"Korean": ".", "Hindi": "।", "Arabic": "؟", "Thai": " "}  # others have 。
SCRIPTS["a mix"] = " ".join(SCRIPTS.values())


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("layout", ["documents", "one line", "no ends"])
def test_data_of_every_script(name, layout, tmp_path, monkeypatch, capsys):
    """All before the training; the pieces know the text, and held-out records have something to ask."""
    rng = np.random.default_rng(0)
    letters, end = re.sub(r"[^\w\s\u0300-\u0fff]", "", SCRIPTS[name]), ENDS.get(name, "。")
    words, blank = (letters.split(), " ") if end in ".।؟" else (list(letters), "")
    made = [
        blank.join(rng.choice(words, rng.integers(6, 16))) + ("" if layout == "no ends" else end) for _ in range(800)
    ]
    documents = [blank.join(made[start : start + 5]) for start in range(0, len(made), 5)]
    text = ("\n\n" if layout == "documents" else blank).join(documents)
    (tmp_path / "text.txt").write_text(text, encoding="utf-16")
    run = pretrain_demo._command
    monkeypatch.setattr(
        pretrain_demo, "_command", lambda name, *flags: 7 if name == "run_pretraining" else run(name, *flags)
    )
    out = tmp_path / "out"
    flags = [f"--corpus={tmp_path}/text.txt", "--encoding=utf-16", f"--output_dir={out}", "--short"]
    assert pretrain_demo.main(flags) == 7, capsys.readouterr().err
    config = json.loads((out / "bert_config.json").read_text())
    vocabulary = (out / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    assert config["vocab_size"] == len(vocabulary) < 2000
    questions = read_questions([str(out / "heldout.tfrecord")])
    assert len(questions.answers) > 10
    assert np.mean(questions.answers == vocabulary.index("[UNK]")) < 0.01
