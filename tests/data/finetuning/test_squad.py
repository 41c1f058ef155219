"""SQuAD: windows and answers to the bit those of the original, its crashes mended, the official scores."""

import gzip
import json
import string

import numpy as np
import pytest

from tf_bert.data.finetuning.squad import (
    FeatureWriter,
    SquadExample,
    convert_examples_to_features,
    read_squad_examples,
)
from tf_bert.data.finetuning.squad_predictions import (
    NO_CANDIDATE,
    AnswerOptions,
    RawResult,
    get_final_text,
    predict_answers,
    write_predictions,
)
from tf_bert.data.finetuning.squad_scores import normalize_answer, read_answers, score_predictions
from tf_bert.data.finetuning.windows import cut_windows, max_context
from tf_bert.data.tfrecord.files import decode_example, read_records
from tf_bert.tokenization import FullTokenizer, save_vocab

FILES = ("predictions.json", "nbest_predictions.json", "null_odds.json")


@pytest.fixture(scope="module")
def published(golden):
    return FullTokenizer(golden / "vocab/vocab.txt")


@pytest.fixture(scope="module")
def index(golden):
    return json.loads((golden / "F_squad/index.json").read_text())


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    save_vocab("[PAD] [UNK] [CLS] [SEP] [MASK]".split() + list(string.ascii_lowercase) + ["?"], path)
    return FullTokenizer(path)


def features_of(examples, tokenizer, length, stride, query=64, training=False):
    features = []
    convert_examples_to_features(examples, tokenizer, length, stride, query, training, features.append)
    return features


def golden_examples(golden, version, training, version_2):
    return read_squad_examples(golden / f"F_squad/{version}.json", training, version_2)


