"""The game for OpenSpiel (Lanctot et al. 2019), registered as `python_lost_cities`.

Every card that is dealt or drawn from the deck is a chance node of its own; its outcomes are card
types. A hand comes in ascending order, since it is a set: the tree would hold every order of it
otherwise. The parameters are the fields of `Rules`, as in
`pyspiel.load_game("python_lost_cities(colors=2,ranks=2)")`. Actions are those of the engine.
"""

import dataclasses
import math
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from lostcities_jax.adapters.extra import missing
from lostcities_jax.adapters.views import feature_bounds, host_features, largest_difference
from lostcities_jax.cards import all_cards
from lostcities_jax.drawing import to_text
from lostcities_jax.positions import state_of
from lostcities_jax.reference import Game
from lostcities_jax.rules import CARD_PHASE, NUM_PLAYERS, Rules

try:
    import pyspiel
except ImportError as error:
    raise missing(error, "pyspiel") from None

_PLAYERS = tuple(range(NUM_PLAYERS))

GAME_TYPE = pyspiel.GameType(
    short_name="python_lost_cities",
    long_name="Lost Cities",
    dynamics=pyspiel.GameType.Dynamics.SEQUENTIAL,
    chance_mode=pyspiel.GameType.ChanceMode.EXPLICIT_STOCHASTIC,
    information=pyspiel.GameType.Information.IMPERFECT_INFORMATION,
    utility=pyspiel.GameType.Utility.ZERO_SUM,
    reward_model=pyspiel.GameType.RewardModel.TERMINAL,
    max_num_players=NUM_PLAYERS,
    min_num_players=NUM_PLAYERS,
    provides_information_state_string=True,
    provides_information_state_tensor=True,
    provides_observation_string=True,
    provides_observation_tensor=True,
    parameter_specification={field.name: field.default for field in dataclasses.fields(Rules)},
)


class _Event(NamedTuple):
    """One half-step of a player.

    Attributes:
      player: who took it.
      action: what was done.
      card: the card that was played, discarded or drawn.
      is_public: whether the other player has seen the card.
    """

    player: int
    action: int
    card: int
    is_public: bool


class _Position(NamedTuple):
    """All that has happened; never changed, so that copies of a state share it.

    Attributes:
      rules: the rule set.
      dealt: cards dealt so far, the hand of player 0 and then that of player 1.
      game: the reference game once all are dealt. The order of its deck means nothing.
      draws: whether the player to act has asked for a card of the deck.
      events: half-steps from the deal on.
    """

    rules: Rules
    dealt: tuple[int, ...] = ()
    game: Game | None = None
    draws: bool = False
    events: tuple[_Event, ...] = ()

    def __deepcopy__(self, memo: dict) -> "_Position":
        return self


class LostCitiesGame(pyspiel.Game):
    """The game of a rule set."""

    def __init__(self, params: dict[str, Any] | None = None):
        """Takes the parameters of OpenSpiel; ValueError of one line for impossible rules."""
        self.rules = Rules(**(params or {}))
        most = float(largest_difference(self.rules))
        info = pyspiel.GameInfo(
            num_distinct_actions=self.rules.num_actions,
            max_chance_outcomes=self.rules.colors * self.rules.faces,
            num_players=NUM_PLAYERS,
            min_utility=-most,
            max_utility=most,
            utility_sum=0.0,
            max_game_length=2 * self.rules.max_turns,
        )
        super().__init__(GAME_TYPE, info, params or {})

    def new_initial_state(self) -> "LostCitiesState":
        """A state before the deal."""
        return LostCitiesState(self)

    def make_py_observer(self, iig_obs_type: Any = None, params: Any = None) -> "_Observer":
        """What a player has seen and done (perfect recall), or what the table shows."""
        return _Observer(self.rules, iig_obs_type is not None and iig_obs_type.perfect_recall)


