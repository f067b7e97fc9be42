"""How a vLLM server is started where there is no GPU."""

from __future__ import annotations

ARGUMENTS = ("--enforce-eager", "--no-enable-chunked-prefill", "--max-num-batched-tokens=8192", "--max-num-seqs=64")
"""Without a compiler; and without prompts that are forwarded in pieces, which with a seed end the server."""