@pytest.mark.filterwarnings("ignore:.*skipped")
@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("split", ["train", "predict"])
@pytest.mark.parametrize("length", ["L64", "L384"])
def test_examples_and_windows_are_the_originals(golden, index, published, version, split, length):
    name = f"{version}_{split}_{length}_lower"
    settings = index["features"][name]
    training = settings["is_training"]
    examples = golden_examples(golden, version, training, settings["version_2_with_negative"])
    lines = (golden / f"F_squad/examples_{version}_{split}.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(examples) == len(lines)
    for example, line in zip(examples, map(json.loads, lines), strict=True):
        for key, value in line.items():
            assert getattr(example, key) == value, (example.qas_id, key)

    features = features_of(
        examples, published, settings["max_seq_length"], settings["doc_stride"], settings["max_query_length"], training
    )
    with gzip.open(golden / f"F_squad/features_{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        expected = [json.loads(line) for line in file]
    assert len(features) == len(expected)
    for feature, line in zip(features, expected, strict=True):
        n = line.pop("n_real")
        assert feature.input_mask == [1] * n + [0] * (settings["max_seq_length"] - n)
        assert len(feature.input_ids) == len(feature.segment_ids) == settings["max_seq_length"]
        for key, value in line.items():
            found = getattr(feature, key)
            if isinstance(found, dict):
                found = [list(pair) for pair in found.items()]
            if key in ("input_ids", "segment_ids"):
                assert not any(found[n:])
                found = found[:n]
            assert found == value, (feature.unique_id, key)


def golden_results(golden, name):
    arrays = np.load(golden / "F_squad" / name)
    rows = zip(arrays["unique_ids"].tolist(), arrays["start"], arrays["end"], strict=True)
    return [RawResult(*row) for row in rows]


def predictions_of(golden, index, published, name, folder, **options):
    entry = index["predictions"][name]
    settings = index["features"][entry["features"]]
    examples = read_squad_examples(golden / "F_squad" / entry["json"], False, settings["version_2_with_negative"])
    lengths = (settings[key] for key in ("max_seq_length", "doc_stride", "max_query_length"))
    features = features_of(examples, published, *lengths)
    return write_predictions(
        examples,
        features,
        golden_results(golden, entry["logits"]),
        entry["n_best_size"],
        entry["max_answer_length"],
        entry["do_lower_case"],
        *(folder / file for file in FILES),
        version_2_with_negative=entry["version_2_with_negative"],
        null_score_diff_threshold=entry["null_score_diff_threshold"],
        **options,
    )


def test_answers_are_the_originals_to_the_byte(golden, index, published, tmp_path):
    compared = 0
    for name, entry in index["predictions"].items():
        if "raises" in entry:
            continue
        folder = tmp_path / name
        predictions_of(golden, index, published, name, folder)
        for file in FILES:
            theirs = golden / "F_squad/pred" / name / file
            if theirs.exists():
                assert (folder / file).read_bytes() == theirs.read_bytes(), (name, file)
                compared += 1
            elif theirs.with_suffix(".json.gz").exists():
                assert (folder / file).read_bytes() == gzip.decompress(theirs.with_suffix(".json.gz").read_bytes())
                compared += 1
            else:
                assert not (folder / file).exists()
    assert compared > 20


def test_where_the_original_crashed_the_answer_is_none(golden, index, published, tmp_path):
    names = [name for name, entry in index["predictions"].items() if "raises" in entry]
    assert len(names) >= 3
    for name in names:
        found = predictions_of(golden, index, published, name, tmp_path)
        nothing = [key for key, odds in found.null_odds.items() if odds == NO_CANDIDATE]
        assert nothing and all(found.predictions[key] == "" for key in nothing)
        assert any(found.predictions.values())


def test_final_texts_are_the_originals(golden):
    for case in json.loads((golden / "F_squad/get_final_text_cases.json").read_text()):
        assert get_final_text(case["pred_text"], case["orig_text"], case["do_lower_case"]) == case["result"], case


def test_known_final_texts():
    for predicted, original, result in [
        ("cafe", "Café Noir", "Café"),
        ("1895", "(1895-1943).", "1895"),
        ("the end", '"The  End."', "The  End"),
        ("a b", "a \u200bb", "a \u200bb"),
    ]:
        assert get_final_text(predicted, original, True) == result


def alphabet(word="k"):
    place = string.ascii_lowercase.index(word)
    return SquadExample("q", "x y z", list(string.ascii_lowercase), word, place, place)


@pytest.mark.parametrize(
    "stride, windows, answers",
    [
        (4, [(0, 7), (4, 11), (8, 15), (12, 19), (16, 23), (20, 25)], [0, 11, 7, 0, 0, 0]),
        (8, [(0, 7), (8, 15), (16, 23), (24, 25)], [0, 7, 0, 0]),
        (20, [(0, 7), (8, 15), (16, 23), (24, 25)], [0, 7, 0, 0]),
    ],
)
def test_every_piece_is_in_a_window_and_once_with_most_context(tokenizer, stride, windows, answers):
    features = features_of([alphabet()], tokenizer, 14, stride, training=True)
    found = [(list(f.token_to_orig_map.values())[0], list(f.token_to_orig_map.values())[-1]) for f in features]
    assert found == windows
    assert [feature.start_position for feature in features] == answers
    assert [feature.end_position for feature in features] == answers
    most = [f.token_to_orig_map[place] for f in features for place, is_max in f.token_is_max_context.items() if is_max]
    assert sorted(most) == list(range(26))


def test_windows_of_the_specification():
    windows = cut_windows(10, 6, 3)
    flags = [[max_context(windows, 10)[w.start + i] == n for i in range(w.length)] for n, w in enumerate(windows)]
    assert ["".join("FT"[flag] for flag in row) for row in flags] == ["TTTTTF", "FFTTTF", "FFTT"]
    assert cut_windows(0, 6, 3) == []


def test_no_room_for_the_document_is_said_with_the_numbers(tokenizer):
    example = SquadExample("q7", "a b c d e f g h", list("abc"))
    with pytest.raises(ValueError, match=r"question q7: max_seq_length 8 - 8 pieces .* - 3 special tokens = -3"):
        features_of([example], tokenizer, 8, 4, 8)
    with pytest.raises(ValueError, match="doc_stride is 0"):
        features_of([example], tokenizer, 64, 0)


def test_an_answer_is_narrowed_to_its_pieces(published):
    example = SquadExample("q", "When?", ["John", "Smith", "(1895-1943)."], "1895", 2, 2)
    (feature,) = features_of([example], published, 64, 32, training=True)
    assert feature.tokens[feature.start_position : feature.end_position + 1] == ["1895"]


def one_question(tokenizer, **changes):
    example = SquadExample("q", "x ?", list("abc"), context="a b c", word_offsets=[0, 2, 4])
    features = features_of([example], tokenizer, 16, 8)
    scores = np.zeros((2, 16))
    return [example], features, scores, AnswerOptions(**changes)


def test_no_possible_span(tokenizer):
    examples, features, scores, options = one_question(tokenizer, n_best_size=2)
    scores[:, 0], scores[:, 1] = 5, 4  # [CLS] and the question
    result = [RawResult(features[0].unique_id, *scores)]
    found = predict_answers(examples, features, result, options)
    assert found.predictions == {"q": "empty"} and found.null_odds == {}
    assert found.nbest == {"q": [{"text": "empty", "probability": 1.0, "start_logit": 0.0, "end_logit": 0.0}]}
    by_option = predict_answers(examples, features, result, AnswerOptions(n_best_size=2, no_answer_text=""))
    assert by_option.predictions == {"q": ""}
    version_2 = predict_answers(examples, features, result, AnswerOptions(n_best_size=2, version_2_with_negative=True))
    assert version_2.predictions == {"q": ""} and version_2.null_odds == {"q": NO_CANDIDATE}
    assert version_2.nbest["q"] == [{"text": "", "probability": 1.0, "start_logit": 5.0, "end_logit": 5.0}]


def test_missing_results_are_counted(tokenizer):
    examples, features, _, options = one_question(tokenizer)
    with pytest.raises(ValueError, match="1 of 1 windows have no result, such as unique_id 1000000000"):
        predict_answers(examples, features, [], options)


@pytest.mark.parametrize("version_2, text", [(False, "empty"), (True, "")])
def test_an_empty_context(tokenizer, version_2, text):
    examples = [SquadExample("q", "x ?", [])]
    features = features_of(examples, tokenizer, 16, 8)
    assert features == []
    found = predict_answers(examples, features, [], AnswerOptions(version_2_with_negative=version_2))
    assert found.predictions == {"q": text} and len(found.nbest["q"]) == 1


@pytest.mark.parametrize("context", ["", " \n "])
def test_a_document_without_words_in_a_file(tokenizer, tmp_path, context):
    question = {"id": "q", "question": "x ?", "answers": [], "is_impossible": True}
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": [question]}]}]}))
    for training in (False, True):
        (example,) = read_squad_examples(path, training, version_2_with_negative=True)
        assert example.doc_tokens == [] and features_of([example], tokenizer, 16, 8) == []


def test_the_numbers_of_the_specification(tokenizer):
    """Scores of two ends in the first window, and a window of zeros that makes the least likely "no answer"."""
    example = SquadExample("q", "x", list("abcdefgh"))
    features = features_of([example], tokenizer, 9, 3)
    start, end = np.zeros((2, len(features), 9))
    start[0, [3, 4, 0]] = 5, 2, 1
    end[0, [4, 5, 0]] = 4, 3, 1
    results = [RawResult(f.unique_id, start[i], end[i]) for i, f in enumerate(features)]
    options = {"n_best_size": 3, "max_answer_length": 5}
    found = predict_answers([example], features, results, AnswerOptions(**options))
    assert [(a["text"], round(a["probability"], 5)) for a in found.nbest["q"]] == [
        ("a b", 0.70538),
        ("a b c", 0.25950),
        ("b", 0.03512),
    ]
    for threshold, text in ((0.0, "a b"), (-8.5, "a b"), (-9.0, "a b"), (-9.5, "")):
        more = {"version_2_with_negative": True, "null_score_diff_threshold": threshold}
        found = predict_answers([example], features, results, AnswerOptions(**options, **more))
        assert found.predictions["q"] == text and found.null_odds["q"] == -9.0
        assert found.nbest["q"][-1]["text"] == "" and len(found.nbest["q"]) == 4


def test_text_as_it_stands_in_the_document(tmp_path, published):
    context = "Im  Café\u00a0Größe (한국어)\nwar  ein\u202fMann,  İzmir."
    questions = [{"id": "q", "question": "Was?", "answers": []}]
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": questions}]}]}))
    examples = read_squad_examples(path, False)
    features = features_of(examples, published, 64, 32)
    (feature,) = features

    def answer(first, last, **options):
        scores = np.zeros((2, 64))
        scores[0, feature.tokens.index(first)] = scores[1, feature.tokens.index(last)] = 9
        return predict_answers(
            examples, features, [RawResult(feature.unique_id, *scores)], AnswerOptions(**options)
        ).predictions["q"]

    for piece, (start, end) in zip(feature.tokens[4:], feature.token_offsets.values(), strict=False):
        assert piece == "[SEP]" or end > start
    assert answer("cafe", "cafe", text_as_in_document=True) == "Café"
    assert answer("im", "cafe", text_as_in_document=True) == "Im  Café"
    assert answer("im", "cafe") == "Im Café\u00a0Größe"  # the original: one blank, and here it cannot align
    hangul = [piece for piece in feature.tokens if piece.strip("#") and "\u1100" <= piece.strip("#")[0] <= "\u11ff"]
    assert answer(hangul[0], hangul[-1], text_as_in_document=True) == "한국어"
    assert answer(hangul[0], hangul[-1]) == "(한국어)"  # no alignment: the whole word


def squad(tmp_path, *questions, context="a b c"):
    path = tmp_path / "squad.json"
    qas = [{"question": "?", **question} for question in questions]
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [{"context": context, "qas": qas}]}]}))
    return path


