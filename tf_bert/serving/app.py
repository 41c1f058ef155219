"""The HTTP interface of served models: TensorFlow Serving's REST and OpenAI's embeddings and completions.

A request is checked and tokenized in a thread, its sequences join a batch (`tf_bert.serving.batching`), and its answer
is written when all of them are done. No text of a request is logged.
"""

import asyncio
import base64
import contextlib
import hmac
import importlib.resources
import json
import math
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tf_bert.json_files import parse_json
from tf_bert.serving.batching import QueueFull
from tf_bert.serving.metrics import Metrics
from tf_bert.serving.models import Registry, ServedModel

LOOKS_FOR_CLIENT = 0.1  # seconds between two looks whether the client has gone
OPENAI = ("/v1/embeddings", "/v1/completions")


@dataclass(frozen=True)
class Limits:
    """What a request may ask for.

    Args:
        max_body_bytes: of the body.
        max_texts: texts of a request.
        max_tokens: tokens of a request, all texts together.
        body_seconds: time in which the body has to arrive.
    """

    max_body_bytes: int = 1 << 20
    max_texts: int = 256
    max_tokens: int = 65_536
    body_seconds: float = 10.0


def create_app(
    registry: Registry, limits: Limits = Limits(), *, api_key: str | None = None, cors_origins: Sequence[str] = ()
) -> Starlette:
    """Makes the ASGI application.

    Args:
        registry: the models.
        limits: of each request.
        api_key: if given, requests need the header ``Authorization: Bearer KEY``; health and metrics do not.
        cors_origins: pages of these origins may send requests from a browser; none by default.
    """
    server = _Server(registry, limits, api_key)
    routes = [
        Route("/", server.page),
        Route("/healthz", server.healthz),
        Route("/readyz", server.readyz),
        Route("/metrics", server.show_metrics),
        Route("/openapi.json", server.openapi),
        Route("/v1/models", server.models),
        Route("/v1/models/{name}:predict", server.predict, methods=["POST"]),
        Route("/v1/models/{name}/versions/{version:int}:predict", server.predict, methods=["POST"]),
        Route("/v1/models/{name}", server.status),
        Route("/v1/models/{name}/metadata", server.metadata),
        Route("/v1/embeddings", server.embeddings, methods=["POST"]),
        Route("/v1/completions", server.completions, methods=["POST"]),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(_) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(registry.close)

    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _error, Exception: _bug})
    if cors_origins:
        app.add_middleware(CORSMiddleware, allow_origins=list(cors_origins), allow_headers=["*"], allow_methods=["*"])
    return app


def _error(request: Request, error: HTTPException) -> Response:
    """One line that says what is wrong, in the form that the interface's clients expect."""
    body = {"error": error.detail}
    if request.url.path in OPENAI:
        kind = "invalid_request_error" if error.status_code < 500 else "server_error"
        body = {"error": {"message": error.detail, "type": kind, "param": None, "code": None}}
    return JSONResponse(body, error.status_code, headers=error.headers)


def _bug(request: Request, error: Exception) -> Response:
    return _error(request, HTTPException(500, f"the model failed: {type(error).__name__}"))


