"""A stand-in for a server of the Tinker API, spoken to over HTTP by the real SDK, with faults on request."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.tinker.bigram import Bigram, Datum

BASE = "bigram"


class StandIn:
    """The state of the server: adapters, states, futures, and the faults that a test asks for.

    Attributes:
        faults: route -> fault, one of `503`, `garbage`, `drip`, `old`; applied to the next `num_faults` calls of it.
        dead: whether the engine is gone: futures are never answered.
        archive: the bytes of every archive of weights; None where the server has none.
        steps_until_failure: the number of optimiser steps after which each further one fails.
        places: the most adapters at once.
    """

    def __init__(self, reduction: str = "mean_sequence", *, clips: bool = False, places: int = 4) -> None:
        self.reduction, self.clips, self.places = reduction, clips, places
        self.adapters: dict[str, Bigram] = {}
        self.samplers: dict[str, Bigram] = {}
        self.states: dict[str, Any] = {}
        self.futures: dict[str, Any] = {}
        self.faults: dict[str, str] = {}
        self.num_faults, self.dead, self.count = 1, False, 0
        self.num_steps = 0
        self.steps_until_failure: int | None = None
        self.calls: list[str] = []
        self.archive: bytes | None = None
        self.shapes = set[tuple[int, int]]()
        self.lock = threading.RLock()

    def fault(self, route: str) -> str | None:
        with self.lock:
            if route not in self.faults or self.num_faults <= 0:
                return None
            self.num_faults -= 1
            return self.faults[route]

    def answer(self, route: str, body: Mapping[str, Any]) -> Any:
        """Returns the JSON answer of a route; an engine's answers come by `retrieve_future`."""
        with self.lock:
            self.calls.append(route)
            self.count += 1
            if route == "retrieve_future":
                return self.futures[body["request_id"]]
            instant = getattr(self, f"_{route}", None)
            if instant is not None:
                return instant(body)
            name = f"future-{self.count}"
            try:
                self.futures[name] = getattr(self, f"_engine_{route}")(body)
            except LookupError as error:
                self.futures[name] = error
            return {"future_id": name, "status": "pending", "request_id": name, "model_id": body.get("model_id", "")}

    def _healthz(self, body: Mapping[str, Any]) -> Any:
        return {"status": "ok"}

    def _config(self, body: Mapping[str, Any]) -> Any:
        return {"pjwt_auth_enabled": False}

    def _telemetry(self, body: Mapping[str, Any]) -> Any:
        return {"status": "accepted"}

    def _create_session(self, body: Mapping[str, Any]) -> Any:
        return {"type": "create_session", "session_id": "session"}

    def _session_heartbeat(self, body: Mapping[str, Any]) -> Any:
        return {"type": "session_heartbeat"}

    def _get_server_capabilities(self, body: Mapping[str, Any]) -> Any:
        return {"supported_models": [{"model_name": BASE}]}

    def _unload_model(self, body: Mapping[str, Any]) -> Any:
        self.adapters.pop(body["model_id"], None)
        return {"request_id": "0", "model_id": body["model_id"]}

    def _create_model(self, body: Mapping[str, Any]) -> Any:
        name = f"model-{self.count}"
        future = f"future-{self.count}"
        if len(self.adapters) >= self.places:
            self.futures[future] = LookupError(f"Maximum number of LoRA adapters ({self.places}) reached")
        else:
            self.adapters[name] = Bigram(self.reduction, clips=self.clips)
            config = {"rank": body["lora_config"]["rank"], "alpha": 32.0, "seed": 0}
            self.futures[future] = {"model_id": name, "base_model": BASE, "lora_config": config}
        return {"model_id": name, "base_model": BASE, "status": "created", "request_id": future}

    def _engine_forward(self, body: Mapping[str, Any]) -> Any:
        data = [_datum(datum) for datum in body["forward_input"]["data"]]
        self.shapes.add((len(data), len(data[0][0])))
        policy = self.adapters[body["model_id"]]
        rows = [policy.log_probs(datum).tolist() for datum in data]
        outputs = [{"logprobs": {"data": row, "dtype": "float32", "shape": [len(row)]}} for row in rows]
        return {"loss_fn_output_type": "scalar", "loss_fn_outputs": outputs, "metrics": {}}

    def _engine_forward_backward(self, body: Mapping[str, Any]) -> Any:
        assert body["forward_backward_input"]["loss_fn"] == "importance_sampling"
        data = [_datum(datum) for datum in body["forward_backward_input"]["data"]]
        self.adapters[body["model_id"]].queue += data
        return {"loss_fn_output_type": "scalar", "loss_fn_outputs": [{} for _ in data], "metrics": {}}

    def _engine_optim_step(self, body: Mapping[str, Any]) -> Any:
        self.num_steps += 1
        if self.steps_until_failure is not None and self.num_steps > self.steps_until_failure:
            raise LookupError("the engine\n is gone")
        return {"metrics": self.adapters[body["model_id"]].step(body["adam_params"])}

    def _engine_save_weights(self, body: Mapping[str, Any]) -> Any:
        path = f"tinker://{body['model_id']}/weights/{body['path']}"
        self.states[path] = self.adapters[body["model_id"]].state()
        return {"path": path, "type": "save_weights"}

    def _engine_load_weights(self, body: Mapping[str, Any]) -> Any:
        if body["path"] not in self.states:
            raise LookupError(f"Checkpoint not found: {body['path']}")
        self.adapters[body["model_id"]].load(self.states[body["path"]], moments=bool(body["optimizer"]))
        return {"type": "load_weights"}

    def _engine_save_weights_for_sampler(self, body: Mapping[str, Any]) -> Any:
        name, policy = f"sampler-{self.count}", Bigram(self.reduction)
        policy.load(self.adapters[body["model_id"]].state(), moments=False)
        self.samplers[name] = policy
        path = f"tinker://{body['model_id']}/sampler_weights/{body.get('path') or name}"
        if body.get("path"):
            return {"path": path, "type": "save_weights_for_sampler"}
        return {"path": None, "type": "save_weights_for_sampler", "sampling_session_id": name}

    def _engine_asample(self, body: Mapping[str, Any]) -> Any:
        settings, context = body["sampling_params"], _tokens(body["prompt"])
        policy = self.samplers[body["sampling_session_id"]]
        seeds = [settings["seed"] * 1000 + number for number in range(body["num_samples"])]
        sequences = [policy.sample(context, settings, seed) for seed in seeds]
        return {"type": "sample", "sequences": sequences}


