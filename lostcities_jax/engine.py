"""The rules in motion: legal masks, half-steps, scores, and the end of a game.

Every function works on one game and is batched by `jax.vmap`. A turn is two half-steps, a
card and then a draw. The half-steps know mover and phase statically, which is what a
lockstep traversal wants; `step` serves callers whose lanes are at different phases.
Look-ups are one-hot selections, not gathers: those are slow inside vectorised loops.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import checkify

from lostcities_jax.arrays import along_last
from lostcities_jax.cards import EMPTY, face_values
from lostcities_jax.rules import CARD_PHASE, DRAW_PHASE, NUM_PLAYERS, Rules
from lostcities_jax.state import State


def current_player(state: State) -> jax.Array:
    """The player to move; int32[]."""
    return (state.turn % NUM_PLAYERS).astype(jnp.int32)


def is_terminal(rules: Rules, state: State) -> jax.Array:
    """Whether the game is over: deck used up, or `max_turns` reached; bool[]."""
    return (state.deck_left == 0) | (state.turn >= rules.max_turns)


def is_timeout(rules: Rules, state: State) -> jax.Array:
    """Whether `max_turns` ended the game before the deck did; bool[]."""
    return (state.deck_left > 0) & (state.turn >= rules.max_turns)


def column_bits(rules: Rules, columns: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Unpacks columns to wager bits int32[..., W] and number bits int32[..., R]."""
    shifts = jnp.arange(rules.cards_per_color, dtype=jnp.uint16)
    columns = columns[..., None]
    bits = ((columns >> along_last(shifts, columns.ndim)) & jnp.uint16(1)).astype(jnp.int32)
    return bits[..., : rules.wagers], bits[..., rules.wagers :]


def column_scores(rules: Rules, columns: jax.Array) -> jax.Array:
    """Points of expeditions given as column bits; int32 of the same shape."""
    wager_bits, number_bits = column_bits(rules, columns)
    wagers, numbers = wager_bits.sum(-1), number_bits.sum(-1)
    values = along_last(face_values(rules)[1:], number_bits.ndim)
    points = (number_bits * values).sum(-1)
    bonus = jnp.where(wagers + numbers >= rules.bonus_cards, rules.bonus, 0)
    return jnp.where(columns > 0, (points + rules.penalty) * (1 + wagers) + bonus, 0)


def scores(rules: Rules, state: State) -> jax.Array:
    """Points of both players as the table stands; int32[P]."""
    return column_scores(rules, state.expeditions).sum(-1)


def legal_card_actions(rules: Rules, state: State, player: int) -> jax.Array:
    """Legal card actions: play slot 0..H-1, then discard slot 0..H-1; bool[2H].

    A number must be higher than every number of its expedition, and a wager needs an
    expedition without numbers: in both cases no bit at or above the card's may be set.
    """
    hand = state.hands[player]
    color, face = hand // rules.faces, hand % rules.faces
    of_color = color[:, None] == jnp.arange(rules.colors, dtype=jnp.uint8)[None]
    column = jnp.where(of_color, state.expeditions[player][None], jnp.uint16(0)).max(-1)
    lowest_barred_bit = rules.wagers + jnp.maximum(face, 1).astype(jnp.uint16) - 1
    held = hand != EMPTY
    return jnp.concatenate([held & (column >> lowest_barred_bit == 0), held])


def legal_draw_actions(rules: Rules, state: State) -> jax.Array:
    """Legal draws: the deck, then the pile of each colour; bool[1 + C]."""
    not_barred = jnp.arange(rules.colors, dtype=jnp.uint8) != state.barred
    piles = (state.pile_sizes > 0) & not_barred
    return jnp.concatenate([(state.deck_left > 0)[None], piles])


def legal_mask(rules: Rules, state: State) -> jax.Array:
    """Legal actions of either phase, card actions first; bool[A], all False when over."""
    masks = [legal_card_actions(rules, state, player) for player in range(NUM_PLAYERS)]
    card = jnp.where(current_player(state) == 0, masks[0], masks[1])
    draw = legal_draw_actions(rules, state)
    in_phase = jnp.concatenate(
        [
            jnp.full_like(card, True) & (state.phase == CARD_PHASE),
            jnp.full_like(draw, True) & (state.phase == DRAW_PHASE),
        ]
    )
    return jnp.concatenate([card, draw]) & in_phase & ~is_terminal(rules, state)


