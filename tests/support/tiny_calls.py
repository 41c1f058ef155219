"""A valid call of each command, as small as it can be, and the files that it needs."""

import contextlib
import dataclasses
import gc
import importlib
import io
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

VOCABULARY = [
    *"[PAD] [UNK] [CLS] [SEP] [MASK] the a it is was bank river money good bad in on sun rain ##s ##ing . ,".split()
]
SENTENCES = ["The bank is good .", "The river was bad .", "It was the sun .", "Rain is in the river .", "The money is"]
SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


@dataclasses.dataclass(frozen=True)
class Call:
    """One call.

    Args:
        command: its name.
        flags: arguments; files are named relative to the folder of `prepare`.
        files: the files that are read, those that a mutation may change.
        outputs: the files that are written, and must be sound where the status is 0.
        stdin: what comes on standard input.
        needs: more that is read, which is not changed.
        optional: files without which the call works too.
    """

    command: str
    flags: Sequence[str]
    files: Sequence[str] = ()
    outputs: Sequence[str] = ()
    stdin: bytes = b""
    needs: Sequence[str] = ()
    optional: Sequence[str] = ()


# Commands that need neither TensorFlow nor a model.
LIGHT = [
    *["prepare_corpus", "train_vocab", "train_bpe", "create_pretraining_data", "create_language_modeling_data"],
    *["create_translation_data", "score_translation"],
]
BERT = ["vocab.txt", "bert_config.json", "bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"]
BERT_FILES = [f"bert/{name}" for name in BERT]
GPT = [f"gpt/{name}" for name in ("config.json", "model.safetensors", "encoder.json", "vocab.bpe")]
MODEL = ["--vocab_file=bert/vocab.txt", "--bert_config_file=bert/bert_config.json"]
INIT = [*MODEL, "--init_checkpoint=bert/bert_model.ckpt"]
STEP = ["--train_batch_size=2", "--num_train_epochs=1", "--max_seq_length=12", "--output_dir=out"]
CALLS = [
    Call("prepare_corpus", ["--input_file=corpus.txt,more.jsonl", "--output_file=out.txt", "--heldout_file=held.txt",
         "--heldout_fraction=0.4"], ["corpus.txt", "more.jsonl"], ["out.txt"]),
    Call("train_vocab", ["--input_file=corpus.txt", "--output_file=out.txt", "--vocab_size=90", "--num_unused=2"],
         ["corpus.txt"], ["out.txt"]),
    Call("train_bpe", ["--input_file=corpus.txt", "--output_dir=out", "--vocab_size=262"],
         ["corpus.txt"], ["out/encoder.json", "out/vocab.bpe"]),
    Call("create_pretraining_data", ["--input_file=corpus.txt", "--output_file=out.tfrecord",
         "--vocab_file=bert/vocab.txt", "--max_seq_length=16", "--max_predictions_per_seq=3", "--dupe_factor=2"],
         ["corpus.txt", "bert/vocab.txt"], ["out.tfrecord", "out.tfrecord.json"]),
    Call("create_pretraining_data", ["--input_file=corpus.txt", "--output_file=out", "--vocab_file=bert/vocab.txt",
         "--max_seq_length=16", "--max_predictions_per_seq=3", "--dupe_factor=2", "--sharded", "--num_shards=1",
         "--masking=dynamic"], ["corpus.txt", "bert/vocab.txt"], ["out-00000-of-00001"]),
    Call("create_language_modeling_data", ["--input_file=corpus.txt", "--output_file=out.tfrecord", "--vocab_dir=gpt",
         "--block_size=8"], ["corpus.txt", "gpt/encoder.json", "gpt/vocab.bpe"], ["out.tfrecord"]),
    Call("create_translation_data", ["--source_file=source.txt", "--target_file=target.txt", "--output_dir=out",
         "--subwords=wordpiece", "--vocab_size=100"], ["source.txt", "target.txt"],
         ["out/vocab.txt", "out/train-00000-of-00001.tfrecord"]),
    Call("score_translation", ["--hypothesis_file=source.txt", "--reference_file=target.txt"],
         ["source.txt", "target.txt"]),
    Call("resize_vocab", ["bert", "out", "--add=foo,bar"], BERT_FILES, ["out/vocab.txt", "out/bert_config.json"]),
    Call("checkpoints", ["show", "bert"], BERT_FILES, optional=BERT_FILES[:1]),
    Call("convert", ["bert", "out", "--format=huggingface"], BERT_FILES, ["out/config.json"], optional=BERT_FILES[:1]),
    Call("fill_mask", ["--checkpoint=bert", "--text=the [MASK] is good"], BERT_FILES),
    Call("extract_features", ["--input_file=lines.txt", "--output_file=out.jsonl", *INIT, "--layers=-1",
         "--max_seq_length=12"], ["lines.txt", *BERT_FILES], ["out.jsonl"]),
    Call("attention", ["--checkpoint=bert", "--text=the bank", "--arrays_file=out.npz"], BERT_FILES, ["out.npz"]),
    Call("senses", ["--checkpoint=bert", "--input_file=senses.tsv"], ["senses.tsv", *BERT_FILES]),
    Call("run_pretraining", ["--input_file=pre.tfrecord", "--bert_config_file=bert/bert_config.json",
         "--output_dir=out", "--max_seq_length=16", "--max_predictions_per_seq=3", "--do_train", "--do_eval",
         "--train_batch_size=2", "--eval_batch_size=2", "--num_train_steps=1", "--num_warmup_steps=0",
         "--max_eval_steps=1", "--init_checkpoint=bert/bert_model.ckpt"],
         ["pre.tfrecord", "pre.tfrecord.json", *BERT_FILES[1:]], ["out/eval_results.txt"], needs=["bert"],
         optional=["pre.tfrecord.json"]),
    Call("run_classifier", ["--task_name=csv", "--train_file=train.csv", "--dev_file=train.csv", *STEP, *INIT,
         "--test_file=test.csv", "--do_train", "--do_eval", "--do_predict"],
         ["train.csv", "test.csv", *BERT_FILES], ["out/eval_results.txt", "out/test_results.tsv"]),
    Call("run_classifier", ["--task_name=mrpc", "--data_dir=glue", *STEP, *INIT, "--do_train"],
         ["glue/train.tsv", *BERT_FILES], ["out/label_list.json"]),
    Call("run_classifier", ["--task_name=jsonl", "--kind=choice", "--choice_columns=choices", *STEP, *INIT,
         "--train_file=choice.jsonl", "--dev_file=choice.jsonl", "--do_train", "--do_eval"],
         ["choice.jsonl", *BERT_FILES], ["out/eval_results.txt"]),
    Call("run_classifier_with_tfhub", ["--bert_hub_module_handle=hub", "--task_name=csv", "--train_file=train.csv",
         *STEP, "--do_train"],
         ["train.csv", "hub/saved_model.pb", "hub/variables/variables.index", "hub/assets/vocab.txt"],
         ["out/label_list.json"], needs=["hub"]),
    Call("run_ner", ["--train_file=train.conll", "--dev_file=train.conll", "--test_file=test.conll", *STEP, *INIT,
         "--do_train", "--do_eval", "--do_predict"], ["train.conll", "test.conll", *BERT_FILES],
         ["out/eval_results.txt", "out/test_predictions.conll"]),
    Call("run_squad", ["--train_file=squad.json", "--predict_file=squad.json", "--max_query_length=4", "--doc_stride=2",
         *STEP, *INIT, "--do_train", "--do_predict"], ["squad.json", *BERT_FILES],
         ["out/eval_results.txt", "out/predictions.json"]),
    Call("predict", ["classifier"], ["classifier/label_list.json", *(f"classifier/{name}" for name in BERT)],
         stdin=b"the bank\nit was bad\n"),
    Call("export", ["classifier", "out"], ["classifier/label_list.json", *(f"classifier/{name}" for name in BERT)],
         ["out/saved_model.pb"]),
    Call("run_language_modeling", ["--config_file=gpt_config.json", "--input_file=lm.tfrecord", "--output_dir=out",
         "--do_train", "--do_eval", "--train_batch_size=2", "--eval_batch_size=2", "--num_train_steps=1",
         "--num_warmup_steps=0", "--max_eval_steps=1", "--eval_input_file=lm.tfrecord"],
         ["lm.tfrecord", "lm.tfrecord.json", "gpt_config.json"], ["out/eval_results.txt"], needs=["gpt"],
         optional=["lm.tfrecord.json"]),
    Call("generate", ["--checkpoint=gpt", "--max_length=4"], GPT,
         stdin=b"low\nthe bank\n"),
    Call("run_gpt", ["--task=classification", "--train_file=train.csv", "--dev_file=train.csv", "--init_checkpoint=gpt",
         *STEP, "--do_train", "--do_eval"], ["train.csv", *GPT],
         ["out/eval_results.txt"]),
    Call("run_gpt", ["--task=answers", "--format=jsonl", "--train_file=answers.jsonl", "--test_file=answers.jsonl",
         "--init_checkpoint=gpt", *STEP, "--max_seq_length=16", "--max_answer_length=3", "--do_train", "--do_predict"],
         ["answers.jsonl"], ["out/test_results.jsonl"], needs=["gpt"]),
    Call("train_translation", ["--model=transformer", "--data_dir=translation", "--output_dir=out", "--hidden_size=8",
         "--num_hidden_layers=1", "--num_attention_heads=2", "--intermediate_size=16", "--num_train_steps=1",
         "--num_warmup_steps=1", "--batch_tokens=64"],
         [f"translation/{name}" for name in ("vocab.txt", "train-00000-of-00001.tfrecord",
          "train-00000-of-00001.tfrecord.json")], ["out/training.jsonl"], needs=["translation"]),
    Call("translate", ["--checkpoint=translator", "--beam_size=1", "--max_length=4", "--input_file=lines.txt",
         "--output_file=out.txt"],
         ["lines.txt", *(f"translator/{name}" for name in ("vocab.txt", "model.ckpt.index", "config.json"))],
         ["out.txt"], needs=["translator"]),
    Call("pretrain_demo", ["--corpus=corpus.txt", "--short", "--output_dir=out"], ["corpus.txt"]),
]  # fmt: skip


