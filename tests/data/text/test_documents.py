"""Documents from text as people have it, the held-out split, the built-in corpus, and the command."""

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import ROOT
from tests.test_files import as_ordinary_user, full_disk  # noqa: F401
from tf_bert.commands.prepare_corpus import main
from tf_bert.data.text.builtin_corpus import builtin_corpus, prose_paragraphs
from tf_bert.data.text.characters import columns
from tf_bert.data.text.documents import (
    HeldOutSplit,
    Layout,
    cut_sentence,
    find_files,
    guess_layout,
    read_documents,
    sentences,
    usual_sentences_per_document,
)
from tf_bert.data.text.lines import read_lines

WRAPPED = """THE HOUSE

By Nobody


Chapter 1


The house stood on a hill above the river, and nobody had lived in it
for as long as anyone could remember. Mr. Bell, who owned the well-
known mill, said that it was haunted.

"Nonsense," said his wife.


Chapter 2


In the spring a stranger came to the village. He asked for the key of
the house, paid for a year, and was not seen for a week or more.
"""
WRAPPED_SENTENCES = [
    "THE HOUSE",
    "By Nobody",
    "Chapter 1",
    "The house stood on a hill above the river, and nobody had lived in it for as long as anyone could remember.",
    "Mr. Bell, who owned the well-known mill, said that it was haunted.",
    '"Nonsense," said his wife.',
    "",
    "Chapter 2",
    "In the spring a stranger came to the village.",
    "He asked for the key of the house, paid for a year, and was not seen for a week or more.",
    "",
]
LONG = (
    "This paragraph is a single line that is longer than anybody would wrap it. It has two sentences, as you can see."
)


def read(tmp_path, text, **options):
    path = tmp_path / "input"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(read_documents(str(path), **options))


def test_wrapped_paragraphs_and_chapters(tmp_path):
    layouts = {}
    assert read(tmp_path, WRAPPED, layouts=layouts) == WRAPPED_SENTENCES
    assert layouts == {"lines wrapped at 69, documents end at two empty lines": 1}
    assert read(tmp_path, gzip.compress(WRAPPED.replace("\n", "\r\n").encode())) == WRAPPED_SENTENCES
    indented = "".join("   " + line + "\n" for line in WRAPPED.split("\n"))
    assert read(tmp_path, indented) == WRAPPED_SENTENCES


def test_paragraphs_on_lines(tmp_path):
    first, second = LONG.split(". ")
    wanted = [first + ".", second]
    # Blocks of several lines are documents, ...
    assert read(tmp_path, f"Title\n{LONG}\n\nOther\n{LONG}\n") == ["Title", *wanted, "", "Other", *wanted, ""]
    # ... lines between empty lines are paragraphs of one.
    assert read(tmp_path, f"{LONG}\n\n{LONG}\n") == [*wanted, *wanted, ""]
    assert read(tmp_path, f"{LONG}\n\n\n\n{LONG}\n\n{LONG}\n") == [*wanted, "", *wanted, *wanted, ""]
    assert read(tmp_path, f"{LONG}\n\n{LONG}\n", document_break="blank_line") == [*wanted, "", *wanted, ""]


def test_prepared_text_stays_as_it_is(tmp_path, shared_golden):
    """The original's sample, one sentence a line."""
    path = shared_golden / "B_pretraining_data" / "inputs" / "part0.txt"
    lines = [line.strip() for line in read_lines(path)]
    again = list(read_documents(str(path)))
    assert re.sub("\n\n+", "\n\n", "\n".join(lines)).strip() == "\n".join(again).strip()


def test_chinese_lines_join_without_a_space(tmp_path):
    text = (
        "春天来了，花园里的花都开了，孩子们在树下唱歌跳舞，老\n人坐在长椅上看书。今天的天气很好，我们去公园看花，公\n"
        "园里有很多人，也有很多花。你喜欢春天吗？我最喜欢春天，\n因为春天的花很美。\n"
    )
    assert read(tmp_path, text) == [
        "春天来了，花园里的花都开了，孩子们在树下唱歌跳舞，老人坐在长椅上看书。",
        "今天的天气很好，我们去公园看花，公园里有很多人，也有很多花。",
        "你喜欢春天吗？",
        "我最喜欢春天，因为春天的花很美。",
        "",
    ]
    poem = "床前明月光，\n疑是地上霜。\n举头望明月，\n低头思故乡。\n"
    assert read(tmp_path, poem) == [*poem.split(), ""]


