"""Question answering over documents (SQuAD 1.1 and 2.0): from JSON to windows of pieces, as ``run_squad.py`` does.

Rajpurkar et al. 2016 and 2018; Devlin et al. 2018, sections 4.2 and 4.3.
"""

import dataclasses
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tf_bert.data.finetuning.squad_files import read_questions
from tf_bert.data.finetuning.windows import cut_windows, max_context
from tf_bert.data.text.tables import warn_of, warn_of_skipped
from tf_bert.data.tfrecord.files import RecordWriter, encode_example
from tf_bert.progress import track
from tf_bert.tokenization.full import FullTokenizer

FIRST_UNIQUE_ID = 1_000_000_000
_BLANKS = " \t\r\n\u202f"  # the original's; others, such as a no-break space, stay inside words


@dataclasses.dataclass
class SquadExample:
    """A question about a document.

    Args:
        qas_id: the question's id.
        question_text: the question.
        doc_tokens: the words of the document, split at blanks.
        orig_answer_text: the answer as annotated, for training.
        start_position: the word in which the answer begins; -1 where there is none.
        end_position: the word in which it ends.
        is_impossible: whether the document does not hold an answer.
        context: the document.
        word_offsets: where each word begins in it.
    """

    qas_id: str
    question_text: str
    doc_tokens: list[str]
    orig_answer_text: str | None = None
    start_position: int | None = None
    end_position: int | None = None
    is_impossible: bool = False
    context: str | None = None
    word_offsets: Sequence[int] = ()


@dataclasses.dataclass
class InputFeatures:
    """A window of a document behind its question: ``[CLS] question [SEP] window [SEP]``, padded to S.

    ``token_to_orig_map`` has the word of each piece of the window, ``token_is_max_context`` whether no other window
    shows more around the piece, and ``token_offsets`` where it stands in the document, all by place in ``tokens``.
    Positions are 0 ([CLS]) where the window does not hold the whole answer.
    """

    unique_id: int
    example_index: int
    doc_span_index: int
    tokens: list[str]
    token_to_orig_map: dict[int, int]
    token_is_max_context: dict[int, bool]
    input_ids: list[int]
    input_mask: list[int]
    segment_ids: list[int]
    start_position: int | None = None
    end_position: int | None = None
    is_impossible: bool = False
    token_offsets: dict[int, tuple[int, int]] = dataclasses.field(default_factory=dict)


def read_squad_examples(
    input_file: str | os.PathLike,
    is_training: bool,
    version_2_with_negative: bool = False,
    first_answer: bool = False,
) -> list[SquadExample]:
    """Reads the questions of a SQuAD file.

    Args:
        input_file: ``train-v1.1.json``, ``dev-v2.0.json`` or one laid out like these.
        is_training: whether answers are read. A question whose annotated answer is not where it is said to be is left
            out; a warning says how many and which.
        version_2_with_negative: whether questions without an answer are expected. Where they are not, a warning counts
            those to predict.
        first_answer: whether to train on the first of several answers, as development sets have them. The original
            takes no such file.

    Raises:
        ValueError: the file is not one; an id comes twice; in training, a question has not exactly one answer, or the
            file and ``version_2_with_negative`` do not go together.

    Source: ``read_squad_examples`` of google-research/bert, ``run_squad.py``.
    """
    path = os.fspath(input_file)
    examples, misplaced, unanswerable, contradicting, empty = [], [], [], [], []
    words_of: dict[str, tuple] = {}
    questions = read_questions(path)
    says_impossible = any("is_impossible" in question for _, question in questions)
    for context, question in questions:
        if context not in words_of:
            words_of = {context: split_words(context)}  # questions about one document follow one another
        doc_tokens, offsets, char_to_word = words_of[context]
        example = SquadExample(question["id"], question["question"], doc_tokens, context=context, word_offsets=offsets)
        if first_answer:
            question = question | {"answers": question.get("answers", [])[:1]}
        if question.get("is_impossible"):
            (contradicting if question.get("answers") else unanswerable).append(example.qas_id)
        if not doc_tokens:
            empty.append(example.qas_id)
        if not is_training:
            examples.append(example)
            continue
        _check_answers(question, path, version_2_with_negative, says_impossible)
        if not _add_answer(example, question, char_to_word):
            misplaced.append(example.qas_id)
        else:
            examples.append(example)
    warn_of_skipped(path, "questions whose answer is not found at its place in the context", misplaced)
    if empty:
        warn_of(path, f"{len(empty)} questions are about an empty document", empty)
    if is_training and contradicting:
        warn_of(path, f"{len(contradicting)} questions are said to be impossible, and have answers", contradicting)
    if (unanswerable or contradicting) and not version_2_with_negative:
        text = f"{len(unanswerable + contradicting)} questions have no answer; without --version_2_with_negative each "
        warnings.warn(f"{path}: {text}is given one", stacklevel=2)
    if not examples:
        raise ValueError(f"{path}: none of its {len(questions)} questions can be trained on")
    return examples


