"""Small checkpoints in every format, and what can be done to their files."""

import functools
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tf_bert import BertConfig, BertForPreTraining
from tf_bert.checkpoints import names
from tf_bert.configs import GPTConfig, TransformerConfig
from tf_bert.models import convert
from tf_bert.models.gpt import GPT
from tf_bert.models.transformer import Transformer
from tf_bert.models.translator import save_translator
from tf_bert.tokenization.full import FullTokenizer
from tf_bert.tokenization.subwords import load_subwords, symbols_of

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "[unused1]", "the", "cat", "##s", "Sat", "é"]
CONFIG = BertConfig(
    vocab_size=len(PIECES),
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=12,
    type_vocab_size=2,
)
GPT_SIZES = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
GPT_SIZES |= {"intermediate_size": 32, "max_position_embeddings": 12}
# name -> what is opened, and the file that says the sizes.
CHECKPOINTS = {
    "google": ("google", "bert_config.json"),
    "huggingface": ("huggingface", "config.json"),
    "keras": ("keras/model.keras", "model.keras"),
    "weights": ("weights/model.weights.h5", "bert_config.json"),
    "gpt2": ("gpt2", "hparams.json"),
    "gpt2_huggingface": ("gpt2_huggingface", "config.json"),
    "gpt1_huggingface": ("gpt1_huggingface", "config.json"),
}
# Others that say their sizes in another way.
OTHERS = {"gpt1": ("gpt1", "params_shapes.json"), "translator": ("translator", "config.json")}


@functools.cache
def all_checkpoints() -> Path:
    """Writes all checkpoints, once for each process of the tests; returns their folder."""
    folder = Path(tempfile.mkdtemp(prefix="checkpoints-"))
    source = folder / "google"
    source.mkdir()
    (source / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    tokenizer = FullTokenizer(source / "vocab.txt", do_lower_case=False)
    randomised(BertForPreTraining(CONFIG)).save_checkpoint(source, tokenizer=tokenizer)
    for name in ("huggingface", "keras", "weights"):
        convert.convert(source, folder / CHECKPOINTS[name][0], name)
    for name, pre_norm, format in (("gpt2", True, "openai"), ("gpt1_huggingface", False, "huggingface")):
        model = randomised(GPT(GPTConfig(**GPT_SIZES, pre_norm=pre_norm, end_id=29 if pre_norm else None)))
        model.save_checkpoint(folder / name, format)
    convert.convert(folder / "gpt2", folder / "gpt2_huggingface", "huggingface")
    openai_files(model, folder / "gpt1", parts=3)
    translator(folder / "translator")
    return folder


def translator(folder: Path) -> None:
    """Writes the folder of a translation model."""
    (folder.parent / "pieces.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\n")
    tokenizer = load_subwords(folder.parent / "pieces.txt")
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    model = randomised(Transformer(TransformerConfig(tokenizer.vocab_size, **sizes, **symbols_of(tokenizer))))
    save_translator(model, folder, tokenizer, tokenizer)


def openai_files(model, folder, parts=10):
    """A GPT-1 as OpenAI stores it: written down here once more, in the order in which its code makes the variables."""
    variables = names.model_variables(model)
    weights = {name.removeprefix("gpt/"): variable.numpy() for name, variable in variables.items()}
    arrays = [weights["input_ids/position_embeddings"], weights["input_ids/word_embeddings"]]
    for i in range(model.config.num_hidden_layers):
        here = {n.removeprefix(f"layer_{i}/"): v for n, v in weights.items() if n.startswith(f"layer_{i}/")}
        fused = {
            kind: np.concatenate([here[f"attention/self/{name}/{kind}"] for name in ("query", "key", "value")], -1)
            for kind in ("kernel", "bias")
        }
        arrays += [fused["kernel"][None], fused["bias"]]
        arrays += [here["attention/output/dense/kernel"][None], here["attention/output/dense/bias"]]
        arrays += [here["attention/output/LayerNorm/gamma"], here["attention/output/LayerNorm/beta"]]
        arrays += [here["intermediate/dense/kernel"][None], here["intermediate/dense/bias"]]
        arrays += [here["output/dense/kernel"][None], here["output/dense/bias"]]
        arrays += [here["output/LayerNorm/gamma"], here["output/LayerNorm/beta"]]
    folder.mkdir()
    (folder / "params_shapes.json").write_text(json.dumps([array.shape for array in arrays]))
    for i, part in enumerate(np.array_split(np.concatenate([a.reshape(-1) for a in arrays]), parts)):
        np.save(folder / f"params_{i}.npy", part)


def randomised(model, seed=0):
    """Gives every variable of a model another value, biases and norms too."""
    generator = np.random.default_rng(seed)
    for variable in model.weights:
        variable.assign(generator.normal(size=variable.shape, scale=0.3))
    return model


def copy_of(name: str, folder: Path) -> Path:
    """Copies a checkpoint to a new folder; returns what is opened."""
    opened = (CHECKPOINTS | OTHERS)[name][0]
    shutil.copytree(all_checkpoints() / opened.split("/")[0], folder)
    return folder / opened.split("/")[1] if "/" in opened else folder


def change_settings(name: str, opened: Path, **changes) -> None:
    """Changes what a checkpoint says of itself."""
    file = (opened if opened.is_dir() else opened.parent) / CHECKPOINTS[name][1]
    if name == "keras":
        change_keras_config(file, lambda described: described["config"]["config"].update(changes))
    else:
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def change_keras_config(path: Path, change: Callable[[dict], None]) -> None:
    """Changes the configuration in a ``.keras`` file."""
    files = keras_members(path)
    described = json.loads(files["config.json"])
    change(described)
    write_keras_members(path, files | {"config.json": json.dumps(described).encode()})


def keras_members(path: Path) -> dict[str, bytes]:
    """The files in a ``.keras`` file."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_keras_members(path: Path, files: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    """Writes a ``.keras`` file of these files."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, contents in files.items():
            archive.writestr(name, contents)
