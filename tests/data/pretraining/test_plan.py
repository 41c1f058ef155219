"""What is chosen for a text that a small model is pre-trained on."""

import pytest

from tf_bert.data.pretraining.plan import STEPS, VOCAB_SIZE, Plan, keeps_accents, plan
from tf_bert.tokenization import FullTokenizer, save_vocab


@pytest.mark.parametrize(
    "text, expected",
    [
        ("Les élèves sont arrivés à l'école, naïfs et gênés.", False),
        ("Все люди рождаются свободными, ёлка, йод.", False),
        ("今天天气很好，我们去公园散步。", False),
        ("吾輩は猫である。名前はまだ無い。どこで生れたか。", True),
        ("대한민국은 민주공화국이다.", True),
        ("यह एक किताब है।", True),
        ("ภาษาไทยไม่เว้นวรรคระหว่างคำ", True),
        ("هذا كِتابٌ جَديدٌ", True),
        ("", False),
    ],
)
def test_marks_that_are_no_accents_are_kept(text, expected):
    assert keeps_accents([text] * 3) is expected


def make(tmp_path, size, sentence, count):
    words = [f"w{number}" for number in range(size - 5)]
    save_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words], tmp_path / "vocab.txt")
    return plan([*[sentence] * count, ""], FullTokenizer(tmp_path / "vocab.txt"))


def test_a_plan(tmp_path):
    usual = make(tmp_path, VOCAB_SIZE, "w1 w2 w3 w4 w5 w6", 200)
    assert usual == Plan(max_seq_length=32, max_predictions_per_seq=5, num_train_steps=STEPS, dupe_factor=10)
    large = make(tmp_path, 6000, "w1 " * 25, 100_000)
    assert large.max_seq_length == 32 and 2000 < large.num_train_steps < STEPS and large.dupe_factor == 3
    long = make(tmp_path, 6000, "w1 " * 40, 1000)
    assert (long.max_seq_length, long.max_predictions_per_seq) == (64, 10) and long.num_train_steps < 1700