class LostCitiesState(pyspiel.State):
    """A state: the deal, then the half-steps of the players and the cards they draw."""

    def __init__(self, game: LostCitiesGame):
        """A state before the deal."""
        super().__init__(game)
        self.position = _Position(game.rules)

    def current_player(self) -> int:
        """The player to act, or chance."""
        game = self.position.game
        if game is None or self.position.draws:
            return pyspiel.PlayerId.CHANCE
        return pyspiel.PlayerId.TERMINAL if game.is_over else game.player

    def is_terminal(self) -> bool:
        """Whether the deck is used up or the turn limit reached."""
        return self.position.game is not None and self.position.game.is_over

    def returns(self) -> list[float]:
        """The difference in points at the end, 0 before."""
        game = self.position.game
        if game is None or not game.is_over:
            return [0.0, 0.0]
        first, second = game.scores()
        return [float(first - second), float(second - first)]

    def chance_outcomes(self) -> list[tuple[int, float]]:
        """Every card that may come next, with its probability."""
        weights = _chance_weights(self.position)
        total = sum(weights.values())
        return [(card, weight / total) for card, weight in weights.items()]

    def _legal_actions(self, player: int) -> list[int]:
        game = self.position.game
        return [] if game is None else game.legal_actions()

    def _apply_action(self, action: int) -> None:
        if self.is_chance_node():
            self.position = _after_chance(self.position, action)
        else:
            self.position = _after_action(self.position, action)

    def _action_to_string(self, player: int, action: int) -> str:
        if player == pyspiel.PlayerId.CHANCE:
            return f"card {action}"
        return _action_text(self.position.rules, action)

    def __str__(self) -> str:
        return " | ".join(_remembered(self.position, player) for player in _PLAYERS)


class _Observer:
    """Observations as OpenSpiel asks for them, see its `observation.py`.

    With perfect recall the tensor holds the player, the hand that was dealt, and for each
    half-step the action and the card, as far as the player saw them. Without, it holds the
    features of `views.features`, all 0 before the deal.
    """

    def __init__(self, rules: Rules, perfect_recall: bool):
        self.rules = rules
        self.perfect_recall = perfect_recall
        self.types = rules.colors * rules.faces
        if perfect_recall:
            half_step = rules.num_actions + 2 + self.types
            size = NUM_PLAYERS + self.types + 2 * rules.max_turns * half_step
        else:
            size = len(feature_bounds(rules)[0])
        self.tensor = np.zeros(size, np.float32)
        name = "information_state" if perfect_recall else "observation"
        self.dict = {name: self.tensor}

    def set_from(self, state: LostCitiesState, player: int) -> None:
        """Fills the tensor with what a player knows."""
        self.tensor.fill(0)
        position = state.position
        if self.perfect_recall:
            self._remember(position, player)
        elif position.game is not None:
            self.tensor[:] = host_features(self.rules)(position.game, player)

    def string_from(self, state: LostCitiesState, player: int) -> str:
        """What a player knows as text."""
        position = state.position
        if self.perfect_recall:
            return _remembered(position, player)
        if position.game is None:
            return f"dealt {list(_dealt_to(position, player))}"
        return to_text(self.rules, state_of(position.game), player)

    def _remember(self, position: _Position, player: int) -> None:
        actions = self.rules.num_actions
        self.tensor[player] = 1
        for card in _dealt_to(position, player):
            self.tensor[NUM_PLAYERS + card] += 1
        rows = self.tensor[NUM_PLAYERS + self.types :].reshape(2 * self.rules.max_turns, -1)
        for row, event in zip(rows, position.events, strict=False):
            # The slot of a card says how many lower cards are in the hand: not for others.
            if event.player == player or event.action >= 2 * self.rules.hand:
                row[event.action] = 1
            if event.action < 2 * self.rules.hand:
                row[actions + (event.action >= self.rules.hand)] = 1
            if event.player == player or event.is_public:
                row[actions + 2 + event.card] = 1


def _left(position: _Position) -> Counter[int]:
    """How many cards of each type chance may deal or draw."""
    if position.game is not None:
        return Counter(position.game.deck)
    return Counter(all_cards(position.rules).tolist()) - Counter(position.dealt)


