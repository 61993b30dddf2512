"""The game as an environment of other libraries, each held to that library's own tests.

`pgx_style` needs nothing more; `pettingzoo_env`, `gymnasium_env` and `openspiel` need the
extra: pip install 'lostcities_jax[adapters]'.
"""
