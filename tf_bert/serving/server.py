"""The server process: signals, reloading, the socket."""

import contextlib
import signal
import threading
from collections.abc import Iterator

import uvicorn

from tf_bert.progress import say
from tf_bert.serving.models import Registry

LOOKS_FOR_VERSIONS = 10.0  # seconds


class Server(uvicorn.Server):
    """uvicorn's server; SIGTERM and Ctrl-C finish what is in hand, and the process ends with status 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Takes the signals while the server runs; uvicorn would raise them again at its end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(app, registry: Registry, host: str, port: int, grace_seconds: int = 30) -> None:
    """Answers requests until a signal comes.

    Args:
        app: from `tf_bert.serving.app.create_app`.
        registry: its models; SIGHUP loads them again, and new version folders are looked for.
        host, port: where to listen; port 0 takes a free one.
        grace_seconds: what requests in hand may take after SIGTERM.

    Raises:
        OSError: the port cannot be had.
    """
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=20,
        timeout_graceful_shutdown=grace_seconds,
        h11_max_incomplete_event_size=1 << 16,
        limit_concurrency=1024,
        server_header=False,
    )
    socket = config.bind_socket() if port == 0 else None
    server, ended = Server(config), threading.Event()

    def watch() -> None:
        while not ended.wait(LOOKS_FOR_VERSIONS):
            _reload(registry, only_newer=True)

    threading.Thread(target=watch, daemon=True).start()
    if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, lambda *_: threading.Thread(target=_reload, args=(registry,), daemon=True).start())
    address = f"{host}:{socket.getsockname()[1] if socket else port}"
    say(f"{', '.join(f'{name} ({model.task})' for name, model in registry.items())} on http://{address}")
    try:
        server.run(sockets=[socket] if socket else None)
    finally:
        ended.set()
    if not server.started:
        raise OSError(f"cannot listen on {address}: is another process using the port?")


def _reload(registry: Registry, only_newer: bool = False) -> None:
    """Loads models again; one that cannot be loaded leaves the one that serves, and is told of in one line."""
    try:
        for name in registry.reload(only_newer):
            say(f"loaded {name}, version {registry[name].version}")
    except (ValueError, KeyError, OSError) as error:
        say(f"WARNING: not reloaded: {' '.join(str(error).split())}")
