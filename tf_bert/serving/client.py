"""A client of `tf-bert serve`, in the manner of bert-as-service."""

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

import numpy as np


class ServerError(Exception):
    """The server refused a request.

    Attributes:
        status: HTTP's number.
        retry_after: seconds after which to try again, or None.
    """

    def __init__(self, message: str, status: int, retry_after: float | None = None):
        super().__init__(message)
        self.status, self.retry_after = status, retry_after


class Client:
    """Asks a server; needs nothing but numpy.

    Args:
        address: such as ``http://localhost:8501``.
        model: the name of the model to ask; by default the server's only one that does the task.
        api_key: the server's key, if it wants one.
        timeout: seconds to wait for an answer.

    Example:
        >>> client = Client("http://localhost:8501")
        >>> vectors = client.encode(["a film", "another film"])  # doctest: +SKIP
    """

    def __init__(self, address: str, model: str | None = None, api_key: str | None = None, timeout: float = 60.0):
        self.address, self.model, self.api_key, self.timeout = address.rstrip("/"), model, api_key, timeout

    def encode(self, texts: str | Sequence[str], normalize: bool = False) -> np.ndarray:
        """Returns the vectors of texts, float32 [N, H], in their order.

        Args:
            texts: N texts, or one.
            normalize: whether vectors get length 1.

        Raises:
            ServerError: the server refused.
        """
        texts = [texts] if isinstance(texts, str) else list(texts)
        vectors = np.array(
            [row["embedding"] for row in self._ask("/v1/embeddings", {"input": texts})["data"]], "float32"
        )
        return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True) if normalize else vectors

    def predict(self, instances: Sequence[Any]) -> list[Any]:
        """Returns the model's answers to examples: texts, or dicts of texts.

        Raises:
            ServerError: the server refused.
        """
        name = self.model or self._only_model()
        return self._send(f"/v1/models/{name}:predict", {"instances": list(instances)})["predictions"]

    def _only_model(self) -> str:
        names = [model["id"] for model in self._send("/v1/models")["data"]]
        if len(names) != 1:
            raise ValueError(
                f"{self.address} has the models {', '.join(names)}: name one, as Client(address, model=...)"
            )
        return names[0]

    def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._send(path, body | ({"model": self.model} if self.model else {}))

    def _send(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            retry = error.headers.get("Retry-After")
            try:
                said = json.load(error)["error"]
                message = said["message"] if isinstance(said, dict) else said
            except (ValueError, KeyError, TypeError):
                message = error.reason
            raise ServerError(message, error.code, retry and float(retry)) from None
        except urllib.error.URLError as error:
            raise ServerError(f"{self.address} does not answer: {error.reason}", 0) from None
