"""The rule-based player that published agents are measured against: thresholds on the hand.

A wager is played on strong support, then the best number that extends an expedition or
whose colour is worth opening; else the card goes that helps neither side. A top card is
drawn when it beats the deck by what it is worth to oneself or to the other player.

It decides as the bots of https://github.com/sebastianrcnt/coolrl-lost-cities do, which
recorded games check, with one rule more: it never draws from piles for ever.
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
    lead,
    open_faces,
    top_faces,
)
from lostcities_jax.info_state import InfoState
from lostcities_jax.rules import Rules

_NEVER = -1e6  # below the score of any action
_LATE, _MIDDLE = 0.2, 0.35  # shares of all cards; a deck of no more is late, or no longer early


class HeuristicParams(NamedTuple):
    """What the presets differ in: NumPy scalars, or arrays of equal shape under `jax.vmap`.

    Attributes:
      open_sum: points in hand to open a colour, of all its points. float32[].
      open_cards: numbers in hand to open a colour, of a hand. float32[].
      wager_sum: points in hand to play a wager, of those to open. float32[].
      wager_cards: numbers in hand to play a wager, of a hand. float32[].
      last_opening: share of all cards; none is opened when the deck has no more. float32[].
    """

    open_sum: np.float32 | jax.Array = np.float32(0.5)
    open_cards: np.float32 | jax.Array = np.float32(0.4)
    wager_sum: np.float32 | jax.Array = np.float32(1.15)
    wager_cards: np.float32 | jax.Array = np.float32(0.34)
    last_opening: np.float32 | jax.Array = np.float32(0.2)


class _Asked(NamedTuple):
    """Thresholds in cards and points; float32[] each."""

    open_sum: jax.Array
    open_cards: jax.Array
    wager_sum: jax.Array
    wager_cards: jax.Array
    last_opening: jax.Array


class _Side(NamedTuple):
    """The expeditions of one player; float32[C, 1], and bool[C, R + 1] for `can_play`."""

    length: jax.Array
    wagers: jax.Array
    points: jax.Array
    last: jax.Array
    can_play: jax.Array


class _Situation(NamedTuple):
    """What the decisions share.

    Attributes:
      asked: the thresholds.
      own: the own expeditions.
      other: those of the other player.
      hand: copies in hand. float32[C, R + 1].
      opened: own expeditions with any card. float32[].
      from_here: numbers in hand of this face or above. float32[C, R + 1].
      points_from_here: their points. float32[C, R + 1].
      high_from_here: those of the upper half. float32[C, R + 1].
      commitment: how much a colour matters to oneself. float32[C, 1].
      gift: what a card is worth to the other player. float32[C, R + 1].
      deck_left: cards in the deck. float32[].
    """

    asked: _Asked
    own: _Side
    other: _Side
    hand: jax.Array
    opened: jax.Array
    from_here: jax.Array
    points_from_here: jax.Array
    high_from_here: jax.Array
    commitment: jax.Array
    gift: jax.Array
    deck_left: jax.Array


def card_scores(rules: Rules, params: HeuristicParams, info: InfoState) -> jax.Array:
    """Scores of playing and of discarding each card type; float32[2, C, R + 1].

    One question comes before the next: a wager, a number, a first opening, a discard.
    """
    now = _situation(rules, params, info)
    plan = _plan(rules, now)
    playable = (now.hand > 0) & now.own.can_play
    is_number = ~is_wager(rules)
    plays = jnp.full_like(now.hand, _NEVER)
    for fits, scores in (
        (is_number, _first_opening_scores(rules, now, plan)),
        (is_number, _number_scores(rules, now, plan)),
        (~is_number, _wager_scores(rules, now)),
    ):
        scores = jnp.where(playable & fits, scores, _NEVER)
        plays = jnp.where((scores > _NEVER).any(), scores, plays)
    discards = jnp.where((plays > _NEVER).any(), _NEVER, _discard_scores(rules, now))
    return jnp.stack([plays, discards])


def draw_scores(
    rules: Rules, params: HeuristicParams, info: InfoState
) -> tuple[jax.Array, jax.Array]:
    """Scores of drawing from the deck, and each card from its pile; float32[], [C, R + 1]."""
    now, ahead = _situation(rules, params, info), lead(rules, info)
    deck = _by_time(rules, now, early=2.0, middle=1.0, late=-1.0)
    return deck + jnp.where(ahead > 0, 0.75, -1.25), _pile_scores(rules, now, ahead)


def _situation(rules: Rules, params: HeuristicParams, info: InfoState) -> _Situation:
    hand = hand_counts(rules, info.hand).astype(jnp.float32)
    own, other = _side(rules, info.own_expeditions), _side(rules, info.other_expeditions)
    numbers = jnp.where(is_wager(rules), 0, hand)
    return _Situation(
        asked=_asked(rules, params),
        own=own,
        other=other,
        hand=hand,
        opened=(own.length > 0).sum().astype(jnp.float32),
        from_here=_from_here(numbers),
        points_from_here=_from_here(numbers * _values(rules)),
        high_from_here=_from_here(numbers * _is_high(rules)),
        commitment=_commitment(rules, own, hand),
        gift=_gift(rules, other, top_faces(rules, info)),
        deck_left=info.deck_left.astype(jnp.float32),
    )


def _asked(rules: Rules, params: HeuristicParams) -> _Asked:
    def cards(share: jax.Array | np.float32) -> jax.Array:
        return jnp.clip(jnp.round(rules.hand * share), 1, rules.hand)

    all_points = float(face_values(rules).sum())
    open_sum = jnp.minimum(-0.8 * rules.penalty, params.open_sum * all_points)
    return _Asked(
        open_sum=open_sum,
        open_cards=cards(params.open_cards),
        wager_sum=open_sum * params.wager_sum,
        wager_cards=cards(params.wager_cards),
        last_opening=jnp.maximum(1, jnp.round(rules.num_cards * params.last_opening)),
    )


def _side(rules: Rules, columns: jax.Array) -> _Side:
    counts = column_counts(rules, columns).astype(jnp.float32)
    values = _values(rules)
    return _Side(
        length=counts.sum(-1, keepdims=True),
        wagers=counts[:, :1],
        points=(counts * values).sum(-1, keepdims=True),
        last=jnp.where(counts > 0, values, 0).max(-1, keepdims=True),
        can_play=open_faces(rules, columns),
    )


def _commitment(rules: Rules, own: _Side, hand: jax.Array) -> jax.Array:
    """How much a colour matters, by its cards on the table and in hand; float32[C, 1]."""
    playable = hand * own.can_play
    numbers = playable[:, 1:].sum(-1, keepdims=True)
    points = (playable * _values(rules)).sum(-1, keepdims=True)
    table = 5 * (own.length > 0) + 2 * own.wagers + 0.25 * own.points
    in_hand = 1.2 * numbers + 1.5 * playable[:, :1] + 0.15 * points
    return table + in_hand + 0.05 * _bonus_hope(rules, own.length, playable.sum(-1, keepdims=True))


def _bonus_hope(rules: Rules, length: jax.Array, to_come: jax.Array) -> jax.Array:
    """Worth of the bonus that `length` cards have, or come to with those to come; float32."""
    if rules.cards_per_color < rules.bonus_cards:
        return jnp.zeros_like(length)
    missing = rules.bonus_cards - length
    hope = jnp.where(to_come >= missing, 0.4 * rules.bonus, 0.0)
    return jnp.where(missing <= 0, float(rules.bonus), hope)


def _gift(rules: Rules, other: _Side, tops: jax.Array) -> jax.Array:
    """What a card is worth to the other player as far as all can see; float32[C, R + 1]."""
    values = _values(rules)
    on_top = jnp.where(is_wager(rules), 1.5, 1 + 0.1 * values)
    interest = 5 * (other.length > 0) + 2 * other.wagers + 0.25 * other.points + 0.4 * other.last
    interest += (on_top * (tops & other.can_play)).sum(-1, keepdims=True)
    if rules.cards_per_color >= rules.bonus_cards:
        interest += 0.2 * rules.bonus * (other.length + 1 >= rules.bonus_cards)
    worth = jnp.where(is_wager(rules), 8 + 1.5 * interest, values * (0.4 + 0.25 * interest))
    return jnp.where(other.can_play, worth, 0)


def _plan(rules: Rules, now: _Situation) -> jax.Array:
    """What opening a colour with this card promises, 0 or less for nothing; float32[C, R + 1].

    The more colours are open, the fewer reasons count and the more one has to promise.
    """
    values, asked, opened = _values(rules), now.asked, now.opened
    count, points, high = now.from_here, now.points_from_here, now.high_from_here
    wagers = now.hand[:, :1]
    price = jnp.select([opened <= 1, opened == 2, opened == 3], [0.0, 6.0, 14.0], 28.0)
    is_middle = now.deck_left <= _middle(rules)

    has_sum = points >= asked.open_sum
    top_heavy = (high > 0) | (points >= 0.85 * float(values.sum()))
    is_strong = (opened <= 3) & (count >= asked.open_cards) & has_sum & top_heavy
    is_hopeful = (opened <= 2) & (count >= 2) & (points >= 0.65 * asked.open_sum) & (high > 0)
    much = jnp.maximum(-rules.penalty, 1.4 * asked.open_sum)
    is_rare = (count > asked.open_cards) & (points >= much) & (high >= 2) & ~is_middle
    is_high_end = (opened <= 2) & is_middle & (count >= 1) & (values >= 8)
    return jnp.select(
        [is_strong, is_hopeful, is_rare & (opened != 3), is_high_end],
        [
            6 + 0.25 * points + 0.8 * count + 0.5 * wagers - price,
            3 + 0.18 * points + 0.7 * count + 0.4 * wagers - price,
            10 + 0.3 * points + count + 0.7 * high - price,
            1.5 + 0.2 * values - price,
        ],
        0.0,
    )


def _wager_scores(rules: Rules, now: _Situation) -> jax.Array:
    """Scores of playing a wager, _NEVER on weak support; float32[C, R + 1]."""
    numbers, points = now.from_here[:, 1:2], now.points_from_here[:, 1:2]
    is_supported = (numbers >= now.asked.wager_cards) & (points >= now.asked.wager_sum)
    is_time = now.deck_left > now.asked.last_opening
    score = points + 2 * numbers + _bonus_after_play(rules, now) - _lateness(rules, now)
    return jnp.where(is_supported & is_time, score, _NEVER)


def _number_scores(rules: Rules, now: _Situation, plan: jax.Array) -> jax.Array:
    """Scores of playing a number, _NEVER where a colour is not worth opening; [C, R + 1]."""
    values = _values(rules)
    bonus = _bonus_after_play(rules, now)
    hurry = _by_time(rules, now, early=0.0, middle=0.8, late=2.0)
    projected = now.own.points + now.points_from_here
    extending = 8.0 + values.max() - values + hurry * values + 3 * now.own.wagers + bonus
    extending -= 6 * (projected < now.asked.open_sum)

    low_first = np.maximum(0, _middle_face(rules) - np.arange(rules.faces))[None]
    opening = now.points_from_here + 2 * now.from_here + 1.5 * now.hand[:, :1] + plan
    opening += rules.penalty + low_first + bonus - _lateness(rules, now)
    is_worth = (plan > 0) & (now.deck_left > now.asked.last_opening)
    return jnp.where(now.own.length > 0, extending, jnp.where(is_worth, opening, _NEVER))


def _first_opening_scores(rules: Rules, now: _Situation, plan: jax.Array) -> jax.Array:
    """Scores of opening at all when nothing is open yet, _NEVER if no card is fit; [C, R + 1]."""
    values = _values(rules)
    numbers, points = now.from_here[:, 1:2], now.points_from_here[:, 1:2]
    is_some = (numbers >= 2) | (points >= 0.5 * now.asked.open_sum)
    is_fit = (plan > 0) | is_some | (now.deck_left <= _middle(rules))
    score = plan + 0.2 * points + values.max() + 1 - values
    return jnp.where(is_fit & (now.opened == 0), score, _NEVER)


def _discard_scores(rules: Rules, now: _Situation) -> jax.Array:
    """Scores of discarding, highest for what helps neither side; float32[C, R + 1]."""
    values = _values(rules)
    number = 0.8 * values + now.commitment + 7 * (now.own.length > 0)
    number += 5 * ((now.commitment >= 6) & _is_low(rules))
    wager = 7 + 1.2 * now.commitment + 4
    use = jnp.where(is_wager(rules), wager, number)
    return jnp.where(now.own.can_play, -use, 20) - now.gift + jnp.where(now.other.can_play, 0, 6)


def _pile_scores(rules: Rules, now: _Situation, ahead: jax.Array) -> jax.Array:
    """Scores of drawing a card from its pile, so many points ahead; float32[C, R + 1]."""
    values = _values(rules)
    is_open = now.own.length > 0
    support = _support(rules, now)
    crowding = jnp.select([now.opened >= 4, now.opened >= 3], [20.0, 10.0], 0.0)
    base = 0.4 * now.gift + 1.5 * (ahead <= 0) - crowding * ~is_open

    numbers, points = now.from_here[:, 1:2], now.points_from_here[:, 1:2]
    is_weak = (numbers < now.asked.wager_cards) | (points < now.asked.wager_sum)
    wanted = jnp.where(~is_open & is_weak, support - 0.5, 6 + now.commitment)
    wager = base + jnp.where(now.own.can_play, wanted, -2)

    in_hand = (now.hand * now.own.can_play).sum(-1, keepdims=True)
    bonus = _bonus_hope(rules, now.own.length, in_hand + 1)
    use = values + 0.7 * now.commitment + jnp.where(is_open, 5, support)
    number = base + jnp.where(now.own.can_play, use, -2) + bonus

    is_refused = ~is_open & (now.opened >= 4) & (support < 6) & (now.gift < 10) & (ahead > -15)
    is_refused &= is_weak | ~is_wager(rules)
    return jnp.where(is_refused, -8, jnp.where(is_wager(rules), wager, number))


def _support(rules: Rules, now: _Situation) -> jax.Array:
    """What speaks for opening the colour of a card on a pile some day; float32[C, R + 1]."""
    wagers, plan = now.hand[:, :1], _plan(rules, now)
    has_high = _is_high(rules) | (now.high_from_here > 0)
    would_open = (now.from_here + 1 >= now.asked.open_cards) & has_high
    would_open &= now.points_from_here + _values(rules) >= now.asked.open_sum
    is_start = (now.opened <= 2) & ((now.from_here > 0) | (wagers > 0))
    share = jnp.select([now.opened <= 2, now.opened == 3], [0.25, 0.1], 0.0)
    return (
        0.8 * now.from_here
        + wagers
        + 1.5 * _is_low(rules)
        + jnp.where(would_open, 4, 1.5 * is_start)
        + share * jnp.where(now.opened == 3, jnp.maximum(plan, 0), plan)
    )


def _bonus_after_play(rules: Rules, now: _Situation) -> jax.Array:
    """Worth of the bonus once a playable card of the colour has been played; float32[C, 1]."""
    left = (now.hand * now.own.can_play).sum(-1, keepdims=True) - 1
    return _bonus_hope(rules, now.own.length + 1, left)


def _lateness(rules: Rules, now: _Situation) -> jax.Array:
    """What an opening costs as the deck runs out; float32[]."""
    return _by_time(rules, now, early=0.0, middle=8.0, late=15.0)


def _by_time(rules: Rules, now: _Situation, early: float, middle: float, late: float) -> jax.Array:
    """One of three numbers, by how far the deck has run out; float32[]."""
    is_late, is_middle = now.deck_left <= _late(rules), now.deck_left <= _middle(rules)
    return jnp.select([is_late, is_middle], [late, middle], early)


def _from_here(amounts: jax.Array) -> jax.Array:
    """Sum over this face and all above, for each face; float32[..., R + 1]."""
    faces = amounts.shape[-1]
    return amounts @ np.tril(np.ones((faces, faces), np.float32))


def _late(rules: Rules) -> int:
    return max(1, round(rules.num_cards * _LATE))


def _middle(rules: Rules) -> int:
    return max(_late(rules) + 1, round(rules.num_cards * _MIDDLE))


def _middle_face(rules: Rules) -> int:
    return (rules.ranks + 1) // 2


def _is_high(rules: Rules) -> np.ndarray:
    """Marks the middle face and those above; bool[1, R + 1]."""
    return np.arange(rules.faces)[None] >= _middle_face(rules)


def _is_low(rules: Rules) -> np.ndarray:
    """Marks the middle face and those below, wagers too; bool[1, R + 1]."""
    return np.arange(rules.faces)[None] <= _middle_face(rules)


def _values(rules: Rules) -> np.ndarray:
    """Points of each face, wagers 0; float32[1, R + 1]."""
    return face_values(rules).astype(np.float32)[None]