def test_lines_can_be_kept_or_joined(tmp_path):
    text = "one two\nthree four.\nFive\n\nsix\n"
    assert read(tmp_path, text, line_breaks="join", document_break="file") == ["one two three four.", "Five", "six", ""]
    assert read(tmp_path, text, line_breaks="keep") == ["one two", "three four.", "Five", "", "six", ""]


def test_json_lines(tmp_path):
    records = [{"id": 1, "text": f"{LONG}\nAnother paragraph."}, {"text": " "}, {"text": "你好。\ud800再见。"}]
    text = "\n\n".join(map(json.dumps, records))
    wanted = [*LONG.replace(". ", ".|").split("|"), "Another paragraph.", "", "你好。", "\ufffd再见。", ""]
    layouts = {}
    assert read(tmp_path, text, layouts=layouts) == wanted
    assert layouts == {"JSON lines, a document in each 'text'": 1}
    renamed = text.replace('"text"', '"body"')
    assert read(tmp_path, renamed, text_field="body") == wanted
    wrapped = json.dumps({"text": WRAPPED})
    assert read(tmp_path, wrapped) == [*filter(None, WRAPPED_SENTENCES), ""]  # a record is one document
    assert read(tmp_path, '{"text": 1}', format="text") == ['{"text": 1}', ""]


