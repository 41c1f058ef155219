"""``tf-bert serve``: serves models over HTTP."""

import itertools
import os
import sys
from collections.abc import Sequence

from tf_bert.commands.deferred import deferred
from tf_bert.commands.flags import Flags, UsageError
from tf_bert.commands.quiet import load_tensorflow

with deferred():
    from tf_bert.serving import app, models, server

FLAGS = Flags(
    "serve",
    """
    Serves models by HTTP: TensorFlow Serving's REST (/v1/models/NAME:predict), OpenAI's /v1/embeddings and
    /v1/completions, a page to try a text in a browser, metrics for Prometheus (/metrics), health (/healthz, /readyz).
    Requests that arrive together are computed together. SIGHUP loads the models again; SIGTERM finishes what is in
    hand. Needs pip install 'tf_bert[serve]'.

    Example:
        tf-bert serve runs/film
        tf-bert serve sentiment=runs/film names=runs/ner bert-tiny --port=8501
        curl localhost:8501/v1/models/film:predict -d '{"instances": ["a fine film"]}'
    """,
)
FLAGS.string(
    "models",
    None,
    "Folders of runs, checkpoints of any format, published names, or folders of numbered versions, separated by "
    "commas; NAME=PATH gives a name.",
    required=True,
)
FLAGS.string("host", "127.0.0.1", "Address to listen on; 0.0.0.0 for all of this machine.")
FLAGS.integer("port", 8501, "Port to listen on; 0 for a free one.", minimum=0)
FLAGS.string("api_key", None, "Key that requests have to bring; by default that of $TF_BERT_API_KEY, if it is set.")
FLAGS.string("cors_origins", None, "Origins of pages that may send requests, separated by commas; none by default.")
FLAGS.integer("max_batch_tokens", 4096, "Tokens computed together, padding included.", minimum=1)
FLAGS.float("max_delay_ms", 2.0, "Milliseconds that a text waits for others.", minimum=0.0)
FLAGS.integer("max_queue", 4096, "Texts that may wait; others are refused with status 429.", minimum=1)
FLAGS.integer("max_body_bytes", 1 << 20, "Largest body of a request.", minimum=1)
FLAGS.integer("max_texts", 256, "Most texts of a request.", minimum=1)
FLAGS.integer("max_tokens", 65_536, "Most tokens of a request, all texts together.", minimum=1)


def run(flags) -> None:
    """Loads the models and answers until a signal comes."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise ImportError("serving needs Starlette and uvicorn: pip install 'tf_bert[serve]'") from None
    paths = [path for path in flags.models.replace(",", " ").split() if path]
    if not paths:
        raise UsageError("--models names no model")
    load_tensorflow()
    batching = {"max_batch_tokens": flags.max_batch_tokens, "max_queue": flags.max_queue}
    registry = models.Registry(paths, max_delay=flags.max_delay_ms / 1000, **batching)
    limits = app.Limits(flags.max_body_bytes, flags.max_texts, flags.max_tokens)
    key = flags.api_key or os.environ.get("TF_BERT_API_KEY") or None
    origins = [origin.strip() for origin in (flags.cors_origins or "").split(",") if origin.strip()]
    application = app.create_app(registry, limits, api_key=key, cors_origins=origins)
    server.serve(application, registry, flags.host, flags.port)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    words = list(itertools.takewhile(lambda argument: not argument.startswith("-"), argv))
    return FLAGS.run(run, [*([f"--models={','.join(words)}"] if words else []), *argv[len(words) :]])
