"""What the small Transformer and the small LSTM with attention learn from real pairs, beside PyTorch twins.

    python benchmarks/translation_training.py --data_dir=DATA --output_dir=OUT --model=transformer --steps=3000 \
        --peer_python=/path/to/python

DATA is a folder of ``tf-bert create_translation_data`` with held-out pairs; the other interpreter needs torch and
numpy, and runs `plain_translation.py`. Ours is trained by `train_translation`, the twin from the same initial weights
on the same batches at the same rates, without dropout. Both save their weights along the way; the last ones are
decoded by the same beam search, so that what differs was trained. A line of OUT/scores.jsonl for each, and one for
copying the source. ``--do=ours``, ``twin`` and ``scores`` do one thing at a time; OUT may be that of a run that was cut
short.
"""

import argparse
import glob
import json
import os
import re
import resource
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as "import tf_bert" does where it comes before TensorFlow
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import keras
import numpy as np
import tensorflow as tf
from translation import TWIN, make_config, numbers, write_job

from tf_bert.checkpoints.names import model_variables
from tf_bert.data.text.lines import read_lines
from tf_bert.data.translation import scores as translation_scores
from tf_bert.data.translation.input import Batching, find_translation_records, train_dataset
from tf_bert.decoding.beam import BeamSearch
from tf_bert.decoding.translation import translate
from tf_bert.models.translator import average_checkpoints
from tf_bert.tokenization.subwords import load_subwords
from tf_bert.training import translation
from tf_bert.training.options import TranslationOptions
from tf_bert.training.recipe import set_seed


def cpu_seconds(who) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def train_ours(config, records, folder, options):
    before = cpu_seconds(resource.RUSAGE_SELF)
    translation.train_translation(config, records, folder, options)
    return cpu_seconds(resource.RUSAGE_SELF) - before


def train_twin(config, records, folder, options, arguments):
    os.makedirs(folder, exist_ok=True)
    set_seed(options.seed)
    model = translation.Translation(config, options=options).build()  # as train_translation makes it
    batches = numbers(train_dataset(records, Batching(options.batch_tokens), seed=options.seed), arguments.steps)
    write_job(folder, model, arguments, options, batches, arguments.steps, arguments.steps // arguments.saves)
    before = cpu_seconds(resource.RUSAGE_CHILDREN)
    subprocess.run([arguments.peer_python, TWIN, folder], check=True)
    return cpu_seconds(resource.RUSAGE_CHILDREN) - before


def saved(folder):
    """Step, side and file of all weights that are there."""
    for side, pattern, ending in (("ours", "ours/model.ckpt-*.index", ".index"), ("PyTorch", "twin/weights-*.npz", "")):
        for path in glob.glob(f"{folder}/{pattern}"):
            yield int(re.search(r"-(\d+)\.", path)[1]), side, path.removesuffix(ending)


def write_scores(config, records, arguments, tokenizers):
    data, out = arguments.data_dir, arguments.output_dir
    sources, references = (list(read_lines(f"{data}/heldout.{side}.txt")) for side in ("source", "target"))
    sources, references = sources[: arguments.heldout], references[: arguments.heldout]
    model = translation.Translation(config).build()
    variables = model_variables(model)

    def write(line, translations):
        line |= translation_scores.corpus_scores(translations, references)
        line["exact"] = translation_scores.exact_share(translations, references)
        line["word_errors"] = translation_scores.word_error_rate(translations, references)
        print(json.dumps(line), flush=True)
        with open(f"{out}/scores.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    write({"side": "copying the source"}, sources)
    found = sorted(saved(out))
    last = sorted({step for step, _, _ in found})[-arguments.scored :]
    for step, side, path in found:
        if step not in last:
            continue
        if path.endswith(".npz"):
            for name, value in np.load(path).items():
                variables[name].assign(value)
        else:
            average_checkpoints(model, [path])
        written = translate([model], sources, *tokenizers, search=BeamSearch(arguments.beam_size, length_penalty=0.6))
        with open(f"{out}/{side}-{step}.txt", "w", encoding="utf-8") as file:
            file.writelines(text + "\n" for text in written)
        write({"side": side, "step": step}, written)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--peer_python", help="an interpreter with torch")
    parser.add_argument("--model", choices=["transformer", "seq2seq"], default="transformer")
    parser.add_argument("--do", default="ours,twin,scores")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--saves", type=int, default=4, help="how often weights are saved on the way")
    parser.add_argument("--scored", type=int, default=1, help="score the weights of so many steps, the last ones")
    parser.add_argument("--batch_tokens", type=int, default=1024)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--beam_size", type=int, default=4)
    parser.add_argument("--heldout", type=int, help="so many held-out pairs; all by default")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    arguments.speed, arguments.dropout = False, 0.0
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    records = find_translation_records(f"{arguments.data_dir}/train-*.tfrecord")
    tokenizers = [load_subwords(path) for path in records.vocab_files()]
    shared = records.sidecar["source_vocab_sha256"] == records.sidecar["target_vocab_sha256"]
    config = make_config(arguments, tokenizers[1].vocab_size, None if shared else tokenizers[0].vocab_size)
    options = TranslationOptions(
        num_train_steps=arguments.steps,
        batch_tokens=arguments.batch_tokens,
        learning_rate=arguments.rate,
        num_warmup_steps=arguments.warmup,
        schedule="linear",
        save_checkpoints_steps=arguments.steps // arguments.saves,
        keep_checkpoint_max=arguments.saves + 1,
    )
    ours, twin = f"{arguments.output_dir}/ours", f"{arguments.output_dir}/twin"
    for what in arguments.do.split(","):
        if what == "ours":
            print(f"ours: {train_ours(config, records, ours, options):.0f} s of CPU time", flush=True)
        elif what == "twin":
            print(f"PyTorch: {train_twin(config, records, twin, options, arguments):.0f} s of CPU time", flush=True)
        else:
            keras.backend.clear_session()
            write_scores(config, records, arguments, tokenizers)


if __name__ == "__main__":
    main()
