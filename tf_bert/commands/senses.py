"""``tf-bert senses``: compares a word's vectors in two contexts, layer by layer."""

from collections.abc import Sequence

from tf_bert.commands.deferred import deferred
from tf_bert.commands.flags import Flags, UsageError
from tf_bert.commands.quiet import load_tensorflow

with deferred():
    from tf_bert.visualization import plots, senses

FLAGS = Flags(
    "senses",
    """
    Prints the cosine similarity of a word's vectors in two texts, for each layer of each model. A static vector, the
    row of the table of words, is the same in every text; the layers of ELMo, GPT and BERT tell senses apart.

    With --input_file the texts are those of a file. Then the mean similarity of two texts of the same sense and that of
    two texts of different senses are printed, and how often the nearest other text has the same sense.

    Example: tf-bert senses --checkpoint=bert/export,gpt/export,elmo/export --word=bank
        --text='They sat on the bank of the river.' --other_text='The bank lent him money.'
    """,
)
FLAGS.string("checkpoint", None, "Models, separated by commas: BERT, GPT, or an ELMo's export folder.", required=True)
FLAGS.string("word", None, "A word that occurs in both texts.")
FLAGS.string("text", None, "The first text.")
FLAGS.string("other_text", None, "The second text.")
FLAGS.string("input_file", None, "A file of texts: word, tab, sense, tab, text; two texts or more of each sense.")
FLAGS.string("png_file", None, "Picture of the results of --input_file (.png, .svg).")


def run(flags) -> None:
    """Loads each model and prints a line, or a table, for it."""
    pair = [flags.word, flags.text, flags.other_text]
    if flags.input_file and any(pair):
        raise UsageError("give --input_file, or --word, --text and --other_text, not both")
    if not flags.input_file and None in pair:
        raise UsageError("give --word, --text and --other_text, or --input_file")
    if flags.png_file and not flags.input_file:
        raise UsageError("--png_file draws what --input_file gives")
    load_tensorflow()
    words = senses.read_senses(flags.input_file) if flags.input_file else {}
    paths = [path.strip() for path in flags.checkpoint.split(",") if path.strip()]
    width = max(map(len, [*paths, *words]), default=0)
    figures = {}
    if words:
        print(f"{'':<{width}}           same sense  other sense  nearest right")
    for path in paths:
        model, tokenizer = senses.load_contextual(path)
        if not words:
            first, second = (senses.word_vectors(model, tokenizer, flags.word, text) for text in pair[1:])
            shown = [f"{name} {senses.cosine(first[name], second[name]):6.3f}" for name in first]
            print(f"{path:<{width}}  {'  '.join(shown)}")
            continue
        print(path)
        for word, texts_of in words.items():
            vectors = {
                sense: [senses.word_vectors(model, tokenizer, word, text) for text in texts]
                for sense, texts in texts_of.items()
            }
            figures[path, word] = senses.separation(vectors)
            for i, (layer, (same, other, right)) in enumerate(figures[path, word].items()):
                print(f"{'' if i else word:<{width}}  {layer:<7}  {same:10.3f}  {other:11.3f}  {right:13.0%}")
    if flags.png_file:
        plots.plot_senses(flags.png_file, figures)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    return FLAGS.run(run, argv)