def card_half_step(rules: Rules, state: State, player: int, action: jax.Array) -> State:
    """Plays or discards a card; `player` is static. A finished game stays as it is.

    Args:
      rules: the rule set.
      state: a state in the card phase with `player` to move.
      player: the mover.
      action: legal card action, see `legal_card_actions`. int32[].
    """
    going = ~is_terminal(rules, state)
    is_play = action < rules.hand
    slot = jnp.where(is_play, action, action - rules.hand)
    hand = state.hands[player]
    slots = jnp.arange(rules.hand)
    card = jnp.where(slots == slot, hand, jnp.uint8(0)).max()
    color, face = card // rules.faces, card % rules.faces
    rest = jnp.concatenate([hand[1:], jnp.full((1,), EMPTY, jnp.uint8)])
    of_color = (jnp.arange(rules.colors, dtype=jnp.uint8) == color) & going
    positions = jnp.arange(rules.cards_per_color, dtype=jnp.uint8)[None]
    on_top = positions == state.pile_sizes[:, None]
    discarded = of_color & ~is_play

    column = state.expeditions[player]
    played = jnp.where(of_color & is_play, _add_card(rules, column, face), column)
    seen = state.known[player]
    return state._replace(
        hands=_set_row(state.hands, player, jnp.where((slots < slot) | ~going, hand, rest)),
        expeditions=_set_row(state.expeditions, player, played),
        known=_set_row(
            state.known, player, jnp.where(of_color, _remove_card(rules, seen, face), seen)
        ),
        piles=jnp.where(discarded[:, None] & on_top, face, state.piles),
        pile_sizes=state.pile_sizes + discarded.astype(jnp.uint8),
        barred=jnp.where(is_play | ~going, jnp.uint8(rules.colors), color),
        phase=jnp.where(going, jnp.uint8(DRAW_PHASE), state.phase),
    )


def draw_half_step(rules: Rules, state: State, player: int, action: jax.Array) -> State:
    """Draws a card and ends the turn; `player` is static. A finished game stays as it is.

    Args:
      rules: the rule set.
      state: a state in the draw phase with `player` to move.
      player: the mover.
      action: legal draw action, see `legal_draw_actions`. int32[].
    """
    going = ~is_terminal(rules, state)
    from_deck = (action == 0) & going
    colors = jnp.arange(rules.colors, dtype=jnp.uint8)
    drawn_pile = (colors == (action - 1).astype(jnp.uint8)) & ~from_deck & going
    top = state.pile_sizes[:, None] - jnp.uint8(1)
    pile_positions = jnp.arange(rules.cards_per_color, dtype=jnp.uint8)[None]
    taken = drawn_pile[:, None] & (pile_positions == top)
    face = jnp.where(taken, state.piles, jnp.uint8(0)).max()
    pile_card = (action - 1).astype(jnp.uint8) * jnp.uint8(rules.faces) + face
    positions = jnp.arange(rules.num_cards, dtype=jnp.uint8)
    next_card = jnp.uint8(rules.num_cards) - state.deck_left
    deck_card = jnp.where(positions == next_card, state.deck, jnp.uint8(0)).max()

    card = jnp.where(from_deck, deck_card, pile_card)
    hand = state.hands[player]
    below = jnp.concatenate([jnp.zeros((1,), jnp.uint8), hand[:-1]])
    with_card = jnp.maximum(below, jnp.minimum(hand, card))
    seen = state.known[player]
    return state._replace(
        deck_left=state.deck_left - from_deck.astype(jnp.uint8),
        hands=_set_row(state.hands, player, jnp.where(going, with_card, hand)),
        known=_set_row(
            state.known, player, jnp.where(drawn_pile, _add_card(rules, seen, face), seen)
        ),
        piles=jnp.where(taken, jnp.uint8(EMPTY), state.piles),
        pile_sizes=state.pile_sizes - drawn_pile.astype(jnp.uint8),
        barred=jnp.where(going, jnp.uint8(rules.colors), state.barred),
        turn=state.turn + going.astype(jnp.uint16),
        phase=jnp.where(going, jnp.uint8(CARD_PHASE), state.phase),
    )


