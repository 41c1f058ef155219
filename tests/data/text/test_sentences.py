"""Where sentences end, in several languages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_bert.data.text.sentences import split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["One.", "Two!", "Three?", "Four"],
        ['"Why so much?" he asked.', '"Because!" she cried.', "He left."],
        ['He said "no."', "Then he left.", "(It was late.)", "[So they say.]", "‘Good.’", "“Yes!”", "She stayed."],
        ["Mr. Bell, Dr. Smith and Mrs. Long met Prof. Hill vs. St. John.", "They left."],
        ["J. K. Rowling and J.R.R. Tolkien wrote.", "So did I.", "He read.", "Elizabeth I. Regina reigned."],
        ["It costs 3.50 dollars or 1.000,00.", "Version 2.0.1 is at www.a.com.", "See a.b.c for more."],
        ["He works for the U.S. Army, i.e. the state, e.g. Texas.", "It was 5 p.m. yesterday.", "Done."],
        ["See Fig. 3, No. 5 and pp. 7.", "No.", "He ate a fig.", "In May.", "On Jan. 5 it snowed."],
        ["1. Open the file.", "2. Close it.", "It was in 1999.", "Then it was 42.", "It is."],
        [
            "Wait ... what?",
            "Nobody knew...",
            "Then . . . nothing.",
            "Well . . .",
            "Gone…",
            "All.",
        ],
        ["What?!", "Really!!!", "Yes."],
        ["What! -- and why?", "Oh, he left; etc., etc.", "End."],
        ["It grew.[1]", "It fell.[2][3]", "It stayed."],
        ["this has no capitals.", "it ends here.", "does it?", "yes!"],
        ["iPhones are sold.", "They are."],
        ["Remove key from d.", "Raises an error."],
        # German, French, Spanish, Turkish, Russian, Greek
        [
            "Was ist das, z. B. ein Buch?",
            "„Ja.“",
            "Er ging am 3. Oktober im 19. Jahrhundert.",
            "Dr. Meier bzw. Fr. Klee.",
        ],
        ["« Oui. »", "Il est parti avec M. Dupont.", "Mme. Curie aussi."],
        ["¿Qué es?", "¡Hola!", "El Sr. García vino.", "Sí."],
        ["Çocuk geldi.", "İstanbul, örn. Prof. Dr. Ali geldi.", "Evet."],
        ["Привет.", "Как дела?", "Он жил на ул. Мира.", "Да."],
        ["Καλημέρα.", "Όλα καλά!", "Ναι."],
        # Hindi, Urdu, Arabic, Armenian, Burmese, Amharic
        ["यह राम है।", "क्या आप जानते हैं?", "हाँ!", "डॉ. मिश्रा आए॥", "ठीक।"],
        ["یہ کتاب ہے۔", "کیا آپ جانتے ہیں؟", "ہاں۔"],
        ["ما هذا؟", "هذا كتاب.", "نعم، هو كتاب."],
        ["Բարեւ։", "Ինչպես ես։"],
        ["မင်္ဂလာပါ။", "နေကောင်းလား။"],
        ["ሰላም።", "እንዴት ነህ።"],
        ["สวัสดีครับ วันนี้อากาศดี"],
    ],
)
def test_sentences_between_spaces(sentences):
    assert split_sentences(" ".join(sentences)) == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["你好！", "今天天气很好。", "我们走吧？", "好……再见"],
        ["“你好。”", "他说。", "“你去哪儿？”", "我问。"],
        ["（见上文。）", "下一句。", "《书》好！", "Python 3.11很好。"],
        ["「はい。」", "次の文です。", "本当ですか？！", "はい。"],
        ["你好!", "今天很好?", "是的。"],
        ["价格是3.5元。", "１２．５元。"],
    ],
)
def test_sentences_without_spaces(sentences):
    assert split_sentences("".join(sentences)) == sentences
    assert split_sentences("\n ".join(sentences)) == sentences


def test_blanks():
    assert split_sentences("") == split_sentences(" \n\t\u3000") == []
    assert split_sentences(" One\n\ttwo.\u2028Three\u00a0four.\x0cFive. ") == ["One two.", "Three four.", "Five."]


@given(st.text(st.sampled_from("aB1 .!?…。！”“\"')(«,;-\n你ا") | st.characters(exclude_categories=["Cs"]), max_size=60))
def test_nothing_is_lost(text):
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    for sentence in sentences:
        assert sentence and sentence == " ".join(sentence.split())


@pytest.mark.parametrize("part", ["x", ". ", "a. ", '"(', "!", ". .", '."', "。", "你!", "A. (", "I", "1", ". . ."])
def test_long_text_without_end_takes_linear_time(part):
    """A quadratic pattern would take many minutes here."""
    assert len("".join(split_sentences(part * 30_000 + ". B")).replace(" ", "")) >= 30_000


@pytest.mark.parametrize(
    "text, expected",
    [
        ("第一，要快；第二，要好；第三，要省。", ["第一，要快；", "第二，要好；", "第三，要省。"]),
        ("他慢慢地走了……我们也走了。", ["他慢慢地走了……", "我们也走了。"]),
        ("我……我不知道。", ["我……我不知道。"]),
        ("她说：“我不知道……”然后哭了。", ["她说：“我不知道……”", "然后哭了。"]),
        ("今天下雨．明天晴．价格是３．５元。", ["今天下雨．", "明天晴．", "价格是３．５元。"]),
        ("今天很好.我们走吧.增长1.5亿.", ["今天很好.", "我们走吧.", "增长1.5亿."]),
        ("他说：“走吧。”然后离开了。（完。）", ["他说：“走吧。”", "然后离开了。", "（完。）"]),
        ("「行こう！」と言った。本当？！そうだ。", ["「行こう！」", "と言った。", "本当？！", "そうだ。"]),
        ("พ.ศ. ๒๕๔๐ วันนี้", ["พ.ศ. ๒๕๔๐ วันนี้"]),
    ],
)
def test_ends_of_sentences_in_scripts_of_the_east(text, expected):
    assert split_sentences(text) == expected
