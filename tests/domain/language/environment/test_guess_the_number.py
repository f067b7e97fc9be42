from __future__ import annotations

from groupwise.domain.language.environment import GuessTheNumber, Step


def test_a_game_of_four_turns_that_is_won():
    game = GuessTheNumber(num_guesses=4).open()
    assert game.reset({"secret": 7}) == ""
    assert game.step("3") == Step("higher")
    assert game.step("seven") == Step("number ?")
    assert game.step("9") == Step("lower")
    assert game.step("7") == Step(reward=1.0, done=True)


def test_the_last_guess_ends_a_lost_game():
    game = GuessTheNumber(num_guesses=1).open()
    game.reset({"secret": 7})
    assert game.step("8") == Step(reward=0.0, done=True)