def _chance_weights(position: _Position) -> dict[int, int]:
    """Cards that chance may deal or draw next, in ascending order, by how often they come."""
    left = _left(position)
    if position.game is not None:
        return dict(sorted(left.items()))
    begun = len(position.dealt) % position.rules.hand
    return _deal_weights(
        left, position.dealt[len(position.dealt) - begun :], position.rules.hand - begun
    )


def _deal_weights(left: Counter[int], held: tuple[int, ...], missing: int) -> dict[int, int]:
    """Number of hands, of all that begin with `held`, that go on with each card.

    Args:
      left: copies of each card type that are not dealt.
      held: the lowest cards of the hand, in ascending order.
      missing: cards that are still to come.
    """
    last = held[-1] if held else -1
    copies_held = held.count(last)
    ways_of_last = math.comb(left[last] + copies_held, copies_held)
    weights = {}
    for card in sorted(card for card in left if card >= last):
        own = copies_held if card == last else 0
        copies = left[card] + own
        above = sum(count for other, count in left.items() if other > card)
        hands = sum(
            math.comb(copies, own + more) * math.comb(above, missing - more)
            for more in range(1, min(left[card], missing) + 1)
        )
        if hands:
            weights[card] = hands * (1 if card == last else ways_of_last)
    return weights


def _after_chance(position: _Position, card: int) -> _Position:
    allowed = list(_chance_weights(position))
    if card not in allowed:
        raise ValueError(f"card {card} cannot come next; allowed: {allowed}")
    if position.game is None:
        return _after_deal(position._replace(dealt=(*position.dealt, card)))
    game = position.game.copy()
    game.deck.remove(card)
    game.deck.insert(0, card)
    action = 2 * position.rules.hand
    event = _Event(game.player, action, card, is_public=False)
    game.step(action)
    return position._replace(game=game, draws=False, events=(*position.events, event))


def _after_deal(position: _Position) -> _Position:
    """The position with a game, if both hands are there."""
    if len(position.dealt) < NUM_PLAYERS * position.rules.hand:
        return position
    hands = [_dealt_to(position, player) for player in _PLAYERS]
    in_turn = [card for pair in zip(*hands, strict=True) for card in pair]
    deck = [*in_turn, *_left(position).elements()]
    return position._replace(game=Game(position.rules, deck))


def _after_action(position: _Position, action: int) -> _Position:
    before = position.game
    assert before is not None
    hand, is_legal = before.rules.hand, action in before.legal_actions()
    if is_legal and action == 2 * hand:
        return position._replace(draws=True)
    game = before.copy()
    game.step(action)  # which names the legal ones where this is none
    if before.phase == CARD_PHASE:
        card = before.hands[before.player][action % hand]
    else:
        color = action - 2 * hand - 1
        card = color * before.rules.faces + before.piles[color][-1]
    event = _Event(before.player, action, card, is_public=True)
    return position._replace(game=game, events=(*position.events, event))


def _dealt_to(position: _Position, player: int) -> tuple[int, ...]:
    return position.dealt[player * position.rules.hand :][: position.rules.hand]


def _remembered(position: _Position, player: int) -> str:
    """Everything a player has seen and done, in order."""
    parts = [f"player {player} dealt {list(_dealt_to(position, player))}"]
    for event in position.events:
        own = event.player == player
        action = _action_text(position.rules, event.action, with_slot=own)
        card = f" {event.card}" if own or event.is_public else ""
        parts.append(f"{event.player}: {action}{card}")
    return "; ".join(parts)


def _action_text(rules: Rules, action: int, with_slot: bool = True) -> str:
    hand = rules.hand
    if action < 2 * hand:
        slot = f" slot {action % hand}" if with_slot else ""
        return f"{'play' if action < hand else 'discard'}{slot}"
    return "draw deck" if action == 2 * hand else f"draw pile {action - 2 * hand - 1}"


pyspiel.register_game(GAME_TYPE, LostCitiesGame)
