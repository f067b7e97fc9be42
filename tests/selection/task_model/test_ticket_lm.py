"""The ticket model: its training texts are the prompts it will see, and its folder is a real one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from groupwise_selection.source.tickets import DESKS, Tickets, decisive
from groupwise_selection.task_model.config import TEMPLATE, TicketLM
from groupwise_selection.task_model.ticket_lm import texts, tokenizer, trained_folder


def test_a_training_text_is_a_prompt_with_its_answer():
    words = tokenizer()
    ids, places = texts(words, 40, np.random.default_rng(0))
    for row in ids.tolist():
        lines = words.decode(row).split("\n")
        assert len(lines) == 16
        pairs = [tuple(line.split(": ")) for line in lines]
        prompt = TEMPLATE.prompt(pairs[-1][0], pairs[:-1])
        assert words.encode(prompt) + words.encode(TEMPLATE.answer_text(pairs[-1][1])) == row
        assert [words.decode([row[place]]) for place in places.tolist()] == [f" {desk}" for _, desk in pairs]
        # A product has one desk within a text.
        assert len({decisive(ticket)[0] for ticket, _ in pairs}) == len(
            {(decisive(ticket)[0], desk) for ticket, desk in pairs}
        )
    seen = {tuple(words.decode(row).split("\n")[0].split(": ")) for row in ids.tolist()}
    assert len({desk for _, desk in seen}) == len(DESKS)


def test_the_folder_is_kept_and_loads_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path))
    config = TicketLM(width=16, num_steps=2, batch_size=4)
    folder = trained_folder(config)
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert trained_folder(config) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    assert trained_folder(TicketLM(width=16, num_steps=2, batch_size=4, seed=1)) != folder
    model, words = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.config.hidden_size == 16
    assert words.decode(words.encode("north gold web kim new atlas: elm\n")) == "north gold web kim new atlas: elm\n"


@pytest.mark.slow
def test_a_family_that_keeps_a_state_writes_answers_too(tmp_path, monkeypatch):
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path))
    model = TicketLM(width=16, num_steps=2, batch_size=4).open()
    queries = Tickets(num_train=2, num_validation=1, num_held_out=5).read().held_out
    demos = [query.pool[:size] for size, query in enumerate(queries)]
    written = model.generate(queries, demos)
    words, network = tokenizer(), model._backbone.model
    for query, shown, text in zip(queries, demos, written, strict=True):
        prompt = words.encode(
            TEMPLATE.prompt(query.question, [(demo.question, demo.answer) for demo in shown]), add_special_tokens=False
        )
        ids = list(prompt)
        for _ in range(16):
            ids.append(int(network(torch.tensor([ids])).logits[0, -1].argmax()))
        naive = words.decode(ids[len(prompt) :])
        assert text == naive.split("\n")[0].split(words.eos_token)[0].strip()