def split_words(text: str) -> tuple[list[str], list[int], list[int]]:
    """Splits a document at blanks: its words, where each begins, and for each character the word it is in or after.

    Example:
        >>> split_words("No, Sir.")
        (['No,', 'Sir.'], [0, 4], [0, 0, 0, 0, 1, 1, 1, 1])
    """
    starts, char_to_word = [], []
    in_word = False
    for place, char in enumerate(text):
        blank = char in _BLANKS
        if not blank and not in_word:
            starts.append(place)
        in_word = not blank
        char_to_word.append(len(starts) - 1)
    ends = [*starts[1:], len(text)][: len(starts)]  # none where the text has no word
    return [text[start:end].rstrip(_BLANKS) for start, end in zip(starts, ends, strict=True)], starts, char_to_word


def _check_answers(question: dict[str, Any], path: str, version_2: bool, says_impossible: bool) -> None:
    """Stops where a question cannot be trained on: it has to have one answer, or to be said to have none."""
    where = f"{path}: question {question['id']}"
    answers, impossible = question.get("answers", []), question.get("is_impossible")
    if impossible:
        if not version_2:
            raise ValueError(f"{where} has no answer (is_impossible): it needs --version_2_with_negative")
    elif not answers:
        raise ValueError(
            f'{where} has 0 answers, expected 1; for a question without an answer write "is_impossible": true and '
            "give --version_2_with_negative, else leave it out of the file"
        )
    elif impossible is None and version_2:
        hint = 'add "is_impossible": false' if says_impossible else "the file is of version 1; leave out the v2 flag"
        raise ValueError(f"{where} does not say is_impossible: {hint}")
    elif len(answers) > 1:
        raise ValueError(
            f"{where} has {len(answers)} answers; for training exactly 1 is expected; --first_answer trains on the "
            "first of several"
        )
    elif "answer_start" not in answers[0]:
        raise ValueError(f"{where}: its answer has no answer_start, the place of its first character in the context")


def _add_answer(example: SquadExample, question: dict[str, Any], char_to_word: list[int]) -> bool:
    """Adds the annotated answer; returns whether it stands where it is said to stand."""
    example.is_impossible = question.get("is_impossible", False)
    if example.is_impossible:
        example.start_position = example.end_position = -1
        example.orig_answer_text = ""
        return True
    answer = question["answers"][0]
    text, offset = answer["text"], answer["answer_start"]
    if not 0 <= offset <= offset + len(text) - 1 < len(char_to_word):
        return False
    example.orig_answer_text = text
    example.start_position, example.end_position = char_to_word[offset], char_to_word[offset + len(text) - 1]
    found = " ".join(example.doc_tokens[example.start_position : example.end_position + 1])
    return " ".join(text.split()) in found


def convert_examples_to_features(
    examples: Iterable[SquadExample],
    tokenizer: FullTokenizer,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
    is_training: bool,
    output_fn: Callable[[InputFeatures], None],
) -> None:
    """Cuts documents into windows and hands them to ``output_fn`` one by one.

    Args:
        examples: from `read_squad_examples`.
        tokenizer: with the vocabulary of the model.
        max_seq_length: S.
        doc_stride: pieces from the start of one window to the start of the next; a window that is shorter is followed
            without a gap.
        max_query_length: pieces of a question that are kept.
        is_training: whether positions of answers are wanted.
        output_fn: called with each window.

    Raises:
        ValueError: a question leaves no room for the document, or ``doc_stride`` is below 1.

    Source: ``convert_examples_to_features`` of google-research/bert, ``run_squad.py``.
    """
    if doc_stride < 1:
        raise ValueError(f"doc_stride is {doc_stride}; it must be at least 1, or the windows never move on")
    unique_id = FIRST_UNIQUE_ID
    for example_index, example in enumerate(track(examples, "cutting documents", unit="questions")):
        for feature in _windows_of(example, tokenizer, max_seq_length, doc_stride, max_query_length, is_training):
            output_fn(dataclasses.replace(feature, unique_id=unique_id, example_index=example_index))
            unique_id += 1


