"""Lost Cities as a lockstep game: card, draw, card, draw."""

import functools

import jax
import jax.numpy as jnp

from lostcities_jax import engine
from lostcities_jax.games.game import Game, Phase
from lostcities_jax.info_state import observe, observe_open, pack, packed_size, unpack
from lostcities_jax.rules import CARD_PHASE, DRAW_PHASE, NUM_PLAYERS, Rules
from lostcities_jax.state import State, deal


@functools.cache
def lost_cities(rules: Rules) -> Game:
    """The game of a rule set; cached, so that equal rules share compiled programs."""
    actions = {CARD_PHASE: rules.num_card_actions, DRAW_PHASE: rules.num_draw_actions}
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

    def value(state: State) -> jax.Array:
        points = engine.scores(rules, state)
        return (points[0] - points[1]).astype(jnp.float32)

    def standing(packed: jax.Array) -> jax.Array:
        info = unpack(rules, packed)
        own, other = (
            engine.column_scores(rules, columns).sum(-1)
            for columns in (info.own_expeditions, info.other_expeditions)
        )
        return (own - other).astype(jnp.float32)

    return Game(
        name="Lost Cities",
        phases=phases,
        max_cycles=-(-rules.max_turns // NUM_PLAYERS),
        info_size=packed_size(rules),
        deal=functools.partial(deal, rules),
        legal=legal,
        step=step,
        observe=lambda state, k: pack(observe(state, phases[k].player)),
        observe_open=lambda state, k: pack(observe_open(rules, state, phases[k].player)),
        head_of=lambda packed: unpack(rules, packed).phase,
        standing=standing,
        is_terminal=functools.partial(engine.is_terminal, rules),
        is_timeout=functools.partial(engine.is_timeout, rules),
        value=value,
    )