class _Handler(BaseHTTPRequestHandler):
    server: Any

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}"))

    def log_message(self, format: str, *args: Any) -> None:
        """Writes nothing."""

    def _answer(self, body: Mapping[str, Any]) -> None:
        state: StandIn = self.server.state
        route = self.path.partition("?")[0].rstrip("/").rpartition("/")[2]
        if state.dead and route == "retrieve_future":
            time.sleep(0.2)
            return self._send(408, b'{"detail": "Timeout waiting for result"}')
        fault = state.fault(route)
        if fault == "503":
            return self._send(503, b'{"detail": "the engine is starting"}')
        if fault == "garbage":
            return self._send(200, b'{"sequences": [')
        if route == "archive" and state.archive is not None:
            self.send_response(302)
            self.send_header("Location", f"http://{self.headers['Host']}/api/v1/download")
            self.send_header("Expires", "Thu, 01 Jan 2099 00:00:00 GMT")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if route == "download":
            return self._send(200, state.archive or b"")
        if fault == "old":
            return self._send(404, b'{"detail": "Not Found"}')
        if route == "archive":
            return self._send(404, b'{"detail": "Checkpoint not found"}')
        result = state.answer(route, body)
        if isinstance(result, LookupError):
            return self._send(400, json.dumps({"detail": str(result.args[0])}).encode())
        content = json.dumps(result).encode()
        return self._send(200, content, drip=fault == "drip")

    def _send(self, status: int, content: bytes, *, drip: bool = False) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            for place in range(0, len(content), 1 if drip else len(content) or 1):
                self.wfile.write(content[place : place + 1] if drip else content)
                if drip:
                    self.wfile.flush()
                    time.sleep(0.5)
        except OSError:
            pass


@contextmanager
def listening(state: StandIn) -> Iterator[str]:
    """Serves the state on loopback within the block and gives the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.state = state  # pyright: ignore[reportAttributeAccessIssue]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _tokens(prompt: Mapping[str, Any]) -> list[int]:
    return [token for chunk in prompt["chunks"] for token in chunk["tokens"]]


def _datum(datum: Mapping[str, Any]) -> Datum:
    return _tokens(datum["model_input"]), {name: column["data"] for name, column in datum["loss_fn_inputs"].items()}
