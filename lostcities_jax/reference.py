"""The oracle: the rules of the game in plain Python, written to be read.

Every other engine of the package is tested against this one, so it shares no code with
them beyond the rule set and the card codec, and takes no shortcut for speed.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Sequence

from lostcities_jax.cards import all_cards, card_type, printed_face
from lostcities_jax.rules import CARD_PHASE, DRAW_PHASE, NUM_PLAYERS, Rules

WAGER = 0


def column_score(rules: Rules, faces: Sequence[int]) -> int:
    """Points of one expedition, the unit every score is a sum of.

    Args:
      rules: the rule set.
      faces: faces of the cards played, 0 for a wager and r for the r-th number card.
    """
    if not faces:
        return 0
    wagers = faces.count(WAGER)
    total = sum(printed_face(rules, face) for face in faces)
    bonus = rules.bonus if len(faces) >= rules.bonus_cards else 0
    return (total + rules.penalty) * (1 + wagers) + bonus


class Game:
    """One game in progress, changed in place by `step`.

    Action ids: `0..H-1` play a slot of the hand, `H..2H-1` discard slot `action - H`,
    `2H` draw from the deck, `2H + 1 + c` draw from the pile of colour `c`. Slots index the
    sorted hand; of several equal cards every slot is an action of its own.

    Attributes:
      rules: the rule set.
      deck: card types left in the deck, the next one first.
      hands: for each player, the sorted card types of the hand.
      expeditions: for each player and colour, the faces played, in order.
      piles: for each colour, the faces discarded; the last one is on top.
      known: for each player, how many cards of each type everyone knows to be in the hand,
        since they were taken from a pile.
      player: the player to act, 0 or 1.
      phase: `CARD_PHASE` or `DRAW_PHASE`.
      barred: the colour discarded this turn, whose pile may not be drawn from; or None.
      turn: turns completed by both players together.

    Raises:
      ValueError: on construction, for a deck that is not the cards of the game.
    """

    def __init__(self, rules: Rules, deck: Iterable[int]):
        """Deals both hands, one card at a time and player 0 first, off the top of `deck`."""
        self.rules = rules
        self.deck = _checked_deck(rules, deck)
        self.hands: list[list[int]] = [[] for _ in range(NUM_PLAYERS)]
        for _ in range(rules.hand):
            for hand in self.hands:
                hand.append(self.deck.pop(0))
        for hand in self.hands:
            hand.sort()
        self.expeditions: list[list[list[int]]] = [
            [[] for _ in range(rules.colors)] for _ in range(NUM_PLAYERS)
        ]
        self.piles: list[list[int]] = [[] for _ in range(rules.colors)]
        self.known: list[Counter[int]] = [Counter() for _ in range(NUM_PLAYERS)]
        self.player = 0
        self.phase = CARD_PHASE
        self.barred: int | None = None
        self.turn = 0

    def copy(self) -> "Game":
        """Another game in the same position, to be played on by itself."""
        other = copy.copy(self)
        other.deck = self.deck[:]
        other.hands = [hand[:] for hand in self.hands]
        other.expeditions = [[column[:] for column in columns] for columns in self.expeditions]
        other.piles = [pile[:] for pile in self.piles]
        other.known = [known.copy() for known in self.known]
        return other

    @property
    def is_over(self) -> bool:
        """Whether the game has ended, by the last deck card or by `max_turns`."""
        return not self.deck or self.turn >= self.rules.max_turns

    @property
    def timed_out(self) -> bool:
        """Whether `max_turns` ended the game, so that its score is only as it stands."""
        return self.is_over and bool(self.deck)

    def scores(self) -> list[int]:
        """Points of both players as the table stands; cards in hand are worth nothing."""
        return [
            sum(column_score(self.rules, column) for column in columns)
            for columns in self.expeditions
        ]

    def legal_actions(self) -> list[int]:
        """Action ids allowed now, ascending; none when the game is over."""
        if self.is_over:
            return []
        if self.phase == CARD_PHASE:
            return self._legal_plays() + self._legal_discards()
        return self._legal_draws()

    def step(self, action: int) -> None:
        """Carries out one action of the player to act.

        Raises:
          ValueError: for an action that is not legal now, or when the game is over.
        """
        if self.is_over:
            raise ValueError(f"action {action!r}; allowed: none, the game is over")
        legal = self.legal_actions()
        if action not in legal:
            phase = "card" if self.phase == CARD_PHASE else "draw"
            raise ValueError(f"action {action!r} in the {phase} phase; allowed: {legal}")
        hand = self.rules.hand
        if action < hand:
            self._play(action)
        elif action < 2 * hand:
            self._discard(action - hand)
        elif action == 2 * hand:
            self._draw_from_deck()
        else:
            self._draw_from_pile(action - 2 * hand - 1)

    def _legal_plays(self) -> list[int]:
        return [
            slot for slot, card in enumerate(self.hands[self.player]) if self._extends_column(card)
        ]

    def _legal_discards(self) -> list[int]:
        return [self.rules.hand + slot for slot in range(self.rules.hand)]

    def _legal_draws(self) -> list[int]:
        deck_action = 2 * self.rules.hand
        return [deck_action] + [
            deck_action + 1 + color
            for color, pile in enumerate(self.piles)
            if pile and color != self.barred
        ]

    def _extends_column(self, card: int) -> bool:
        color, face = divmod(card, self.rules.faces)
        column = self.expeditions[self.player][color]
        if not column:
            return True
        # Wagers have face 0, the lowest: on a column whose last face is 0, any card may
        # follow; on a number, only a higher number may, which bars wagers too.
        return column[-1] == WAGER or face > column[-1]

    def _play(self, slot: int) -> None:
        color, face = self._leave_hand(slot)
        self.expeditions[self.player][color].append(face)
        self.phase = DRAW_PHASE

    def _discard(self, slot: int) -> None:
        color, face = self._leave_hand(slot)
        self.piles[color].append(face)
        self.barred = color
        self.phase = DRAW_PHASE

    def _leave_hand(self, slot: int) -> tuple[int, int]:
        card = self.hands[self.player].pop(slot)
        known = self.known[self.player]
        # Equal cards cannot be told apart: the one that leaves is taken to be the known one.
        if known[card] > 1:
            known[card] -= 1
        else:
            del known[card]
        return divmod(card, self.rules.faces)

    def _draw_from_deck(self) -> None:
        self._enter_hand(self.deck.pop(0))
        self._end_turn()

    def _draw_from_pile(self, color: int) -> None:
        card = card_type(self.rules, color, self.piles[color].pop())
        self.known[self.player][card] += 1
        self._enter_hand(card)
        self._end_turn()

    def _enter_hand(self, card: int) -> None:
        hand = self.hands[self.player]
        hand.append(card)
        hand.sort()

    def _end_turn(self) -> None:
        self.player = 1 - self.player
        self.phase = CARD_PHASE
        self.barred = None
        self.turn += 1


def _checked_deck(rules: Rules, deck: Iterable[int]) -> list[int]:
    cards = [int(card) for card in deck]
    if len(cards) != rules.num_cards:
        raise ValueError(f"the deck has {len(cards)} cards; allowed: {rules.num_cards}")
    expected = Counter(all_cards(rules).tolist())
    for card, count in Counter(cards).items():
        if count > expected[card]:
            color, face = divmod(card, rules.faces)
            raise ValueError(
                f"the deck has {count} of card type {card} (colour {color}, "
                f"printed {printed_face(rules, face)}); allowed: {expected[card]}"
            )
    return cards
