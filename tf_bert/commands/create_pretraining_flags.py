"""The flags of ``tf-bert create_pretraining_data``: the original's and ours."""

from tf_bert.commands.flags import Flags
from tf_bert.data.pretraining.pairing import InstanceOptions

FLAGS = Flags(
    "create_pretraining_data",
    """
    Makes the data of pre-training: TFRecords of sentence pairs with masked tokens, to the bit those of the original
    for equal text, vocabulary, flags and seed.

    The text holds one sentence a line and a blank line between documents; tf-bert prepare_corpus makes such text.

    Example: tf-bert create_pretraining_data --input_file='corpus/*.txt' --output_file=data/train.tfrecord
        --vocab_file=vocab.txt --max_seq_length=128 --max_predictions_per_seq=20 --dupe_factor=5
    """,
)
FLAGS.string("input_file", None, "UTF-8 text (may be gzipped): names or globs, separated by commas.", required=True)
FLAGS.string(
    "output_file",
    None,
    "TFRecord files to write, separated by commas; record k goes to file k modulo their number. With --sharded, the "
    "prefix of the files PREFIX-00000-of-0000N.",
    required=True,
)
FLAGS.string("vocab_file", None, "The vocabulary the model is trained with, one piece a line.", required=True)
FLAGS.boolean("do_lower_case", True, "Whether to lower-case; True for uncased and False for cased vocabularies.")
FLAGS.add_options(InstanceOptions)
FLAGS.integer("random_seed", 12345, "Seed of everything random.")
FLAGS.integer("dupe_factor", 10, "Passes over the text, each with other pairs and masks.", minimum=1)

# What the original does not have.
FLAGS.boolean("strip_accents", None, "Whether to drop accents. By default this follows do_lower_case.")
FLAGS.boolean("tokenize_chinese_chars", True, "Whether each Chinese character is a word, as in the original.")
FLAGS.integer("num_workers", 1, "Processes that tokenize and serialize; the result is the same.", minimum=1)
FLAGS.boolean(
    "replace_with_special_tokens",
    True,
    "Whether the random replacements come from the whole vocabulary, [CLS] and [unused7] too, as in the original.",
)
FLAGS.string("word_marker", None, "What stands between words in the text (such as a blank), for --do_whole_word_mask.")
FLAGS.string(
    "word_splitter",
    None,
    "A Python function that gives the words of a line, as module:function (such as jieba:lcut), for "
    "--do_whole_word_mask in text without ## pieces.",
)
FLAGS.boolean(
    "documents_end_with_files",
    False,
    "Whether the end of a file ends a document. In the original a document goes on in the next file unless a blank "
    "line stands between.",
)
FLAGS.boolean(
    "allow_single_document",
    False,
    "Makes pairs even from a single document, as the original does; the labels of its random next sentences are wrong.",
)
FLAGS.boolean(
    "sharded",
    False,
    "For large text: memory stays bounded, --num_workers share all of the work, and a run that was interrupted goes on "
    "with the missing files. The records are as random but not those of the original.",
)
FLAGS.integer("num_shards", None, "Number of files to write with --sharded.", minimum=1)
FLAGS.string(
    "work_folder",
    None,
    "Where --sharded keeps its intermediate files, on a local disk (with --runner, where every worker reaches it); "
    "PREFIX.work by default.",
)
FLAGS.enum(
    "runner",
    None,
    ["DirectRunner", "FlinkRunner", "SparkRunner", "DataflowRunner"],
    "Makes the files of --sharded, to the bit, with Apache Beam (pip install 'tf_bert[beam]') on many machines, all of "
    "which reach --work_folder; DirectRunner is --num_workers processes of this one. Flags of Beam's own, such as "
    "--project or --flink_master, may stand beside it.",
)
FLAGS.pass_on("runner_flags", when="runner")
FLAGS.integer("log_examples", 0, "How many of the first records to show; the original shows 20.", minimum=0)