def step(rules: Rules, state: State, action: jax.Array) -> State:
    """Takes one action of either phase by whoever is to move.

    An illegal action, or any action in a finished game, leaves the state as it is: under
    `jit` nothing can be raised, so hosts check `legal_mask` first, or use `checked_step`.

    Args:
      rules: the rule set.
      state: any state.
      action: an action of `legal_mask`. int32[].
    """
    is_legal = _is_legal(rules, state, action)
    local = jnp.where(state.phase == CARD_PHASE, action, action - rules.num_card_actions)
    branches = [
        functools.partial(half_step, rules, player=player)
        for player in range(NUM_PLAYERS)
        for half_step in (card_half_step, draw_half_step)
    ]
    branch = 2 * current_player(state) + state.phase
    moved = jax.lax.switch(
        branch, [lambda s, a, f=f: f(s, action=a) for f in branches], state, local
    )
    return jax.tree.map(lambda new, old: jnp.where(is_legal, new, old), moved, state)


def checked_step(rules: Rules, state: State, action: jax.Array) -> State:
    """Takes one action as `step` does, and lets an illegal one fail under `jit` too.

    It must run within `jax.experimental.checkify.checkify`, whose error says which action it was
    and raises it when thrown: `error, state = jax.jit(checkify.checkify(step))(...)`.

    Args:
      rules: the rule set.
      state: any state.
      action: an action. int32[].
    """
    checkify.check(
        _is_legal(rules, state, action),
        "action {action} is not legal in turn {turn}, phase {phase}; allowed: those of legal_mask",
        action=action,
        turn=state.turn,
        phase=state.phase,
    )
    return step(rules, state, action)


def hand_columns(rules: Rules, hand: jax.Array) -> jax.Array:
    """A hand as column bits; uint8[H] to uint16[C]."""
    color, face = hand // rules.faces, hand % rules.faces
    of_color = color[None] == jnp.arange(rules.colors, dtype=jnp.uint8)[:, None]
    bits = jnp.where(of_color & (face > 0)[None], _number_bit(rules, face)[None], jnp.uint16(0))
    wagers = (of_color & (face == 0)[None]).sum(-1, dtype=jnp.uint16)
    return bits.sum(-1, dtype=jnp.uint16) | ((jnp.uint16(1) << wagers) - jnp.uint16(1))


def _is_legal(rules: Rules, state: State, action: jax.Array) -> jax.Array:
    """Whether an action is one of `legal_mask`; bool[]."""
    return (legal_mask(rules, state) & (jnp.arange(rules.num_actions) == action)).any()


def _set_row(rows: jax.Array, player: int, row: jax.Array) -> jax.Array:
    """Replaces one player's row of a [P, ...] array."""
    return jnp.stack([row, rows[1]] if player == 0 else [rows[0], row])


def _wager_bits(rules: Rules) -> int:
    return (1 << rules.wagers) - 1


def _number_bit(rules: Rules, face: jax.Array) -> jax.Array:
    shift = rules.wagers + jnp.maximum(face, 1).astype(jnp.uint16) - 1
    return jnp.uint16(1) << shift


def _add_card(rules: Rules, columns: jax.Array, face: jax.Array) -> jax.Array:
    """Adds a card of some face to each column; wagers fill the low bits in turn."""
    next_wager = (columns & jnp.uint16(_wager_bits(rules))) + jnp.uint16(1)
    return columns | jnp.where(face == 0, next_wager, _number_bit(rules, face))


def _remove_card(rules: Rules, columns: jax.Array, face: jax.Array) -> jax.Array:
    """Removes a card of some face from each column that has one."""
    wagers = columns & jnp.uint16(_wager_bits(rules))
    numbers = columns & ~jnp.uint16(_wager_bits(rules))
    return jnp.where(
        face == 0, numbers | (wagers >> jnp.uint16(1)), columns & ~_number_bit(rules, face)
    )