def prepare(folder: Path) -> None:
    """Writes all files that the calls read."""
    write_texts(folder)
    write_models(folder)
    with contextlib.chdir(folder):
        for command, name in (
            ("create_pretraining_data", "pre"),
            ("create_language_modeling_data", "lm"),
            ("create_translation_data", "translation"),
        ):
            _run_first(command)
            for path in Path().glob("out*"):
                path.rename(str(path).replace("out", name))
        _run_first("train_translation")
        Path("out/export").rename("translator")
        shutil.rmtree("out")
        _run_first("run_classifier")
        write_classifier(Path("out"), Path("classifier"))
        shutil.rmtree("out")


def _run_first(command: str) -> None:
    result = run_call(next(call for call in CALLS if call.command == command))
    assert result.status == 0, f"{command}: {result}"


def write_texts(folder: Path) -> None:
    """Writes the files that need no TensorFlow: those that people write, and vocabularies."""
    from tf_bert.tokenization import save_vocab
    from tf_bert.tokenization.byte_pair_training import train_byte_pairs

    save_vocab(VOCABULARY, folder / "bert" / "vocab.txt")
    train_byte_pairs(SENTENCES, 262).save(folder / "gpt")
    documents = ["\n".join(SENTENCES[i:] + SENTENCES[:i]) for i in range(5)]
    rows = [(text, ("good", "bad")[i % 2]) for i, text in enumerate(SENTENCES)]
    tags = [("The", "O"), ("bank", "B-place"), ("is", "O"), ("good", "O")]
    questions = [
        {"id": f"q{i}", "question": "what is it", "answers": [{"text": "bank", "answer_start": 4}]} for i in range(2)
    ]
    squad = {"data": [{"title": "t", "paragraphs": [{"context": "The bank is good .", "qas": questions}]}]}
    choices = [{"text": text, "choices": ["good", "bad", "sun"], "label": i % 3} for i, text in enumerate(SENTENCES)]
    files = {
        "corpus.txt": "\n\n".join(documents) + "\n",
        "more.jsonl": "".join(json.dumps({"text": ". ".join(SENTENCES)}) + "\n" for _ in range(2)),
        "lines.txt": "\n".join(SENTENCES[:3]) + "\n",
        "source.txt": "\n".join(SENTENCES * 2) + "\n",
        "target.txt": "\n".join(sentence.upper() for sentence in SENTENCES * 2) + "\n",
        "train.csv": "text,label\n" + "".join(f"{text},{label}\n" for text, label in rows),
        "test.csv": "text\n" + "".join(f"{text}\n" for text, _ in rows),
        "choice.jsonl": "".join(json.dumps(row) + "\n" for row in choices),
        "answers.jsonl": "".join(json.dumps({"text": text, "answer": label}) + "\n" for text, label in rows),
        "train.conll": "\n\n".join("\n".join(f"{word}\t{tag}" for word, tag in tags) for _ in range(4)) + "\n",
        "test.conll": "The\tO\nriver\tO\n\nrain\tO\n",
        "squad.json": json.dumps(squad),
        "senses.tsv": "".join(f"bank\t{sense}\t{text}\n" for sense in "ab" for text in ("the bank is", "a bank was")),
        "glue/train.tsv": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
        + "".join(f"{i % 2}\t{i}\t{i}\t{text}\t{text}\n" for i, (text, _) in enumerate(rows)),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def write_models(folder: Path) -> None:
    """Writes a BERT, a GPT and a module of TensorFlow Hub with random weights."""
    from tests.models.test_hub import save_module
    from tf_bert import Bert, BertConfig, BertForPreTraining, FullTokenizer
    from tf_bert.configs import GPTConfig
    from tf_bert.models.gpt import GPT

    shutil.copy(folder / "bert" / "vocab.txt", folder)
    config = BertConfig(len(VOCABULARY), **SIZES, max_position_embeddings=16, type_vocab_size=2, initializer_range=0.5)
    BertForPreTraining(config).save_checkpoint(folder / "bert", tokenizer=FullTokenizer(folder / "vocab.txt"))
    encoder = Bert(dataclasses.replace(config, num_hidden_layers=2, num_attention_heads=3, hidden_size=12))
    values = {variable.path: variable.numpy() for variable in encoder.weights}
    save_module(folder / "hub", values, folder / "vocab.txt")
    config = GPTConfig(262, **SIZES, max_position_embeddings=16, pre_norm=True, end_id=261)
    (folder / "gpt_config.json").write_text(config.to_json_string())
    gpt = GPT(config)
    gpt.vocab_file = str(folder / "gpt" / "encoder.json")
    gpt.save_checkpoint(folder / "gpt")


def write_classifier(run: Path, folder: Path) -> None:
    """Takes the newest checkpoint of a run under one name."""
    folder.mkdir()
    for name in ("vocab.txt", "bert_config.json", "tokenizer_config.json", "label_list.json"):
        shutil.copy(run / name, folder)
    newest = next(run.glob("model.ckpt-*.index")).stem
    for path in run.glob(f"{newest}.*"):
        shutil.copy(path, folder / path.name.replace(newest, "bert_model.ckpt"))


@dataclasses.dataclass
class Result:
    """What a call came to.

    Args:
        status: the exit status; None where an exception came out of the command.
        out: what it printed.
        err: what it printed on standard error.
        error: the exception.
    """

    status: int | None
    out: str
    err: str
    error: BaseException | None = None


class TookTooLong(BaseException):
    """A call did not end in time."""


def run_call(call: Call, flags: Sequence[str] | None = None, stdin: bytes | None = None, seconds: int = 120) -> Result:
    """Runs a call in this process and the current folder."""
    module = importlib.import_module(f"tf_bert.commands.{call.command}")
    status = error = None
    with _streams(call.stdin if stdin is None else stdin) as texts:
        handler = signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(seconds)
        try:
            status = module.main(list(call.flags if flags is None else flags))
        except (Exception, SystemExit, TookTooLong) as raised:
            error = raised
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, handler)
    if call.command not in LIGHT and "keras" in sys.modules:
        sys.modules["keras"].backend.clear_session()
        gc.collect()
    return Result(status, *texts, error)


def _too_long(*_):
    raise TookTooLong


@contextlib.contextmanager
def _streams(stdin: bytes) -> Iterator[list[str]]:
    """Gives a command its standard input, and collects what it and TensorFlow write; yields what becomes of it."""
    texts, before = [], (sys.stdin, sys.stdout, sys.stderr)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(2)]
        saved = [os.dup(number) for number in (1, 2)]
        for stream in before[1:]:
            stream.flush()
        try:
            for file, number in zip(files, (1, 2), strict=True):
                os.dup2(file.fileno(), number)
            sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
            errors = {1: "strict", 2: "backslashreplace"}  # as Python opens them
            sys.stdout, sys.stderr = (open(n, "w", encoding="utf-8", errors=errors[n], closefd=False) for n in (1, 2))
            yield texts
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            sys.stdin, sys.stdout, sys.stderr = before
            for number, old in zip((1, 2), saved, strict=True):
                os.dup2(old, number)
                os.close(old)
            for file in files:
                file.seek(0)
                texts.append(file.read().decode("utf-8", "replace"))
