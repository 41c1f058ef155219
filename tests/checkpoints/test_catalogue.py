"""The catalogue of published models, downloads over a bad network, and archives that mean harm."""

import contextlib
import hashlib
import http.server
import io
import json
import os
import re
import threading
import time
import zipfile

import pytest

from tf_bert.checkpoints import catalogue, download
from tf_bert.checkpoints.tokenizer_settings import TokenizerSettings
from tf_bert.commands.main import main

PAYLOAD = bytes(range(256)) * 2000


class Server:
    """A local web server whose faults can be set.

    Attributes:
        files: path -> bytes.
        cut: path -> how many bytes of each answer are sent before the connection is closed.
        ranges: whether it resumes.
        delay: seconds between pieces of an answer.
        stall: seconds before an answer begins.
        asked: the Range header of each request.
    """

    def __init__(self):
        self.files, self.cut, self.asked = {}, {}, []
        self.ranges, self.delay, self.stall = True, 0.0, 0.0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    outer.answer(self)

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, request):
        wanted = request.headers.get("Range")
        self.asked.append(wanted)
        time.sleep(self.stall)
        body = self.files.get(request.path)
        if body is None:
            return request.send_error(404)
        start = int(re.match(r"bytes=(\d+)-", wanted)[1]) if wanted and self.ranges else 0
        if start >= len(body) and start:
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{len(body)}")
            return request.end_headers()
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        request.send_header("Content-Length", str(len(body) - start))
        request.end_headers()
        part = body[start:][: self.cut.get(request.path)]
        for at in range(0, len(part), 1 << 16):
            request.wfile.write(part[at : at + (1 << 16)])
            request.wfile.flush()
            time.sleep(self.delay)
        request.close_connection = True


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    started = Server()
    yield started
    started.http.shutdown()
    started.http.server_close()


# --- the catalogue ---------------------------------------------------------------------------------------------------


def parameters(vocab_size, hidden, layers, **_):
    embeddings = (vocab_size + 2 + 512 + 2) * hidden
    attention = 4 * (hidden + 1) * hidden + 2 * hidden
    feed_forward = (hidden + 1) * 4 * hidden + (4 * hidden + 1) * hidden + 2 * hidden
    pooler = (hidden + 1) * hidden
    heads = (hidden + 1) * hidden + 2 * hidden + vocab_size + 2 * hidden + 2
    encoder = embeddings + layers * (attention + feed_forward) + pooler
    return encoder, encoder + heads


def test_every_entry_is_consistent():
    names = set()
    for entry in catalogue.catalogue():
        config = entry.config
        layers, hidden, heads = map(int, re.search(r"L-(\d+)_H-(\d+)_A-(\d+)", entry.archive).groups())
        shape = (config["num_hidden_layers"], config["hidden_size"], config["num_attention_heads"])
        assert shape == (layers, hidden, heads)
        assert hidden == 64 * heads and config["intermediate_size"] == 4 * hidden
        assert (entry.parameters, entry.parameters_with_heads) == parameters(config["vocab_size"], hidden, layers)
        assert entry.archive.startswith("https://storage.googleapis.com/bert_models/20")
        assert entry.do_lower_case == ("cased" not in entry.archive.replace("uncased", ""))
        assert not names & {entry.name, *entry.aliases}
        names |= {entry.name, *entry.aliases}
        assert set(entry.sha256) in (
            set(),
            {
                "bert_config.json",
                "vocab.txt",
                *(f"bert_model.ckpt.{end}" for end in ("data-00000-of-00001", "index", "meta")),
            },
        )
    assert sum("2020_02_20" in entry.archive for entry in catalogue.catalogue()) == 24
    assert len(catalogue.catalogue()) == 24 + 9


def test_published_counts():
    """Counts as published, beside those of the formula."""
    counts = {entry.name: entry.parameters for entry in catalogue.catalogue()}
    assert counts["uncased_L-12_H-768_A-12"] == 109_482_240
    assert counts["cased_L-24_H-1024_A-16"] == 333_579_264
    assert counts["multi_cased_L-12_H-768_A-12"] == 177_853_440
    assert counts["chinese_L-12_H-768_A-12"] == 102_267_648
    assert counts["uncased_L-2_H-128_A-2"] == 4_385_920