def _windows_of(
    example: SquadExample,
    tokenizer: FullTokenizer,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
    is_training: bool,
) -> Iterator[InputFeatures]:
    query = tokenizer.tokenize(example.question_text)[:max_query_length]
    room = max_seq_length - len(query) - 3
    if room < 1:
        raise ValueError(
            f"question {example.qas_id}: max_seq_length {max_seq_length} - {len(query)} pieces of the question - 3 "
            f"special tokens = {room}: there is no room for the document; raise max_seq_length or lower "
            f"max_query_length ({max_query_length})"
        )
    pieces, words, offsets, first_piece = [], [], [], []
    for number, word in enumerate(example.doc_tokens):
        first_piece.append(len(pieces))
        base = example.word_offsets[number] if example.word_offsets else 0
        for piece, (start, end) in zip(*tokenizer.tokenize_with_offsets(word), strict=True):
            pieces.append(piece)
            words.append(number)
            offsets.append((base + start, base + end))
    answer = _answer_pieces(example, tokenizer, pieces, first_piece) if is_training else None
    windows = cut_windows(len(pieces), room, doc_stride)
    best_window = max_context(windows, len(pieces))

    first = ["[CLS]", *query, "[SEP]"]
    for number, window in enumerate(windows):
        span = range(window.start, window.start + window.length)
        tokens = [*first, *pieces[window.start : span.stop], "[SEP]"]
        shift = len(first) - window.start
        ids = tokenizer.convert_tokens_to_ids(tokens)
        padding = [0] * (max_seq_length - len(ids))
        start_position = end_position = None
        if answer is not None:
            inside = window.start <= answer[0] and answer[1] < span.stop and not example.is_impossible
            start_position, end_position = (answer[0] + shift, answer[1] + shift) if inside else (0, 0)
        yield InputFeatures(
            unique_id=0,
            example_index=0,
            doc_span_index=number,
            tokens=tokens,
            token_to_orig_map={i + shift: words[i] for i in span},
            token_is_max_context={i + shift: best_window[i] == number for i in span},
            input_ids=ids + [tokenizer.vocab.get("[PAD]", 0)] * len(padding),
            input_mask=[1] * len(ids) + padding,
            segment_ids=[0] * len(first) + [1] * (window.length + 1) + padding,
            start_position=start_position,
            end_position=end_position,
            is_impossible=example.is_impossible,
            token_offsets={i + shift: offsets[i] for i in span},
        )


def _answer_pieces(
    example: SquadExample, tokenizer: FullTokenizer, pieces: list[str], first_piece: list[int]
) -> tuple[int, int]:
    """The first and the last piece of the answer, without what else its words hold: 1895 of (1895-1943)."""
    if example.is_impossible:
        return -1, -1
    start = first_piece[example.start_position]
    end = [*first_piece, len(pieces)][example.end_position + 1] - 1
    answer = tokenizer.tokenize(example.orig_answer_text)
    for narrower in range(start, end + 2 - len(answer)):
        if answer and pieces[narrower : narrower + len(answer)] == answer:
            return narrower, narrower + len(answer) - 1
    return start, end


class FeatureWriter:
    """Writes windows to a TFRecord file as the original does; it appears when it is closed.

    Args:
        filename: the file.
        is_training: whether positions are written too.
    """

    def __init__(self, filename: str | os.PathLike, is_training: bool):
        self.filename, self.is_training = filename, is_training
        self.num_features = 0
        self._writer = RecordWriter(filename)

    def process_feature(self, feature: InputFeatures) -> None:
        """Appends a window."""
        self.num_features += 1
        values = {
            "unique_ids": [feature.unique_id],
            "input_ids": feature.input_ids,
            "input_mask": feature.input_mask,
            "segment_ids": feature.segment_ids,
        }
        if self.is_training:
            values["start_positions"] = [feature.start_position]
            values["end_positions"] = [feature.end_position]
            values["is_impossible"] = [int(feature.is_impossible)]
        self._writer.write(encode_example(values))

    def close(self) -> None:
        """Finishes the file."""
        self._writer.close()


def write_features(features: Iterable[InputFeatures], filename: str | os.PathLike, is_training: bool) -> None:
    """Writes windows with a `FeatureWriter`."""
    writer = FeatureWriter(filename, is_training)
    for feature in features:
        writer.process_feature(feature)
    writer.close()
