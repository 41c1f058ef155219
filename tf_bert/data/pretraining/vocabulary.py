"""The tokenizer that pre-training records were made with, as their sidecars note it."""

from collections.abc import Iterable

from tf_bert.data.tfrecord.sidecar import noted_vocabulary
from tf_bert.progress import say
from tf_bert.tokenization.full import FullTokenizer
from tf_bert.tokenization.vocabulary import casing_problem, vocab_sha256


def tokenizer_of_records(
    records,
    vocab_size: int,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
    near: Iterable[str | None] = (),
) -> FullTokenizer | None:
    """Makes the tokenizer that records were made with, to be exported with the model.

    Args:
        records: `tf_bert.data.pretraining.input.RecordFiles`.
        vocab_size: of the model.
        vocab_file: the vocabulary; by default the noted one, where it is found.
        do_lower_case: whether the records are lower-cased; by default as noted, else True.
        near: files in whose folders a ``vocab.txt`` is looked for.

    Returns:
        The tokenizer, or None where the vocabulary cannot be found.

    Raises:
        ValueError: vocabulary or casing are not those of the records, or the vocabulary is larger than the table.
    """
    noted = next((sidecar for sidecar in records.sidecars if "vocab_sha256" in sidecar), {})
    path = vocab_file or noted_vocabulary(records.sidecars, [records.files[0], *near])
    if path is None:
        return None
    if noted and vocab_sha256(path) != noted["vocab_sha256"]:
        raise ValueError(
            f"{path} is not the vocabulary that {records.files[0]} was made with: its SHA-256 is "
            f"{vocab_sha256(path)}, expected {noted['vocab_sha256']} ({noted.get('vocab_file', 'of an unknown place')})"
        )
    switches = {key: noted[key] for key in ("strip_accents", "tokenize_chinese_chars") if key in noted}
    lower = noted.get("do_lower_case", True) if do_lower_case is None else do_lower_case
    if lower != noted.get("do_lower_case", lower):
        raise ValueError(f"do_lower_case is {lower}, and {records.files[0]} was made with {noted['do_lower_case']}")
    tokenizer = FullTokenizer(path, lower, **switches)
    if tokenizer.vocab_size > vocab_size:
        raise ValueError(
            f"{path} has {tokenizer.vocab_size} lines, and vocab_size of the model is {vocab_size}: ids would be "
            "beyond the table"
        )
    if problem := casing_problem(tokenizer.vocab, lower):
        say(f"WARNING: {path}: {problem}")
    return tokenizer
