"""A server that answers as vLLM does, by sampling from a real model, and fails as a real one cannot be made to."""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from safetensors.torch import load_file

from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import SamplingConfig
from groupwise.causal_lm.sampler import GroupBatch, sample


class StandIn(ThreadingHTTPServer):
    """Streams /v1/completions like a vLLM server with processed log-probs, one request at a time, and reloads weights.

    Attributes:
        fail: the number of completions that are answered 503 from now on.
        breaks: how the next completions end after two tokens: `abort`, `close` (the connection), `silence`.
        spoil: changes every event before it is sent.
        max_model_len: the tokens of a text at most; a completion that would be longer ends there, as vLLM's do.
        num_tokens: what it says that it has read and written for all, where it counts.
        inspection: how it describes its model, where it knows that method; else it answers 500.
        takes_weights: false answers a reload with 200 and does nothing, `None` with 500.
        has_developer_routes: false answers 404 to whatever changes the server.
        asleep: whether it gave its memory back; then it answers 500 to all that needs weights.
        sleeps: how often it was put to sleep.
        seconds: how long a completion takes at least.
        tokenizer: answers /tokenize, where there is one; false answers 500.
        requests, syncs: the bodies of completions, and the folders of reloads.
    """

    daemon_threads = True
    request_queue_size = 128
    """As many connections may wait as a batch has members; more than the 5 of the class would be reset."""

    def __init__(self, backbone):
        super().__init__(("127.0.0.1", 0), Handler)
        self.backbone, self.lock, self.requests, self.syncs, self.fail = backbone, threading.Lock(), [], [], 0
        self.spoil = lambda answer: answer
        self.breaks, self.silence, self.seconds = [], 5.0, 0.0
        self.asleep, self.sleeps, self.tokenizer, self.inspection = False, 0, None, None
        self.num_tokens, self.max_model_len = None, 10_000
        self.takes_weights = self.has_developer_routes = True
        self.first_weights = copy.deepcopy(backbone.model.state_dict())

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"

    def restart(self):
        """Forgets the weights that it was sent, as a server that was started anew."""
        self.backbone.model.load_state_dict(self.first_weights)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def do_GET(self):
        if self.path == "/v1/models":
            self.send_response(200)
            self.end_headers()
            models = [{"id": "served", "max_model_len": self.server.max_model_len}]
            self.wfile.write(json.dumps({"data": models}).encode())
            return
        if self.path != "/metrics" or self.server.num_tokens is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.end_headers()
        lines = [
            f'vllm:prompt_tokens_total{{engine="0"}} {self.server.num_tokens}.0',
            'vllm:generation_tokens_total{engine="0"} 7.0',
            'vllm:generation_tokens_created{engine="0"} 1.7e+09',
        ]
        self.wfile.write("\n".join(lines).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        server, path = self.server, self.path.partition("?")[0]
        with server.lock:
            if self.server.asleep and path in ("/v1/completions", "/collective_rpc"):
                self.send_error(500, "asleep")
                return
            if path == "/v1/completions":
                self.complete(server, body)
                return
            if path == "/tokenize" and server.tokenizer is False:
                self.send_error(500, "Internal Server Error")
                return
            if path == "/tokenize" and server.tokenizer is not None:
                content = json.dumps({"tokens": server.tokenizer.encode(body["prompt"])}).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(content)
                return
            if not server.has_developer_routes:
                self.send_error(404, "Not Found")
                return
            if path in ("/sleep", "/wake_up"):
                server.asleep = path == "/sleep"
                server.sleeps += server.asleep
            if path == "/collective_rpc" and body["method"] == "get_model_inspection":
                if server.inspection is None:
                    self.send_error(500, "no such method")
                    return
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps({"results": [server.inspection]}).encode())
                return
            if path == "/collective_rpc":
                folder = Path(body["kwargs"]["weights_path"])
                server.syncs.append(folder.name)
                if server.takes_weights is None:
                    self.send_error(500, "AssertionError")
                    return
                if server.takes_weights:
                    server.backbone.model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
            self.send_response(200)
            self.end_headers()

    def complete(self, server, body):
        server.requests.append(body)
        time.sleep(server.seconds)
        if server.fail:
            server.fail -= 1
            self.send_error(503)
            return
        if body["model"] != "served":
            self.send_error(404, "no such model")
            return
        room = server.max_model_len - len(body["prompt"])
        if room < 1:
            self.refuse("This model's maximum context length is exceeded.")
            return
        body["max_tokens"] = min(body["max_tokens"], room)
        settings = SamplingConfig(
            max_new_tokens=body["max_tokens"],
            temperature=body["temperature"] or 1.0,
            greedy=body["temperature"] == 0,
            top_p=body["top_p"],
            top_k=max(body["top_k"], 0),
        )
        out = sample(
            server.backbone, GroupBatch([body["prompt"]], 1, settings, [body["seed"]]), eos=body["stop_token_ids"]
        )
        log_prob = out.log_prob if out.behaviour_log_prob is None else out.behaviour_log_prob
        tokens, values = out.token_lists()[0], log_prob[0].tolist()
        finish = "length" if out.truncated[0] else "stop"
        end = server.breaks.pop(0) if server.breaks and len(tokens) > 2 else None
        self.send_response(200)
        self.end_headers()
        for place, (token, value) in enumerate(zip(tokens, values, strict=False)):
            if end is not None and place == 2:
                if end == "silence":
                    server.lock.release()
                    time.sleep(server.silence)
                    server.lock.acquire()
                if end == "abort":
                    self.event(server, [], [], "abort")
                return
            self.event(server, [f"token_id:{token}"], [value], finish if place == len(tokens) - 1 else None)
        self.wfile.write(b"data: [DONE]\n\n")

    def refuse(self, message):
        self.send_response(400)
        self.end_headers()
        self.wfile.write(json.dumps({"error": {"message": message, "code": 400}}).encode())

    def event(self, server, tokens, values, finish):
        choice = {
            "text": "x" * len(tokens),
            "finish_reason": finish,
            "logprobs": {"tokens": tokens, "token_logprobs": values},
        }
        self.wfile.write(b"data: " + json.dumps(server.spoil({"choices": [choice]})).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, *args):
        pass


@contextmanager
def serving(backbone: Backbone) -> Iterator[StandIn]:
    """The server, running in a thread for the length of the block."""
    with StandIn(backbone) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield running
        finally:
            running.shutdown()
            thread.join()