class _Server:
    def __init__(self, registry: Registry, limits: Limits, api_key: str | None):
        self.registry, self.limits, self.api_key = registry, limits, api_key
        self.metrics = Metrics(registry)

    # -- pages and state

    async def page(self, request: Request) -> Response:
        text = importlib.resources.files("tf_bert.serving").joinpath("page.html").read_text(encoding="utf-8")
        return HTMLResponse(text)

    async def healthz(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(self, request: Request) -> Response:
        return PlainTextResponse("ready\n") if self.registry.ready else PlainTextResponse("not ready\n", 503)

    async def show_metrics(self, request: Request) -> Response:
        return Response(generate_latest(self.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def openapi(self, request: Request) -> Response:
        from tf_bert.serving.openapi import describe

        return JSONResponse(describe(self.registry, self.limits, self.api_key is not None))

    async def models(self, request: Request) -> Response:
        self._authorize(request)
        listed = [
            {"id": name, "object": "model", "created": int(model.loaded), "owned_by": "tf_bert", "task": model.task}
            for name, model in self.registry.items()
        ]
        return JSONResponse({"object": "list", "data": listed})

    async def status(self, request: Request) -> Response:
        self._authorize(request)
        model = self._model(request.path_params["name"])
        state = {"version": str(model.version), "state": "AVAILABLE"}
        return JSONResponse({"model_version_status": [state | {"status": {"error_code": "OK", "error_message": ""}}]})

    async def metadata(self, request: Request) -> Response:
        self._authorize(request)
        model = self._model(request.path_params["name"])
        spec = {"name": model.name, "signature_name": "serving_default", "version": str(model.version)}
        return JSONResponse({"model_spec": spec, "metadata": model.describe()})

    # -- requests

    async def predict(self, request: Request) -> Response:
        """``instances`` (one by one) or ``inputs`` (by column), as TensorFlow Serving takes them."""
        async with self._counted(request) as counted:
            name = request.path_params["name"]
            body, model = await self._body(request), self._model(name)
            counted.model = model.name
            asked = request.path_params.get("version")
            if asked is not None and asked != model.version:
                raise HTTPException(404, f"model {name} has version {model.version}, not {asked}")
            _known(body, ("instances", "inputs", "signature_name"))
            if ("instances" in body) == ("inputs" in body):
                raise HTTPException(422, "give either instances (a list, one entry an example) or inputs (columns)")
            by_column = "inputs" in body
            instances = _rows(body["inputs"]) if by_column else body["instances"]
            if not isinstance(instances, list):
                raise HTTPException(422, f"instances: expected a list, found {_kind(instances)}")
            if model.task == "generate":
                raise HTTPException(422, f"{model.name} continues texts: send the request to /v1/completions")
            results, _ = await self._answer(request, model, instances)
            if not by_column:
                return JSONResponse({"predictions": results})
            columns = {key: [result[key] for result in results] for key in (results[0] if results else ())}
            return JSONResponse({"outputs": columns})

    async def embeddings(self, request: Request) -> Response:
        """OpenAI's embeddings: vectors of length as the model has it."""
        async with self._counted(request) as counted:
            body = await self._body(request)
            _known(body, ("input", "model", "encoding_format", "dimensions", "user"))
            model = self._model_for(body, "embed", "vectors")
            counted.model = model.name
            texts = body.get("input")
            texts = [texts] if isinstance(texts, str) else texts
            if not isinstance(texts, list) or not texts:
                raise HTTPException(422, f"input: expected a text or a list of texts, found {_kind(texts)}")
            if body.get("dimensions") not in (None, model.width):
                raise HTTPException(422, f"dimensions: {model.name} gives {model.width}; leave it out")
            form = body.get("encoding_format", "float")
            if form not in ("float", "base64"):
                raise HTTPException(422, f"encoding_format is {form!r}; expected float or base64")
            results, tokens = await self._answer(request, model, texts)
            data = [
                {"object": "embedding", "index": index, "embedding": _encoded(result["vector"], form)}
                for index, result in enumerate(results)
            ]
            usage = {"prompt_tokens": tokens, "total_tokens": tokens}
            return JSONResponse({"object": "list", "data": data, "model": model.name, "usage": usage})

    async def completions(self, request: Request) -> Response:
        """OpenAI's completions, by a GPT; streamed as server-sent events where that is asked for."""
        async with self._counted(request) as counted:
            body = await self._body(request)
            model = self._model_for(body, "generate", "completions")
            counted.model = model.name
            try:
                asked = await run_in_threadpool(model.parse, body)
            except ValueError as error:
                raise HTTPException(422, str(error)) from None
            head = {"id": f"cmpl-{time.time_ns():x}", "object": "text_completion", "created": int(time.time())}
            head |= {"model": model.name}
            if asked.stream:
                return StreamingResponse(self._events(model, asked, head), media_type="text/event-stream")
            try:
                async with model.turn():
                    found = await run_in_threadpool(model.complete, asked)
            except QueueFull as error:
                raise _full(error) from None
            choices = [
                {"text": text, "index": index, "logprobs": None, "finish_reason": why}
                for index, (text, why) in enumerate(found.choices)
            ]
            usage = {"prompt_tokens": found.prompt_tokens, "completion_tokens": found.completion_tokens}
            usage |= {"total_tokens": found.prompt_tokens + found.completion_tokens}
            return JSONResponse(head | {"choices": choices, "usage": usage})

    async def _events(self, model: ServedModel, asked: Any, head: dict[str, Any]) -> AsyncIterator[str]:
        async with model.turn():
            pieces = model.stream(asked)
            while (piece := await run_in_threadpool(next, pieces, None)) is not None:
                text, why = piece
                choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": why}
                yield f"data: {json.dumps(head | {'choices': [choice]}, ensure_ascii=False)}\n\n"
        yield "data: [DONE]\n\n"

    async def _answer(self, request: Request, model: ServedModel, instances: list) -> tuple[list, int]:
        """The results of all instances, in their order, and the number of their tokens."""
        if len(instances) > self.limits.max_texts:
            raise HTTPException(413, f"{len(instances)} examples in a request; at most {self.limits.max_texts}")
        try:
            encoded = await run_in_threadpool(model.encode_all, instances)
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        tokens = sum(one.tokens for one in encoded)
        if tokens > self.limits.max_tokens:
            raise HTTPException(413, f"{tokens} tokens in a request; at most {self.limits.max_tokens}")
        try:
            futures = model.batcher.submit([sequence for one in encoded for sequence in one.sequences])
        except QueueFull as error:
            raise _full(error) from None
        except RuntimeError:
            raise HTTPException(503, "the server is stopping") from None
        waiting = [asyncio.wrap_future(future) for future in futures]
        done = asyncio.gather(*waiting)
        gone = asyncio.create_task(_until_gone(request))
        try:
            await asyncio.wait([done, gone], return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                done.cancel()
                raise ClientDisconnect
            outputs = iter(await done)
        finally:
            gone.cancel()
            for future in waiting:
                future.cancel()
        grouped = [[next(outputs) for _ in one.sequences] for one in encoded]
        return await run_in_threadpool(model.decode_all, encoded, grouped), tokens

    async def _body(self, request: Request) -> dict[str, Any]:
        """The JSON object of a request."""
        self._authorize(request)
        length, parts = 0, []
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for part in request.stream():
                    length += len(part)
                    if length > self.limits.max_body_bytes:
                        raise HTTPException(413, f"the body is larger than {self.limits.max_body_bytes} bytes")
                    parts.append(part)
        except TimeoutError:
            raise HTTPException(408, f"the body did not arrive within {self.limits.body_seconds:g} seconds") from None
        try:
            body = parse_json(b"".join(parts).decode("utf-8"), "the body")
        except ValueError as error:
            raise HTTPException(400, str(error)) from None
        if not isinstance(body, dict):
            raise HTTPException(400, f"the body: expected a JSON object, found {_kind(body)}")
        return body

    def _authorize(self, request: Request) -> None:
        if self.api_key is None:
            return
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self.api_key.encode()):
            raise HTTPException(401, "a valid key is needed: Authorization: Bearer KEY", {"WWW-Authenticate": "Bearer"})

    def _model(self, name: str) -> ServedModel:
        model = self.registry.get(name)
        if model is None:
            raise HTTPException(404, f"there is no model {name!r}; there is {', '.join(self.registry)}")
        return model

    def _model_for(self, body: dict[str, Any], task: str, what: str) -> ServedModel:
        """The model that a request names, or the only one that does the task."""
        able = [name for name, model in self.registry.items() if model.task == task]
        name = body.get("model")
        if name is None and len(able) == 1:
            name = able[0]
        if not isinstance(name, str):
            raise HTTPException(422, f"model: expected a name, one of {', '.join(able) or 'none (no model does this)'}")
        model = self._model(name)
        if model.task != task:
            raise HTTPException(422, f"{name} gives no {what}: its task is {model.task}")
        return model

    @contextlib.asynccontextmanager
    async def _counted(self, request: Request) -> AsyncIterator["_Count"]:
        count, began, code = _Count(), time.perf_counter(), 200
        try:
            yield count
        except HTTPException as error:
            code = error.status_code
            raise
        except ClientDisconnect:
            code = 499  # as nginx counts them; nobody reads the answer
            raise HTTPException(code, "the client has gone") from None
        except Exception:
            code = 500
            raise
        finally:
            self.metrics.count(count.model, code, time.perf_counter() - began)


@dataclass
class _Count:
    model: str = ""


def _full(error: QueueFull) -> HTTPException:
    return HTTPException(429, f"{error}: try again in a moment", {"Retry-After": str(math.ceil(error.retry_after))})


async def _until_gone(request: Request) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(LOOKS_FOR_CLIENT)


def _known(body: dict[str, Any], keys: Sequence[str]) -> None:
    for key in body:
        if key not in keys:
            raise HTTPException(422, f"{key}: not a key of this request; known are {', '.join(keys)}")


def _rows(inputs: Any) -> list:
    """The examples of columns."""
    if not isinstance(inputs, dict):
        return inputs
    lengths = {key: len(column) for key, column in inputs.items() if isinstance(column, list)}
    if len(lengths) < len(inputs) or len(set(lengths.values())) > 1:
        raise HTTPException(422, f"inputs: expected columns, lists of one length; found {lengths or _kind(inputs)}")
    return [dict(zip(inputs, row, strict=True)) for row in zip(*inputs.values(), strict=True)]


def _encoded(vector: np.ndarray, form: str) -> Any:
    vector = np.asarray(vector, "<f4")
    return base64.b64encode(vector.tobytes()).decode() if form == "base64" else vector.tolist()


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number")
