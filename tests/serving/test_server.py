"""A real server with tiny models: clients that people have, answers equal to the model's, limits, abuse."""

import base64
import json
import shlex
import socket
import subprocess
import threading
import time
import urllib.request

import httpx
import numpy as np
import pytest

from tests.serving.conftest import serving
from tests.support import ROOT
from tf_bert.models.bert_encoder import BertEncoder
from tf_bert.serving.app import Limits
from tf_bert.serving.client import Client, ServerError
from tf_bert.serving.load import load_predictor
from tf_bert.serving.models import Registry, newest_version

TEXTS = ["a fine film", "", "the film is bad", "   ", "ada sings in paris . " * 20, "film"]


def post(address, path, body, **options):
    return httpx.post(address + path, json=body, timeout=30, **options)


def test_tensorflow_servings_rest(address, folders):
    found = httpx.get(f"{address}/v1/models/film").json()
    assert found == {
        "model_version_status": [
            {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
        ]
    }
    predictor = load_predictor(folders["film"])
    expected = list(predictor.predict([predictor.read(text, "") for text in TEXTS]))
    rows = post(address, "/v1/models/film:predict", {"instances": TEXTS}).json()["predictions"]
    columns = post(address, "/v1/models/film:predict", {"inputs": {"text": TEXTS}}).json()["outputs"]
    for number, (row, right) in enumerate(zip(rows, expected, strict=True)):
        assert row["label"] == right["label"] == columns["label"][number]
        for label, share in right["probabilities"].items():
            assert row["probabilities"][label] == pytest.approx(share, abs=1e-5)
    assert post(address, "/v1/models/film:predict", {"instances": []}).json() == {"predictions": []}
    pair = post(address, "/v1/models/film:predict", {"instances": [{"text": "a film", "text_pair": "bad"}]}).json()
    assert pair["predictions"][0]["label"] in ("bad", "good")


def test_tags_and_answers_are_those_of_the_predictor(address, folders):
    tagger = load_predictor(folders["names"])
    text = "ada sings in paris . " * 30
    (right,) = tagger.predict([tagger.read(text, "")])
    (found,) = post(address, "/v1/models/names:predict", {"instances": [text]}).json()["predictions"]
    assert found == right and len(found["tags"]) == 150
    reader = load_predictor(folders["questions"])
    document = "the film is bad . ada sings in paris . " * 10
    (right,) = reader.predict([reader.read(f"who sings ? ||| {document}", "x")])
    instance = {"question": "who sings ?", "document": document}
    (found,) = post(address, "/v1/models/questions:predict", {"instances": [instance]}).json()["predictions"]
    assert found["answer"] == right["answer"] and found["probability"] == pytest.approx(right["probability"], abs=1e-5)


def test_openais_client(address, folders):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none")
    texts = [text for text in TEXTS if text]
    expected = BertEncoder.from_checkpoint(folders["vectors"])
    expected.attach_preprocessor(f"{folders['vectors']}/vocab.txt", do_lower_case=True)
    right = expected.encode(texts)
    found = client.embeddings.create(model="vectors", input=texts)  # base64, which is its default
    np.testing.assert_allclose([row.embedding for row in found.data], right, atol=1e-5)
    assert found.usage.prompt_tokens > len(texts) and [row.index for row in found.data] == list(range(len(texts)))
    plain = post(address, "/v1/embeddings", {"input": texts, "encoding_format": "float"}).json()
    np.testing.assert_allclose([row["embedding"] for row in plain["data"]], right, atol=1e-5)
    coded = post(address, "/v1/embeddings", {"input": texts[0], "encoding_format": "base64"}).json()
    vector = np.frombuffer(base64.b64decode(coded["data"][0]["embedding"]), "<f4")
    np.testing.assert_allclose(vector, right[0], atol=1e-5)
    np.testing.assert_allclose(Client(address, model="vectors").encode(texts), right, atol=1e-5)
    with pytest.raises(openai.UnprocessableEntityError, match="dimensions: vectors gives 16"):
        client.embeddings.create(model="vectors", input="a", dimensions=8)


def test_masks(address):
    (found,) = Client(address, model="masks").predict(["a fine [MASK] is [MASK]"])
    assert [len(best) for best in found["fillings"]] == [5, 5]
    assert 0 < found["fillings"][0][0]["probability"] <= 1
    with pytest.raises(ServerError, match=r"instance 0: there is no \[MASK\]"):
        Client(address, model="masks").predict(["a film"])


def test_curl(address):
    command = ["curl", "-s", f"{address}/v1/models/film:predict", "-d", '{"instances": ["a fine film"]}']
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except FileNotFoundError:
        pytest.skip("curl is not installed")
    assert json.loads(done.stdout)["predictions"][0]["label"] in ("bad", "good")


@pytest.mark.parametrize(
    "path, body, status, said",
    [
        ("/v1/models/film:predict", b"{", 400, "the body: "),
        ("/v1/models/film:predict", b"[1]", 400, "expected a JSON object, found a list"),
        ("/v1/models/film:predict", b"\xff", 400, "utf-8"),
        ("/v1/models/film:predict", b"{}", 422, "give either instances"),
        ("/v1/models/film:predict", b'{"instances": ["a"], "inputs": {}}', 422, "give either instances"),
        ("/v1/models/film:predict", b'{"instance": ["a"]}', 422, "instance: not a key of this request"),
        ("/v1/models/film:predict", b'{"instances": "a"}', 422, "expected a list, found a text"),
        ("/v1/models/film:predict", b'{"instances": ["a", 7]}', 422, "instance 1: expected a text, or an object"),
        ("/v1/models/film:predict", b'{"instances": [{"txt": "a"}]}', 422, "instance 0: 'txt' is not a key"),
        ("/v1/models/film:predict", b'{"instances": [{"text": null}]}', 422, "instance 0: text: expected a text"),
        ("/v1/models/film:predict", b'{"inputs": {"text": ["a"], "text_pair": []}}', 422, "lists of one length"),
        ("/v1/models/questions:predict", b'{"instances": [{"question": "a"}]}', 422, "'document' is missing"),
        ("/v1/models/none:predict", b'{"instances": ["a"]}', 404, "there is no model 'none'; there is film, names"),
        ("/v1/models/film/versions/7:predict", b'{"instances": ["a"]}', 404, "has version 1, not 7"),
        ("/v1/embeddings", b'{"input": []}', 422, "expected a text or a list of texts"),
        ("/v1/embeddings", b'{"input": "a", "model": "film"}', 422, "film gives no vectors"),
        ("/v1/completions", b'{"prompt": "a"}', 422, "none (no model does this)"),
    ],
)
def test_mistakes_are_one_line(address, path, body, status, said):
    answer = httpx.post(address + path, content=body)
    error = answer.json()["error"]
    message = error["message"] if isinstance(error, dict) else error
    assert answer.status_code == status and said in message and "\n" not in message
    assert isinstance(error, dict) == (path in ("/v1/embeddings", "/v1/completions"))


def test_pages_about_the_server(address):
    assert httpx.get(f"{address}/healthz").text == "ok\n" and httpx.get(f"{address}/readyz").status_code == 200
    post(address, "/v1/models/film:predict", {"instances": ["a"]})
    figures = httpx.get(f"{address}/metrics").text
    assert 'tf_bert_requests_total{code="200",model="film"}' in figures
    assert 'tf_bert_sequences_total{model="film"}' in figures
    described = httpx.get(f"{address}/openapi.json").json()
    assert "/v1/models/film:predict" in described["paths"] and described["openapi"] == "3.1.0"
    assert "<title>tf-bert serve</title>" in httpx.get(address).text
    listed = {model["id"]: model["task"] for model in httpx.get(f"{address}/v1/models").json()["data"]}
    assert listed["names"] == "tag" and listed["vectors"] == "embed"
    metadata = httpx.get(f"{address}/v1/models/film/metadata").json()["metadata"]
    assert metadata["labels"] == ["bad", "good"] and metadata["fields"] == ["text", "text_pair"]


def test_limits_key_and_origins(folders):
    limits = Limits(max_body_bytes=300, max_texts=3, max_tokens=20, body_seconds=0.3)
    registry = Registry([folders["film"]])
    with serving(registry, limits, api_key="secret", cors_origins=["https://page.example"]) as address:
        path, key = "/v1/models/film:predict", {"Authorization": "Bearer secret"}
        assert post(address, path, {"instances": ["a"]}).status_code == 401
        assert post(address, path, {"instances": ["a"]}, headers={"Authorization": "Bearer no"}).status_code == 401
        assert post(address, path, {"instances": ["a"]}, headers=key).status_code == 200
        assert httpx.get(f"{address}/healthz").status_code == 200
        for body, said in (
            ({"instances": ["a" * 400]}, "larger than 300 bytes"),
            ({"instances": ["a"] * 4}, "4 examples in a request; at most 3"),
            ({"instances": ["a film is bad . " * 4]}, "tokens in a request; at most 20"),
        ):
            answer = post(address, path, body, headers=key)
            assert answer.status_code == 413 and said in answer.json()["error"]
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as slow:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\nContent-Length: 100\r\n\r\n{{"
            slow.sendall(head.encode())
            assert slow.recv(1000).startswith(b"HTTP/1.1 408")
        assert Client(address, "film", "secret").predict(["a"])[0]["label"]
        allowed = httpx.options(
            address + path, headers={"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
        )
        assert allowed.headers["access-control-allow-origin"] == "https://page.example"


def test_cors_is_off_unless_asked_for(address):
    answer = httpx.get(f"{address}/v1/models", headers={"Origin": "https://page.example"})
    assert "access-control-allow-origin" not in answer.headers


def test_a_full_queue_is_429_with_retry_after(folders):
    registry = Registry([folders["film"]], max_queue=2)
    run, gate = registry["film"].batcher.run, threading.Event()
    registry["film"].batcher.run = lambda inputs: gate.wait(20) and run(inputs)
    with serving(registry) as address:
        threads = [
            threading.Thread(target=post, args=(address, "/v1/models/film:predict", {"instances": ["a"]}))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
            time.sleep(0.1)
        answer = post(address, "/v1/models/film:predict", {"instances": ["a"]})
        assert answer.status_code == 429 and int(answer.headers["Retry-After"]) >= 1
        gate.set()
        for thread in threads:
            thread.join(20)


def test_a_client_that_leaves_frees_its_place(folders):
    registry = Registry([folders["film"]])
    batcher, gate = registry["film"].batcher, threading.Event()
    run = batcher.run
    batcher.run = lambda inputs: gate.wait(20) and run(inputs)
    with serving(registry) as address:
        body = {"instances": ["a"]}
        first = threading.Thread(target=post, args=(address, "/v1/models/film:predict", body))
        first.start()
        time.sleep(0.2)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{address}/v1/models/film:predict", json={"instances": ["a"] * 5}, timeout=0.3)
        time.sleep(0.5)
        done = batcher.statistics.sequences
        gate.set()
        first.join(20)
        time.sleep(0.2)
        assert batcher.statistics.sequences == done + 1 and len(batcher) == 0


def test_many_clients_at_once_get_their_own_answers(address, folders):
    rng = np.random.default_rng(0)
    texts = [
        " ".join(rng.choice(["a", "fine", "film", "bad", "ada", "paris"], rng.integers(1, 30))) for _ in range(200)
    ]
    predictor = load_predictor(folders["film"])
    right = [row["probabilities"]["good"] for row in predictor.predict([predictor.read(text, "") for text in texts])]
    differences = {}

    def ask(start):
        with httpx.Client(base_url=address, timeout=60) as client:
            for number in range(start, len(texts), 16):
                answer = client.post("/v1/models/film:predict", json={"instances": [texts[number]]}).json()
                differences[number] = abs(answer["predictions"][0]["probabilities"]["good"] - right[number])

    threads = [threading.Thread(target=ask, args=(start,)) for start in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(differences) == len(texts) and max(differences.values()) < 1e-5


def test_a_new_version_takes_over_and_a_damaged_one_does_not(folders, tmp_path):
    import shutil

    shutil.copytree(folders["film"], tmp_path / "film" / "1")
    registry = Registry([str(tmp_path / "film")])
    assert newest_version(str(tmp_path / "film")) == (str(tmp_path / "film" / "1"), 1)
    assert registry["film"].version == 1 and registry.reload(only_newer=True) == []
    shutil.copytree(folders["film"], tmp_path / "film" / "2")
    assert registry.reload(only_newer=True) == ["film"] and registry["film"].version == 2
    (tmp_path / "film" / "3").mkdir()
    with pytest.raises(FileNotFoundError):
        registry.reload(only_newer=True)
    assert registry["film"].version == 2 and registry["film"].batcher.submit([]) == []
    registry.close()


def test_the_page_of_the_docs(folders):
    """Every client of docs/serve.md, with the port of this server."""
    page = (ROOT / "docs/serve.md").read_text(encoding="utf-8")
    names = {"reviews": "film", "qa": "questions", "bert-tiny": "vectors"}
    with serving(Registry([f"{name}={folders[task]}" for name, task in names.items()])) as address:
        here = page.replace("http://localhost:8501", address).replace("localhost:8501", address)
        commands = [line.strip() for line in here.splitlines() if line.startswith("    curl")]
        for command in commands:
            done = subprocess.run(shlex.split(command) + ["-s"], capture_output=True, text=True, timeout=30)
            assert len(json.loads(done.stdout)["predictions"]) == 1, done.stdout + done.stderr
        blocks = [part.split("```")[0] for part in here.split("```python\n")[1:]]
        for block in blocks:
            exec(block, {})
        assert len(commands) == len(blocks) == 2


def test_two_models_of_one_name(folders):
    with pytest.raises(ValueError, match="two models have one name"):
        Registry([folders["film"], folders["film"]])
    registry = Registry([f"one={folders['film']}", f"two={folders['film']}"])
    assert list(registry) == ["one", "two"]
    registry.close()


@pytest.mark.slow
def test_the_command_ends_with_0_at_sigterm_and_answers_what_is_in_hand(folders):
    import os
    import signal
    import sys

    command = [sys.executable, "-m", "tf_bert.commands.main", "serve", folders["film"], "--port=0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ}) as process:
        line = next(line for line in process.stderr if "http://" in line)
        address = "http://" + line.split("http://")[1].strip()
        with urllib.request.urlopen(f"{address}/readyz", timeout=10) as answer:
            assert answer.read() == b"ready\n"
        process.send_signal(signal.SIGHUP)
        assert "loaded film, version 1" in process.stderr.readline()
        assert Client(address, "film").predict(["a"])[0]["label"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
