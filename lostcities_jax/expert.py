"""The strongest rule-based player: weighs in points what each card is worth to both sides.

It takes the action that loses least: a play loses the cards it skips, a discard what the
card was worth to oneself and what it gives away.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax.cards import face_values
from lostcities_jax.features import (
    column_counts,
    hand_counts,
    is_wager,
    open_faces,
    pile_counts,
    top_faces,
)
from lostcities_jax.info_state import InfoState
from lostcities_jax.rules import NUM_PLAYERS, Rules


class ExpertParams(NamedTuple):
    """How it weighs: NumPy scalars, or arrays of equal shape under `jax.vmap`.

    Worth is measured in *cards*, the points of an average number card (6 in classic), so
    that one player suits every rule set. The *surplus* of a colour is what its expedition is
    expected to score in the end, before wagers multiply it. The defaults are what evolution
    strategies found on classic games against relatives of itself.

    Attributes:
      hope: share of its fair part of the unseen cards it expects to draw. float32[].
      pile_hope: chance it sees in getting the top card of a pile. float32[].
      open_margin: surplus asked for to open an expedition, in cards. float32[].
      open_crowding: more surplus asked for per expedition already open. float32[].
      open_weight: score of opening per card of surplus over what is asked for. float32[].
      wager_margin: surplus asked for to play a wager, in cards. float32[].
      wager_weight: score of a wager per card of surplus over that. float32[].
      play_bias: score of any play. float32[].
      play_hurry: more score for plays when turns run out, in cards. float32[].
      gap_cost: cost of what a play skips, per card. float32[].
      keep: cost of discarding what is of use to oneself, per card. float32[].
      deny: cost of discarding what is of use to the other player, per card. float32[].
      deny_unopened: chance that the other player opens another expedition. float32[].
      cover: score of burying such cards on a pile, less own ones, per card. float32[].
      interest_width: cards of surplus between no use for a colour and full use. float32[].
      take: score of drawing from a pile what is of use to oneself, per card. float32[].
      take_deny: score of drawing what is of use to the other player, per card. float32[].
      deck_worth: score of a draw from the deck. float32[].
      stall: score of one more turn near the end, by a draw from a pile. float32[].
    """

    hope: np.float32 | jax.Array = np.float32(0.54)
    pile_hope: np.float32 | jax.Array = np.float32(0.51)
    open_margin: np.float32 | jax.Array = np.float32(0.23)
    open_crowding: np.float32 | jax.Array = np.float32(0.44)
    open_weight: np.float32 | jax.Array = np.float32(0.79)
    wager_margin: np.float32 | jax.Array = np.float32(-0.51)
    wager_weight: np.float32 | jax.Array = np.float32(0.2)
    play_bias: np.float32 | jax.Array = np.float32(0.13)
    play_hurry: np.float32 | jax.Array = np.float32(1.74)
    gap_cost: np.float32 | jax.Array = np.float32(0.62)
    keep: np.float32 | jax.Array = np.float32(1.13)
    deny: np.float32 | jax.Array = np.float32(1.28)
    deny_unopened: np.float32 | jax.Array = np.float32(0.54)
    cover: np.float32 | jax.Array = np.float32(0.58)
    interest_width: np.float32 | jax.Array = np.float32(4.11)
    take: np.float32 | jax.Array = np.float32(1.31)
    take_deny: np.float32 | jax.Array = np.float32(0.26)
    deck_worth: np.float32 | jax.Array = np.float32(0.61)
    stall: np.float32 | jax.Array = np.float32(0.85)


class _Side(NamedTuple):
    """The expeditions of one player.

    Attributes:
      counts: copies of each face played. float32[C, R + 1].
      started: whether any card has been played. bool[C, 1].
      can_play: faces that may still be played. bool[C, R + 1].
      factor: what each point counts, 1 + wagers. float32[C, 1].
    """

    counts: jax.Array
    started: jax.Array
    can_play: jax.Array
    factor: jax.Array


class _Outlook(NamedTuple):
    """What a bot makes of its info state, by card type; worth in cards.

    Attributes:
      hand: copies in hand. float32[C, R + 1].
      own: the own expeditions.
      usable: copies in hand there are turns to play. float32[C, R + 1].
      to_come: copies expected to be played, from hand or drawn. float32[C, R + 1].
      surplus: expected final score of each expedition before wagers. float32[C, 1].
      own_worth: what a copy adds to the own expedition. float32[C, R + 1].
      other_use: what a copy is expected to bring the other player. float32[C, R + 1].
      tops: whether the card lies on top of its pile. bool[C, R + 1].
      hurry: how far turns fall short of playing the hand, 0 to 1. float32[].
    """

    hand: jax.Array
    own: _Side
    usable: jax.Array
    to_come: jax.Array
    surplus: jax.Array
    own_worth: jax.Array
    other_use: jax.Array
    tops: jax.Array
    hurry: jax.Array


def card_scores(rules: Rules, params: ExpertParams, info: InfoState) -> jax.Array:
    """Scores of playing and of discarding a copy of each card type; float32[2, C, R + 1]."""
    outlook = _outlook(rules, params, info)
    return jnp.stack(
        [_play_scores(rules, params, outlook), _discard_scores(rules, params, outlook)]
    )


def draw_scores(rules: Rules, params: ExpertParams, info: InfoState) -> tuple[jax.Array, jax.Array]:
    """Scores of drawing from the deck, and each card from its pile; float32[], [C, R + 1]."""
    outlook = _outlook(rules, params, info)
    would_take = outlook.own_worth * _interest(params, outlook, _values(rules))
    use = params.take * would_take + params.take_deny * outlook.other_use
    # Whoever draws from a pile hands on the last turn: with an even deck it comes back.
    is_even = info.deck_left % 2 == 0
    one_more_turn = jnp.where(is_even, outlook.hurry, -1.0 * (info.deck_left <= rules.hand))
    return jnp.asarray(params.deck_worth), use + params.stall * one_more_turn


def _outlook(rules: Rules, params: ExpertParams, info: InfoState) -> _Outlook:
    hand = hand_counts(rules, info.hand).astype(jnp.float32)
    own, other = _side(rules, info.own_expeditions), _side(rules, info.other_expeditions)
    tops = top_faces(rules, info)
    unseen = _unseen(rules, info, hand + own.counts + other.counts)
    deck_left = info.deck_left.astype(jnp.float32)
    turns = jnp.ceil(deck_left / NUM_PLAYERS)
    busy = (hand * own.can_play * own.started)[:, 1:].sum()

    usable = _usable(hand, own, turns, jnp.maximum(turns - busy, 0))
    share = params.hope * deck_left / NUM_PLAYERS / jnp.maximum(unseen.sum(), 1)
    drawn = jnp.minimum(share * unseen + params.pile_hope * tops, 1)
    to_come = usable + own.can_play * drawn
    bonus_chance = _bonus_chance(rules, own, to_come)
    points = ((own.counts + to_come) * _values(rules)).sum(-1, keepdims=True)
    surplus = points + (rules.penalty + rules.bonus * bonus_chance) / _points_per_card(rules)
    return _Outlook(
        hand=hand,
        own=own,
        usable=usable,
        to_come=to_come,
        surplus=surplus,
        own_worth=_own_worth(rules, params, own, surplus, bonus_chance),
        other_use=_other_use(rules, params, other, deck_left),
        tops=tops,
        hurry=jnp.clip((busy - turns + 2) / 2, 0, 1),
    )


def _side(rules: Rules, columns: jax.Array) -> _Side:
    counts = column_counts(rules, columns).astype(jnp.float32)
    return _Side(
        counts=counts,
        started=columns[:, None] > 0,
        can_play=open_faces(rules, columns),
        factor=1 + counts[:, :1],
    )


def _usable(hand: jax.Array, own: _Side, turns: jax.Array, spare_turns: jax.Array) -> jax.Array:
    """Copies in hand there are turns to play, the highest first; float32[C, R + 1].

    Expeditions under way share all turns; each of the others could have the spare ones.
    """
    playable = hand * own.can_play
    ahead_of_started = _above((playable * own.started).sum(0))
    in_time = jnp.where(own.started, ahead_of_started < turns, _above(playable) < spare_turns)
    return playable * in_time


def _bonus_chance(rules: Rules, own: _Side, to_come: jax.Array) -> jax.Array:
    """Chance that an expedition grows to the bonus; float32[C, 1]."""
    length = (own.counts + to_come).sum(-1, keepdims=True)
    return jnp.clip((length - rules.bonus_cards + 2) / 2, 0, 1)


def _own_worth(
    rules: Rules,
    params: ExpertParams,
    own: _Side,
    surplus: jax.Array,
    bonus_chance: jax.Array,
) -> jax.Array:
    """What a copy adds to the own expedition; float32[C, R + 1]."""
    bonus_per_card = rules.bonus / rules.bonus_cards / _points_per_card(rules)
    number = own.factor * _values(rules) + bonus_chance * bonus_per_card
    wager = jnp.maximum(surplus - params.wager_margin, 0)
    return jnp.where(is_wager(rules), wager, number) * own.can_play


def _other_use(rules: Rules, params: ExpertParams, other: _Side, deck_left: jax.Array) -> jax.Array:
    """What a copy is expected to bring the other player; float32[C, R + 1]."""
    chance = params.deny_unopened * deck_left / rules.deck_after_deal
    worth = other.factor * np.where(is_wager(rules), np.float32(1), _values(rules))
    return jnp.where(other.started, 1.0, chance) * worth * other.can_play


def _interest(params: ExpertParams, outlook: _Outlook, more: jax.Array | np.ndarray) -> jax.Array:
    """Chance of playing in a colour if its surplus rose by `more`; float32[C, R + 1]."""
    over = outlook.surplus - _asked(params, outlook) + more
    unopened = jnp.clip(0.5 + over / params.interest_width, 0, 1)
    return jnp.where(outlook.own.started, 1.0, unopened)


def _asked(params: ExpertParams, outlook: _Outlook) -> jax.Array:
    """Surplus asked for to open an expedition; float32[]."""
    return params.open_margin + params.open_crowding * outlook.own.started.sum()


def _play_scores(rules: Rules, params: ExpertParams, outlook: _Outlook) -> jax.Array:
    """Scores of playing a copy of each card type; float32[C, R + 1]."""
    opening = params.open_weight * (outlook.surplus - _asked(params, outlook))
    wager = params.wager_weight * (outlook.surplus - params.wager_margin)
    skipped = _below(outlook.own_worth * outlook.to_come)
    return (
        params.play_bias
        + params.play_hurry * outlook.hurry * (outlook.usable > 0)
        + jnp.where(outlook.own.started, 0, opening)
        + jnp.where(is_wager(rules), wager, 0)
        - params.gap_cost * skipped
    )


def _discard_scores(rules: Rules, params: ExpertParams, outlook: _Outlook) -> jax.Array:
    """Scores of discarding a copy of each card type; float32[C, R + 1]."""
    interest = _interest(params, outlook, jnp.float32(0))
    own_use = outlook.own_worth * outlook.usable * interest
    would_take = outlook.own_worth * _interest(params, outlook, _values(rules))
    burying = params.deny * outlook.other_use - params.take * would_take
    buried = (burying * outlook.tops).sum(-1, keepdims=True)
    return params.cover * buried - params.keep * own_use - params.deny * outlook.other_use


def _unseen(rules: Rules, info: InfoState, seen: jax.Array) -> jax.Array:
    """Copies in the deck or unknown in the other hand; float32[C, R + 1]."""
    copies = np.array([rules.wagers] + [1] * rules.ranks, np.float32)
    known = pile_counts(rules, info.piles) + column_counts(rules, info.other_known)
    return jnp.asarray(copies[None]) - seen - known


def _points_per_card(rules: Rules) -> float:
    """Points of an average number card."""
    return float(face_values(rules)[1:].mean())


def _values(rules: Rules) -> np.ndarray:
    """Worth of each face in cards, wagers 0; float32[1, R + 1]."""
    return (face_values(rules) / _points_per_card(rules)).astype(np.float32)[None]


def _above(amounts: jax.Array) -> jax.Array:
    """Sum over all higher faces, for each face; float32[..., R + 1]."""
    faces = amounts.shape[-1]
    return amounts @ np.tril(np.ones((faces, faces), np.float32), -1)


def _below(amounts: jax.Array) -> jax.Array:
    """Sum over all lower faces, for each face; float32[..., R + 1]."""
    faces = amounts.shape[-1]
    return amounts @ np.triu(np.ones((faces, faces), np.float32), 1)