def test_known_vocabularies_have_the_checksums_of_the_catalogue(shared_golden, data_folder):
    files = {
        "uncased_L-12_H-768_A-12": shared_golden / "vocab" / "vocab.txt",
        "cased_L-12_H-768_A-12": data_folder / "vocab" / "bert-base-cased" / "vocab.txt",
        "chinese_L-12_H-768_A-12": data_folder / "vocab" / "bert-base-chinese" / "vocab.txt",
    }
    for name, path in files.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == catalogue.find(name).sha256["vocab.txt"]
        assert (
            len(path.read_text(encoding="utf-8").rstrip("\n").split("\n")) == catalogue.find(name).config["vocab_size"]
        )


def test_a_misspelt_name_gets_the_nearest():
    with pytest.raises(KeyError, match="did you mean.*bert-base-uncased"):
        catalogue.find("bert-base-uncasd")


# --- downloads -------------------------------------------------------------------------------------------------------


def test_a_download_is_resumed_within_a_call(server, tmp_path):
    server.files["/a.zip"] = PAYLOAD
    server.cut["/a.zip"] = 200_000
    digest = download.download(server.url + "/a.zip", tmp_path / "a.zip", pause=0)
    assert (tmp_path / "a.zip").read_bytes() == PAYLOAD
    assert digest == hashlib.sha256(PAYLOAD).hexdigest()
    assert server.asked == [None, "bytes=200000-", "bytes=400000-"]
    assert os.listdir(tmp_path) == ["a.zip"]


def test_a_download_is_resumed_by_the_next_call(server, tmp_path):
    server.files["/a.zip"] = PAYLOAD
    (tmp_path / "a.zip.part").write_bytes(PAYLOAD[:1000])
    download.download(server.url + "/a.zip", tmp_path / "a.zip")
    assert server.asked == ["bytes=1000-"]
    assert (tmp_path / "a.zip").read_bytes() == PAYLOAD


def test_a_complete_part_is_only_renamed(server, tmp_path):
    server.files["/a.zip"] = PAYLOAD
    (tmp_path / "a.zip.part").write_bytes(PAYLOAD)
    download.download(server.url + "/a.zip", tmp_path / "a.zip")
    assert (tmp_path / "a.zip").read_bytes() == PAYLOAD


def test_a_part_of_a_longer_file_is_thrown_away(server, tmp_path):
    server.files["/a.zip"] = PAYLOAD
    (tmp_path / "a.zip.part").write_bytes(PAYLOAD + b"more")
    download.download(server.url + "/a.zip", tmp_path / "a.zip", pause=0)
    assert (tmp_path / "a.zip").read_bytes() == PAYLOAD


def test_a_server_that_cannot_resume_is_asked_for_the_whole(server, tmp_path):
    server.files["/a.zip"], server.ranges = PAYLOAD, False
    (tmp_path / "a.zip.part").write_bytes(b"x" * 1000)
    download.download(server.url + "/a.zip", tmp_path / "a.zip")
    assert (tmp_path / "a.zip").read_bytes() == PAYLOAD


def test_a_download_cut_off_for_good_keeps_what_came(server, tmp_path):
    server.files["/a.zip"], server.ranges = PAYLOAD, False
    server.cut["/a.zip"] = 70_000
    with pytest.raises(OSError, match=r"70,000 of 512,000 bytes arrived.*same command goes on") as error:
        download.download(server.url + "/a.zip", tmp_path / "a.zip", attempts=2, pause=0)
    assert "\n" not in str(error.value)
    assert os.listdir(tmp_path) == ["a.zip.part"] and (tmp_path / "a.zip.part").stat().st_size == 70_000