def test_bad_files(tmp_path):
    def read(training, version_2, *questions):
        return read_squad_examples(squad(tmp_path, *questions), training, version_2)

    impossible = {"id": "q1", "answers": [], "is_impossible": True}
    with pytest.raises(ValueError, match="question q1 has no answer .is_impossible.: it needs --version_2_with"):
        read(True, False, impossible)
    two = {"id": "q2", "answers": [{"text": "a", "answer_start": 0}, {"text": "b", "answer_start": 2}]}
    with pytest.raises(
        ValueError, match="question q2 has 2 answers; for training exactly 1 is expected; --first_answer"
    ):
        read(True, False, two)
    (example,) = read_squad_examples(squad(tmp_path, two), True, first_answer=True)
    assert (example.orig_answer_text, example.start_position) == ("a", 0)
    with pytest.raises(ValueError, match="question q2 does not say is_impossible.*leave out"):
        read(True, True, two)
    with pytest.raises(ValueError, match="two questions have the id 'q1'"):
        read(False, False, impossible, impossible)
    with pytest.warns(UserWarning, match="squad.json: 1 questions have no answer; without --version_2"):
        assert len(read(False, False, impossible)) == 1
    (example,) = read(True, True, impossible)
    assert (example.start_position, example.end_position, example.is_impossible) == (-1, -1, True)
    wrong = [
        {"id": "in another place", "answers": [{"text": "b", "answer_start": 0}]},
        {"id": "beyond the end", "answers": [{"text": "b", "answer_start": 90}]},
        {"id": "before the start", "answers": [{"text": "b", "answer_start": -1}]},
    ]
    with pytest.warns(
        UserWarning, match=r"skipped 3 questions .* \(in another place, beyond the end, before the start\)"
    ):
        assert len(read(True, False, *wrong, {"id": "q", "answers": [{"text": "b", "answer_start": 2}]})) == 1
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="none of its 3 questions can be trained on"):
        read(True, False, *wrong)
    with pytest.raises(ValueError, match="question q: its answer has no answer_start"):
        read(True, False, {"id": "q", "answers": [{"text": "b"}]})