@pytest.mark.parametrize(
    "text, options, said",
    [
        ('{"text": "a"}\n{"body": "b"}', {}, "input, line 2: there is no field 'text'; fields found: 'body'"),
        ('{"text": 3}', {}, "input, line 1: 'text' is not a string"),
        ('{"text": "a"}\n\n{"text": ', {}, "input, line 3: not JSON"),
        ('{"text": "a"}\n[1]', {}, "input, line 2: found a list, expected a JSON object"),
        ("no JSON", {"format": "jsonl"}, "input, line 1: not JSON"),
        (b'{"text": "\xff"}', {}, "input: not valid UTF-8 at byte offset 10"),
    ],
)
def test_bad_json_lines(tmp_path, text, options, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        read(tmp_path, text, **options)


@pytest.mark.parametrize("name", ["format", "document_break", "line_breaks"])
def test_choices_that_are_not_known(tmp_path, name):
    with pytest.raises(ValueError, match=f"^{name} is 'joined'; known are auto, "):
        read(tmp_path, "One.\n", **{name: "joined"})


def test_wikiextractor(tmp_path):
    text = '<doc id="1" title="Cat">\nCat\n\nA cat purrs. It sleeps.\n</doc>\n<doc id="2">\nDog\n\nA dog barks.\n</doc>'
    assert read(tmp_path, text) == ["Cat", "A cat purrs.", "It sleeps.", "", "Dog", "A dog barks.", ""]


@pytest.mark.parametrize("text", ["", "\n", "\n\n\n\n", "\ufeff", " \r\n\t\n"])
def test_files_without_text(tmp_path, text):
    assert read(tmp_path, text) == []


def test_odd_characters(tmp_path):
    text = "One\u2028two\x0cthree.\x85Four\x00 five.\r\n" + "x" * 1_000_000
    assert read(tmp_path, text) == ["One two three.", "Four\x00 five.", "x" * 1_000_000, ""]


def test_a_file_without_empty_lines_needs_no_more_memory(tmp_path):
    """A paragraph that never ends is cut, so that it is not held whole."""
    line = "word " * 13 + "word\n"
    made = read(tmp_path, line * 40_000)
    assert made[-1] == "" and 1_000_000 < max(map(len, made)) < 1_000_200
    assert " ".join(made).split() == ["word"] * 14 * 40_000


def test_guesses():
    short = ["What?", "I do not know what you mean by that.", "Oh!", "Come here, I said.", "No."]
    assert guess_layout(short).width == 0  # subtitles are not wrapped
    assert guess_layout([]) == Layout("file", 0)
    assert guess_layout(["", "", "", "One.", "", "", ""]) == Layout("file", 0)
    assert str(guess_layout(["a"], line_breaks="join")) == "a paragraph a block, documents end at the end of the file"


@given(
    st.lists(st.sampled_from(["", "A sentence.", "and so on", "Title", " x ", "word " * 14]), max_size=40), st.data()
)
def test_the_stream_is_well_formed(lines, data):
    """No leading or doubled empty line, an empty line at the end, no word lost, no break inside a line."""
    layout = Layout(
        data.draw(st.sampled_from(["blank_line", "two_blank_lines", "file"])), data.draw(st.integers(0, 80))
    )
    made = list(sentences(lines, layout))
    assert "".join("".join(made).split()) == "".join("".join(lines).split())
    text = "\n".join(made)
    assert "\n\n\n" not in text and not text.startswith("\n")
    assert not made or made[-1] == ""


def test_find_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("corpus/b.txt", "corpus/a/2.txt", "corpus/a/1.txt", "corpus/.hidden", "corpus/.git/x", "c.txt"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("x")
    Path("empty").mkdir()
    assert find_files("corpus") == ["corpus/b.txt", "corpus/a/1.txt", "corpus/a/2.txt"]
    assert find_files("c.txt, corpus/a/*.txt,corpus/a") == ["c.txt", *["corpus/a/1.txt", "corpus/a/2.txt"] * 2]
    with pytest.raises(FileNotFoundError, match="no files in the directory empty"):
        find_files("empty")
    with pytest.raises(FileNotFoundError, match="'none' does not exist"):
        find_files("c.txt,none")
    with pytest.raises(ValueError, match="no input file"):
        find_files(",")


DOCUMENTS = [[f"Document {i} begins here.", *[f"Sentence {j}." for j in range(i % 7)]] for i in range(1000)]
STREAM = [line for document in DOCUMENTS for line in [*document, ""]]


def held_out(lines, *options) -> set[str]:
    return {line for side, line in HeldOutSplit(*options)(lines) if side and line.startswith("Document")}


def test_the_split():
    split = HeldOutSplit(0.1, 1)
    made = list(split(STREAM))
    assert [line for _, line in made] == STREAM
    sides = []
    for line in made:
        if not sides or sides[-1][1] == "":
            sides.append(line)
        else:
            assert line[0] == sides[-1][0]  # a document is never cut
            sides[-1] = line
    assert split.documents == [1000 - split.documents[1], split.documents[1]] and 70 < split.documents[1] < 130
    assert split.sentences[0] + split.sentences[1] == len(STREAM) - 1000
    assert sum(split.single) == sum(len(document) == 1 for document in DOCUMENTS)
    assert sum(split.characters) == sum(map(len, STREAM))


def test_the_split_depends_on_the_text_and_the_seed_alone():
    chosen = held_out(STREAM, 0.1, 1)
    turned = [line for document in DOCUMENTS[::-1] for line in [*document, ""]]
    assert held_out(turned, 0.1, 1) == chosen
    assert held_out(STREAM[: len(STREAM) // 2], 0.1, 1) < chosen
    assert held_out(STREAM, 0.2, 1) > chosen
    assert held_out(STREAM, 0.1, 2) != chosen
    assert held_out(STREAM, 0.0) == set() and len(held_out(STREAM, 1.0)) == 1000


def test_short_documents_are_left_out():
    split = HeldOutSplit(0.0, min_sentences=3)
    kept = [line for _, line in split(STREAM)]
    assert kept == [line for document in DOCUMENTS if len(document) >= 3 for line in [*document, ""]]
    assert split.left_out == sum(len(document) < 3 for document in DOCUMENTS)
    assert list(HeldOutSplit(0.0, min_sentences=2)(["x" * 2000, "", "", "y" * 2000, "z", ""])) == [
        (False, "y" * 2000), (False, "z"), (False, "")
    ]  # fmt: skip


def test_the_built_in_corpus():
    lines = list(builtin_corpus())
    documents = "\n".join(lines).strip().split("\n\n")
    assert 250 <= len(documents) <= 450
    assert 1_200_000 < sum(map(len, documents)) < 2_200_000
    text = "\n".join(lines)
    for code in (">>>", "::=", "****", "====", "+---", "-[ "):
        assert code not in text
    assert "Assert statements are a convenient way to insert debugging assertions into a program:" in lines
    assert any(line.startswith("Return the absolute version of a path") for line in lines)  # posixpath.abspath
    # No document repeats another.
    sets = [set(filter(lambda line: len(line) > 60, document.split("\n"))) for document in documents]
    for i, one in enumerate(sets):
        for other in sets[:i]:
            assert len(one & other) <= max(7, 0.2 * min(len(one), len(other)))
    split = HeldOutSplit(0.1, 29)
    list(split(lines))
    assert 15 <= split.documents[1] <= 45 and 0.03 < split.characters[1] / sum(split.characters) < 0.16


TOPIC = """The "del" statement
*******************

   del_stmt ::= "del" target_list

Deletion is *recursively* defined **very** similar to the way
assignment is defined. Here is a built-
in hint.  See *a* and *b* [1]:

   >>> del x

   def f(x):
      return x

* If the name occurs in the list
  it is removed.

object.__del__(self)

   Called when the instance is about to be destroyed. [2]

Strings
   A string is a sequence of values that represent code points.

+------+------+
| a b c| d.   |
+------+------+

   x = [0, 1].
"""


def test_prose_of_a_topic():
    assert prose_paragraphs(TOPIC) == [
        "Deletion is recursively defined very similar to the way assignment is defined. Here is a built-in hint. "
        "See a and b [1]:",
        "If the name occurs in the list it is removed.",
        "Called when the instance is about to be destroyed. [2]",
        "A string is a sequence of values that represent code points.",
    ]


def test_copied_topics_are_left_out():
    part = "The first paragraph is here for all to see.\n\nThe second paragraph is here too."
    topics = {"whole": part + "\n\n" + "And the whole is longer. " * 9, "part": part}
    assert list(builtin_corpus(topics)).count("") == 1
    topics["part"] += "\n\nThis is new in here now.\n\nThis is also new in here.\n\nAnd this is new too."
    made = "\n".join(builtin_corpus(topics))
    assert made.count("\n\n") == 1 and made.count("The first paragraph") == 1


def run_python(*arguments, **options) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, **options)


def test_the_command(tmp_path):
    (tmp_path / "corpus" / "more").mkdir(parents=True)
    (tmp_path / "corpus" / "novel.txt").write_text(WRAPPED, encoding="utf-8")
    records = "".join(json.dumps({"text": f"Record {i} is here. It has two sentences."}) + "\n" for i in range(50))
    (tmp_path / "corpus" / "more" / "records.jsonl.gz").write_bytes(gzip.compress(records.encode()))
    program = (
        "import sys; from tf_bert.commands.main import main\n"
        "status = main(sys.argv[1:]); assert 'tensorflow' not in sys.modules; sys.exit(status)"
    )
    flags = ["--input_file=corpus", "--output_file=out/train.txt", "--heldout_file=out/heldout.txt", "--seed=3"]
    done = run_python("-c", program, "prepare_corpus", *flags, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    train, heldout = ((tmp_path / "out" / name).read_text() for name in ("train.txt", "heldout.txt"))
    assert train.endswith("\n\n") and heldout.endswith("\n\n")  # so that files can be joined without joining documents
    documents = train.strip().split("\n\n") + heldout.strip().split("\n\n")
    assert len(documents) == len(set(documents)) == 52
    assert "Record 7 is here.\nIt has two sentences." in documents
    assert "\n".join(WRAPPED_SENTENCES).strip().split("\n\n")[1] in documents
    assert re.search(r"out/heldout.txt: \d+ documents, \d+ sentences", done.stdout)
    assert "1 file: lines wrapped at 69" in done.stdout and "1 file: JSON lines" in done.stdout
    done = run_python(ROOT / "tools" / "prepare_corpus.py", "--builtin_corpus", "--output_file=-.txt", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "-.txt").read_text(encoding="utf-8") == "\n".join(builtin_corpus()) + "\n"


@pytest.mark.parametrize(
    "flags, status, said",
    [
        ([], 2, "give either --input_file or --builtin_corpus"),
        (["--input_file=good.txt", "--builtin_corpus"], 2, "give either --input_file or --builtin_corpus"),
        (["--input_file=good.txt", "--heldout_file=out.txt"], 2, "must be two files"),
        (["--input_file=good.txt", "--heldout_frac=0.2"], 2, "did you mean --heldout_fraction"),
        (["--input_file=good.txt", "--heldout_fraction=2"], 2, "heldout_fraction"),
        (["--input_file=none"], 1, "'none' does not exist"),
        (["--input_file=empty.txt"], 1, "there are no documents in empty.txt"),
        (["--input_file=good.txt", "--min_sentences=9"], 1, "1 have fewer than 9 sentences"),
        (["--input_file=bad.txt"], 1, "bad.txt: not valid UTF-8 at byte offset 4"),
        (["--input_file=."], 1, "out.txt is to be written, but it is one of the input files"),
        (["--input_file=good.txt", "--heldout_file=h.txt"], 1, "all is one document, of which nothing can be held out"),
        (
            ["--input_file=good.txt,good.txt", "--heldout_file=h.txt", "--heldout_fraction=0"],
            1,
            "2 documents is held out",
        ),
        (["--input_file=good.txt,good.txt", "--heldout_file=h.txt", "--heldout_fraction=1"], 1, "is left to train on"),
        (["--input_file=good.txt", "--heldout_file=folder"], 1, "cannot write folder: it is a directory"),
    ],
)
def test_mistakes_leave_the_old_files(tmp_path, monkeypatch, capsys, flags, status, said):
    monkeypatch.chdir(tmp_path)
    Path("bad.txt").write_bytes(b"one \xff")
    Path("empty.txt").write_bytes(b"\n\n")
    Path("good.txt").write_text("One. Two.")
    Path("out.txt").write_text("old")
    Path("folder").mkdir()
    assert main([*flags, "--output_file=out.txt"]) == status
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert Path("out.txt").read_text() == "old"
    assert sorted(os.listdir()) == ["bad.txt", "empty.txt", "folder", "good.txt", "out.txt"]


def test_a_full_disk(tmp_path, full_disk, capsys):  # noqa: F811
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress(b"A sentence.\n" * 200_000))
    (tmp_path / "out.txt").write_text("old")
    assert main([f"--input_file={tmp_path}/in.txt.gz", f"--output_file={tmp_path}/out.txt"]) == 1
    error = capsys.readouterr().err
    assert f"cannot write {tmp_path}/out.txt; what was there is unchanged: File too large" in error
    assert error.count("\n") == 1
    assert (tmp_path / "out.txt").read_text() == "old"


def test_no_permission(capsys):
    with tempfile.TemporaryDirectory() as folder:  # tmp_path lies in a folder that only its owner may enter
        os.chmod(folder, 0o755)
        path = Path(folder, "in.txt")
        path.write_text("One.")
        path.chmod(0)
        with as_ordinary_user():
            status = main([f"--input_file={path}", "--output_file=/dev/null"])
    assert status == 1
    assert f"no permission to read {path}" in capsys.readouterr().err


def test_notes(tmp_path, capsys):
    path = tmp_path / "in.txt"
    path.write_text("One. Two.")
    assert main([f"--input_file={path}", f"--output_file={tmp_path}/out.txt"]) == 0
    assert "note: all is one document" in capsys.readouterr().err
    path.write_text("One.\n\nTwo.\n\nThree. Four.")
    assert main([f"--input_file={path}", f"--output_file={tmp_path}/out.txt", "--document_break=blank_line"]) == 0
    assert "note: 2 of 3 documents have one sentence" in capsys.readouterr().err


def test_wrapped_lines_are_joined_without_a_blank_between_chinese_characters():
    text = (
        "北京时间今天上午九点，国家主席在人民大会堂会见了来访的客人。他说：“欢迎。”“谢谢。”客人在1998年到过北京大学。"
        * 2
    )
    for width in (12, 20, 38):
        lines = [text[start : start + width] for start in range(0, len(text), width)]
        for line_breaks in ("auto", "join"):
            found = sentences(lines, guess_layout(lines, "auto", line_breaks))
            assert "".join(found) == text, (width, line_breaks)
    thai = "ภาษาไทยไม่เว้นวรรคระหว่างคำ"
    assert next(sentences([thai[:9], thai[9:]], guess_layout([], "auto", "join"))) == thai
    assert (
        next(sentences(["한국어는 낱말을", "띄어 쓴다"], guess_layout([], "auto", "join")))
        == "한국어는 낱말을 띄어 쓴다"
    )


def test_paragraphs_are_documents_where_nothing_else_marks_them(tmp_path):
    story = " ".join(["It rained all day long in the city."] * 5)
    paragraphs, lines = "\n".join([story] * 3), "\n".join(["One sentence a line."] * 70)
    one_line = "今天下雨。" * 70
    assert read(tmp_path, paragraphs, sentences_per_document=30).count("") == 3
    assert read(tmp_path, "\n\n".join([story] * 3), sentences_per_document=30).count("") == 3
    assert read(tmp_path, lines, sentences_per_document=30).count("") == 3  # of 30 sentences at most
    assert read(tmp_path, one_line, sentences_per_document=30).count("") == 3
    assert read(tmp_path, paragraphs).count("") == 1  # one file of many
    layouts = {}
    read(tmp_path, paragraphs, sentences_per_document=30, layouts=layouts)
    assert list(layouts) == ["a paragraph a line, documents end at a paragraph, or after some sentences"]


def test_long_sentences_are_cut_and_nothing_is_lost(tmp_path):
    thai = "ภาษาไทยไม่เว้นวรรคระหว่างคำ" * 20
    for text in ("word " * 500, "一二三四五六七八九，" * 100, thai, "x" * 1000, "あ" * 100_000):
        cut = [line for line in read(tmp_path, text, longest_sentence=64) if line]
        assert max(map(columns, cut)) <= 64
        assert "".join("".join(cut).split()) == "".join(text.split())
    assert cut_sentence("一二三四，五六七八九十", 12) == ["一二三四，", "五六七八九十"]


def test_a_small_text_gives_many_documents(tmp_path):
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_text("x" * 1000)
    large.write_text("x" * 10**6)
    assert usual_sentences_per_document([str(small)]) == 4
    assert usual_sentences_per_document([str(large)]) == 30
    assert usual_sentences_per_document([str(small)] * 10) == 0
