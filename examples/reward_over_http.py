"""A reward behind a server: the texts go out in one request, the values come back, and what fails is counted.

    python examples/reward_over_http.py serve 8765             # in one shell, or on another machine
    python examples/reward_over_http.py train http://127.0.0.1:8765 MODEL_FOLDER OUT

In a TOML file the reward is `kind = "callable"`, `path = "reward_over_http:Remote"`, `arguments = { address = "..." }`.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

import groupwise


class Scorer(BaseHTTPRequestHandler):
    """Answers `{"completions": [...], "answer": [...]}` by `{"values": [...]}`: the server's side."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        values = [
            float(text.strip().startswith(right))
            for text, right in zip(asked["completions"], asked["answer"], strict=True)
        ]
        body = json.dumps({"values": values}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Prints nothing for a request."""


class Remote:
    """Asks the server for the values of a batch; a request that fails leaves the reward missing, which runs count."""

    timeout_seconds = 20.0
    on_error = "missing"

    def __init__(self, address: str) -> None:
        self.address = address

    async def __call__(self, completions: list[str], answer: list[str], **columns: Any) -> list[float]:
        async with httpx.AsyncClient(timeout=10.0, trust_env=False) as client:
            reply = await client.post(self.address, json={"completions": completions, "answer": answer})
            reply.raise_for_status()
            return reply.json()["values"]


def serve(port: int) -> ThreadingHTTPServer:
    """Opens the server on this machine alone; the caller serves."""
    return ThreadingHTTPServer(("127.0.0.1", port), Scorer)


def train(address: str, model: str, out: str, num_steps: int = 20) -> dict[str, Any]:
    """Trains the model on sums, rewarded over HTTP, and returns the run's summary."""
    rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(5) for b in range(4)]
    settings = {"train.num_steps": num_steps, "train.prompts_per_step": 8, "domain.sampling.max_new_tokens": 3}
    run = groupwise.train(model, rewards={"right": Remote(address)}, data=rows, method="dr_grpo", out=out, **settings)
    return run.summary


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2])).serve_forever()
    else:
        print(train(*sys.argv[2:5]))
