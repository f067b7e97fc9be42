"""A server that answers as vLLM does, by sampling from a real model: the program it stands for needs a GPU."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import SamplingConfig
from groupwise.causal_lm.sampler import sample


class StandIn(ThreadingHTTPServer):
    """Answers /v1/completions like a vLLM server with processed log-probs, by sampling from a real model one request at
    a time.
    """

    def __init__(self, backbone):
        super().__init__(("127.0.0.1", 0), Handler)
        self.backbone, self.lock, self.requests, self.fail = backbone, threading.Lock(), [], 0
        self.spoil = lambda answer: answer

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.requests.append(body)
            if server.fail:
                server.fail -= 1
                self.send_error(503)
                return
            if body["model"] != "served":
                self.send_error(404, "no such model")
                return
            settings = SamplingConfig(
                max_new_tokens=body["max_tokens"],
                temperature=body["temperature"] or 1.0,
                greedy=body["temperature"] == 0,
                top_p=body["top_p"],
                top_k=max(body["top_k"], 0),
            )
            out = sample(server.backbone, [body["prompt"]], 1, settings, [body["seed"]], eos=body["stop_token_ids"])
        log_prob = out.log_prob if out.behaviour_log_prob is None else out.behaviour_log_prob
        choice = {
            "finish_reason": "length" if out.truncated[0] else "stop",
            "logprobs": {
                "tokens": [f"token_id:{t}" for t in out.token_lists()[0]],
                "token_logprobs": log_prob[0].tolist(),
            },
        }
        answer = json.dumps(server.spoil({"choices": [choice]})).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)

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