@pytest.mark.parametrize("version_2", [False, True])
def test_a_question_without_an_answer_is_told_the_way_out(tmp_path, version_2):
    for question in ({"id": "q", "answers": []}, {"id": "q"}):
        with pytest.raises(ValueError, match='q has 0 answers.*"is_impossible": true and give --version_2_with_neg'):
            read_squad_examples(squad(tmp_path, question), True, version_2)
    one = {"id": "q", "answers": [{"text": "b", "answer_start": 2}]}
    if version_2:
        mixed = squad(tmp_path, {"id": "r", "answers": [], "is_impossible": True}, one)
        with pytest.raises(ValueError, match='question q does not say is_impossible: add "is_impossible": false'):
            read_squad_examples(mixed, True, version_2)


def test_odd_questions_are_counted(tmp_path):
    answers = [{"text": "b", "answer_start": 2}]
    path = squad(tmp_path, {"id": "q", "answers": answers, "is_impossible": True})
    with pytest.warns(UserWarning, match=r"1 questions are said to be impossible, and have answers \(q\)"):
        assert read_squad_examples(path, True, True)[0].is_impossible
    with pytest.warns(UserWarning, match=r"1 questions are about an empty document \(7\)"):
        (example,) = read_squad_examples(squad(tmp_path, {"id": 7, "answers": []}, context=" \n"), False)
    assert example.qas_id == "7"


def paragraph(**changes):
    return {"data": [{"paragraphs": [{"context": "a b", "qas": [{"id": "q", "question": "?"} | changes]}]}]}