def test_a_slow_server_is_waited_for_and_a_stalled_one_is_not(server, tmp_path):
    server.files["/a.zip"], server.delay = PAYLOAD, 0.05
    download.download(server.url + "/a.zip", tmp_path / "a.zip", timeout=1, pause=0)
    assert (tmp_path / "a.zip").read_bytes() == PAYLOAD
    server.stall = 1.0
    with pytest.raises(OSError, match="timed out"):
        download.download(server.url + "/a.zip", tmp_path / "b.zip", timeout=0.2, attempts=1, pause=0)


def test_no_such_file_and_no_network_are_one_line(server, tmp_path, monkeypatch):
    with pytest.raises(OSError, match="the server says 404"):
        download.download(server.url + "/none.zip", tmp_path / "a.zip", pause=0)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(OSError, match="storage.googleapis.com reachable, and is https_proxy set") as error:
        download.download("https://storage.googleapis.com/x.zip", tmp_path / "a.zip", attempts=2, pause=0)
    assert "\n" not in str(error.value)
    assert os.listdir(tmp_path) == []


# --- archives --------------------------------------------------------------------------------------------------------


def zipped(members, **options):
    """A zip archive of name (or ZipInfo) -> bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, **options) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def unpack(tmp_path, data, most_bytes=10_000_000, sha256=None):
    (tmp_path / "a.zip").write_bytes(data)
    download.unpack(tmp_path / "a.zip", tmp_path / "out", most_bytes, sha256 or {})


def link():
    info = zipfile.ZipInfo("model/vocab.txt")
    info.external_attr = 0o120777 << 16
    return info


def packed(name, compression):
    info = zipfile.ZipInfo(name)
    info.compress_type = compression
    return info


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"../evil": b"x"}, "outside its folder"),
        ({"model/../../evil": b"x"}, "outside its folder"),
        ({"/tmp/evil": b"x"}, "outside its folder"),
        ({"model\\..\\evil": b"x"}, "outside its folder"),
        ({"C:evil": b"x"}, "outside its folder"),
        ({link(): b"/etc/passwd"}, "no regular file"),
        ({"model/a": b"1", "model/a/b": b"2"}, "two files of one name, or a file and a folder"),
        ({f"model/{number}": b"" for number in range(1001)}, "holds 1,001 files, expected at most 1000"),
        ({packed("model/a", zipfile.ZIP_BZIP2): b"x"}, "packed in an unusual way"),
        ({"model/a": b"0" * 20_000_000}, "unpacks to 20,000,000 bytes, expected at most 10,000,000"),
    ],
)
def test_a_malicious_archive_is_refused_and_leaves_nothing(tmp_path, members, message):
    with pytest.raises(ValueError, match=message):
        unpack(tmp_path, zipped(members))
    assert os.listdir(tmp_path) == ["a.zip"]


def test_an_archive_that_unpacks_to_more_than_it_says_is_refused(tmp_path):
    data = bytearray(zipped({"model/a": b"0" * 20_000_000}))
    directory = data.rindex(b"PK\x01\x02")  # the sizes stand at 24 there and at 22 of the local header
    data[directory + 24 : directory + 28] = data[22:26] = (10).to_bytes(4, "little")
    with pytest.raises(ValueError, match="no whole zip archive"):
        unpack(tmp_path, bytes(data))
    assert os.listdir(tmp_path) == ["a.zip"]


@pytest.mark.parametrize("damage", ["cut", "flipped", "not a zip"])
def test_a_damaged_archive_is_refused(tmp_path, damage):
    data = bytearray(zipped({"model/a": os.urandom(1000), "model/b": b"y"}))
    data[500] ^= damage == "flipped"
    with pytest.raises(ValueError, match="no whole zip archive"):
        unpack(
            tmp_path, {"cut": bytes(data[:-300]), "flipped": bytes(data), "not a zip": b"<html>proxy</html>"}[damage]
        )
    assert os.listdir(tmp_path) == ["a.zip"]


def test_an_archive_with_or_without_a_folder_around_it(tmp_path):
    unpack(tmp_path, zipped({"model/": b"", "model/a": b"1", "model/b": b"2"}))
    assert sorted(os.listdir(tmp_path / "out")) == ["a", "b"]
    (tmp_path / "second").mkdir()
    unpack(tmp_path / "second", zipped({"a": b"1", "b": b"2"}))
    assert sorted(os.listdir(tmp_path / "second" / "out")) == ["a", "b"]


def test_wrong_or_missing_files_of_an_archive_are_refused(tmp_path):
    right = hashlib.sha256(b"1").hexdigest()
    with pytest.raises(ValueError, match="SHA-256 .* expected " + right):
        unpack(tmp_path, zipped({"a": b"2"}), sha256={"a": right})
    with pytest.raises(ValueError, match="lacks vocab.txt"):
        unpack(tmp_path, zipped({"a": b"1"}), sha256={"a": right, "vocab.txt": right})
    unpack(tmp_path, zipped({"a": b"1"}), sha256={"a": right})


# --- fetch -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def published(server, monkeypatch):
    """A catalogue of one small model on the local server."""
    entry = catalogue.find("cased_L-12_H-768_A-12")
    files = {"bert_config.json": json.dumps(entry.config).encode(), "vocab.txt": b"[PAD]\n"}
    server.files["/m.zip"] = zipped({"m/" + name: data for name, data in files.items()})
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    fake = catalogue.Entry(**{**vars(entry), "archive": server.url + "/m.zip", "sha256": sums})
    monkeypatch.setattr(catalogue, "catalogue", lambda: (fake,))
    return fake


def test_fetch_writes_the_model_its_casing_and_its_checksum(server, published, tmp_path):
    path = catalogue.fetch("bert-base-cased", tmp_path)
    assert path == str(tmp_path / published.name)
    assert sorted(os.listdir(path)) == ["bert_config.json", "tokenizer_config.json", "vocab.txt"]
    assert TokenizerSettings.read(path) == TokenizerSettings(do_lower_case=False)
    sums = json.loads((tmp_path / "SHA256SUMS.json").read_text())
    assert sums == {published.archive: hashlib.sha256(server.files["/m.zip"]).hexdigest()}
    assert sorted(os.listdir(tmp_path)) == ["SHA256SUMS.json", published.name]
    assert catalogue.fetch("bert-base-cased", tmp_path) == path and len(server.asked) == 1


def test_an_archive_that_changed_since_its_first_download_is_refused(server, published, tmp_path):
    (tmp_path / "SHA256SUMS.json").write_text(json.dumps({published.archive: "0" * 64}))
    with pytest.raises(ValueError, match="0{64} at its first download"):
        catalogue.fetch("bert-base-cased", tmp_path)
    assert os.listdir(tmp_path) == ["SHA256SUMS.json"]


def test_a_wrong_checksum_removes_the_download(server, published, tmp_path):
    server.files["/m.zip"] = zipped({"m/bert_config.json": b"{}", "m/vocab.txt": b"other\n"})
    with pytest.raises(ValueError, match="not the published file"):
        catalogue.fetch("bert-base-cased", tmp_path)
    assert published.name not in os.listdir(tmp_path)


def test_the_command_says_in_one_line_that_there_is_no_network(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    assert main(["checkpoints", "fetch", "bert-tiny", f"--to={tmp_path}"]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("tf-bert checkpoints: error: cannot download https://storage.googleapis.com/")
    assert errors.count("\n") == 1


def test_the_command_fetches(server, published, tmp_path, capsys):
    assert main(["checkpoints", "fetch", "bert-base-cased", f"--to={tmp_path}"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / published.name}\n"


def test_tokenizer_settings_travel_with_other_keys(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 512, "do_lower_case": true}')
    TokenizerSettings(False, True, False).write(tmp_path)
    assert TokenizerSettings.read(tmp_path) == TokenizerSettings(False, True, False)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["model_max_length"] == 512
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": "yes"}')
    with pytest.raises(ValueError, match="do_lower_case must be true or false, not 'yes'"):
        TokenizerSettings.read(tmp_path)
