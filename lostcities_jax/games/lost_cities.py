"""Lost Cities as a lockstep game: card, draw, card, draw."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from lostcities_jax import engine
from lostcities_jax.arrays import along_last
from lostcities_jax.cards import all_cards
from lostcities_jax.features import encode, lead
from lostcities_jax.games.game import Deals, Game, Phase
from lostcities_jax.info_state import observe, observe_open, pack, packed_size, unpack
from lostcities_jax.rules import CARD_PHASE, DRAW_PHASE, NUM_PLAYERS, Rules
from lostcities_jax.state import State, deal, deal_from_deck

_LISTED_CARDS = 7  # decks with more have too many orders to list
_LONG_GAME = 2  # decks of turns: half of the draws came from piles


@functools.cache
def lost_cities(rules: Rules) -> Game:
    """The game of a rule set; cached, so that equal rules share compiled programs."""
    actions = {CARD_PHASE: rules.num_card_actions, DRAW_PHASE: rules.num_draw_actions}
    last_waits = _end_of_waiting(rules)
    phases = tuple(
        Phase(player, head, actions[head])
        for player in range(NUM_PLAYERS)
        for head in (CARD_PHASE, DRAW_PHASE)
    )

    def legal(state: State, k: int) -> jax.Array:
        if phases[k].head == CARD_PHASE:
            return engine.legal_card_actions(rules, state, phases[k].player)
        return engine.legal_draw_actions(rules, state)

    def step(state: State, k: int, action: jax.Array) -> State:
        card = phases[k].head == CARD_PHASE
        half_step = engine.card_half_step if card else engine.draw_half_step
        return half_step(rules, state, phases[k].player, action)

    def is_turn(state: State, k: int) -> jax.Array:
        is_mover = engine.current_player(state) == phases[k].player
        return is_mover & (state.phase == phases[k].head) & ~engine.is_terminal(rules, state)

    def value(state: State) -> jax.Array:
        points = engine.scores(rules, state)
        return (points[0] - points[1]).astype(jnp.float32)

    def standing(packed: jax.Array) -> jax.Array:
        return lead(rules, unpack(rules, packed)).astype(jnp.float32)

    def flat_features(packed: jax.Array) -> jax.Array:
        features = encode(rules, unpack(rules, packed))
        cards = features.cards.reshape(*packed.shape[:-1], -1)
        return jnp.concatenate([cards, features.table], axis=-1)

    def considered(packed: jax.Array, legal: jax.Array, head: int) -> jax.Array:
        if head == CARD_PHASE or last_waits is None:
            return legal
        may_wait = unpack(rules, packed).turn < last_waits
        is_deck = along_last(np.arange(legal.shape[-1]) == 0, legal.ndim)
        return legal & (may_wait[..., None] | is_deck)

    return Game(
        name="Lost Cities",
        heads=("card", "draw"),
        phases=phases,
        max_cycles=-(-rules.max_turns // NUM_PLAYERS),
        info_size=packed_size(rules),
        deal=functools.partial(deal, rules),
        legal=legal,
        step=step,
        is_turn=is_turn,
        observe=lambda state, k: pack(observe(state, phases[k].player)),
        observe_open=lambda state, k: pack(observe_open(rules, state, phases[k].player)),
        head_of=lambda packed: unpack(rules, packed).phase,
        encode=flat_features,
        standing=standing,
        is_terminal=functools.partial(engine.is_terminal, rules),
        is_timeout=functools.partial(engine.is_timeout, rules),
        value=value,
        in_step=True,
        all_deals=functools.partial(_all_deals, rules) if _can_list(rules) else None,
        rules=rules,
        considered=considered,
    )


def _end_of_waiting(rules: Rules) -> int | None:
    """The turn from which trained policies draw from the deck alone.

    Who would rather have the other use up the deck takes from piles; two who both would go on so
    until the turn limit. A player who leaves it in time to draw all of the deck alone ends the
    game before the limit, whatever the other does. None where the limit is too near for that to
    concern long games only: there it is a rule like others.
    """
    turn = rules.max_turns - NUM_PLAYERS * rules.deck_after_deal
    return turn if turn >= _LONG_GAME * rules.deck_after_deal else None


def _can_list(rules: Rules) -> bool:
    return rules.num_cards <= _LISTED_CARDS


def _all_deals(rules: Rules) -> Deals:
    """Hands in any order and decks in every order, each counted as often as it is dealt."""
    decks = np.array(list(itertools.permutations(all_cards(rules).tolist())), np.uint8)
    states = jax.device_get(jax.vmap(functools.partial(deal_from_deck, rules))(jnp.asarray(decks)))
    drawn = states.deck[:, rules.num_cards - rules.deck_after_deal :]
    kinds = np.concatenate([states.hands.reshape(len(decks), -1), drawn], axis=-1)
    _, first, copies = np.unique(kinds, axis=0, return_index=True, return_counts=True)
    return Deals(jax.tree.map(lambda leaf: leaf[first], states), copies / copies.sum())