@pytest.mark.parametrize(
    "content, said",
    [
        ("[1]", "not laid out as SQuAD: the file is a list, expected an object; expected data"),
        ('{"data": {}}', "not laid out as SQuAD: data is {}, expected a list"),
        ('{"data": [{}]}', r"data\[0\] has no 'paragraphs', found nothing"),
        ('{"data": [[]]}', r"data\[0\] is a list, expected an object"),
        ('{"version": "1.1", "paragraphs": []}', "the file has no 'data', found 'version', 'paragraphs'"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', r"data\[0\].paragraphs\[0\] has no 'context', found 'qas'"),
        ('{"data": []}', "bad.json has no questions"),
        (paragraph(question=None), r"data\[0\].paragraphs\[0\].qas\[0\].question is None, expected a text"),
        (paragraph(id=1.5), r"qas\[0\].id is 1.5, expected a text"),
        (paragraph(answers={"text": ["a"], "answer_start": [0]}), r"qas\[0\].answers is .*, expected a list"),
        (paragraph(answers=[{"answer_start": 0}]), r"qas\[0\].answers\[0\] has no 'text', found 'answer_start'"),
        (paragraph(answers=[{"text": "a", "answer_start": "0"}]), r"answer_start is '0', expected a whole number"),
        (paragraph(answers=[{"text": "a", "answer_start": True}]), r"answer_start is True, expected a whole number"),
        (paragraph(is_impossible="false"), "is_impossible is 'false', expected true or false"),
        ("[" * 200_000, "bad.json: lists or objects are nested too deeply"),
    ],
)
def test_files_that_are_laid_out_otherwise(tmp_path, content, said):
    path = tmp_path / "bad.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    for read in (lambda path: read_squad_examples(path, True), read_answers):
        with pytest.raises(ValueError, match=said) as error:
            read(path)
        assert str(error.value).startswith(str(path))


def test_records_hold_what_the_original_writes(tokenizer, tmp_path):
    for training in (True, False):
        writer = FeatureWriter(tmp_path / "windows", training)
        features = features_of([alphabet()], tokenizer, 14, 8, training=training)
        for feature in features:
            writer.process_feature(feature)
        writer.close()
        records = list(map(decode_example, read_records(tmp_path / "windows")))
        assert len(records) == writer.num_features == len(features)
        keys = {"unique_ids", "input_ids", "input_mask", "segment_ids"}
        assert set(records[0]) == keys | ({"start_positions", "end_positions", "is_impossible"} if training else set())
        assert records[1]["unique_ids"] == [1000000001] and records[1]["input_ids"] == features[1].input_ids
        if training:
            assert records[1]["start_positions"] == [7]


def test_official_scores(tmp_path):
    assert normalize_answer("The  (first) man's an End.") == "first mans end"
    gold = {"q1": ["Denver Broncos", "the Broncos"], "q2": [], "q3": ["in 1895"], "q4": []}
    predictions = {"q1": "The Broncos!", "q2": "", "q3": "1895", "q4": "something"}
    odds = {"q1": -5.0, "q2": 3.0, "q3": -1.0, "q4": -3.0}
    figures = score_predictions(gold, predictions, odds)
    assert (figures["exact"], figures["total"]) == (50.0, 4)
    assert figures["f1"] == pytest.approx(100 * (1 + 1 + 2 / 3 + 0) / 4)
    assert (figures["HasAns_exact"], figures["NoAns_exact"]) == (50.0, 50.0)
    assert figures["HasAns_f1"] == pytest.approx(100 * (1 + 2 / 3) / 2)
    # In order of the odds: q1 (+1), q4 (-1), q3 (+0 exact, +2/3 F1), q2 (0), from 2 questions without an answer.
    assert (figures["best_exact"], figures["best_exact_thresh"]) == (75.0, -5.0)
    assert (figures["best_f1"], figures["best_f1_thresh"]) == (75.0, -5.0)
    with pytest.raises(ValueError, match="1 of 4 questions have no prediction, such as q4"):
        score_predictions(gold, {key: "" for key in ("q1", "q2", "q3")})
    path = squad(tmp_path, {"id": "q", "answers": [{"text": "b", "answer_start": 2}]}, {"id": "r"})
    assert read_answers(path) == {"q": ["b"], "r": []}
    assert read_answers(squad(tmp_path, {"id": "q"})) == {}
