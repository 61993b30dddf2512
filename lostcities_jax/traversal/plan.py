"""The static sizes of a traversal batch, and what follows from them: stack, tape and cuts."""

import dataclasses

from lostcities_jax.games.game import Game
from lostcities_jax.traversal.rollouts import RolloutPolicy
from lostcities_jax.traversal.tape import Contents

MOST_LEVELS = 255  # that a byte can tell apart
_COUNTED_LEVELS = 4  # of branching that a tape is long enough for by itself


@dataclasses.dataclass(frozen=True)
class Plan:
    """The static sizes of a traversal batch.

    Attributes:
      width: lanes, B.
      quota: traversals to start and finish.
      branches: actions that the traverser follows at a decision: 0 for one of its sampling
        policy, k for k of the legal ones, see `choose_actions`.
      max_depth: decisions of a path after which it is cut; 0: none.
      max_nodes: decisions of a traversal after which its paths are cut; 0: none.
      has_critic: whether the tape keeps open info states.
      rollouts: games played out from each cut path; 0: its value is that of the game as it
        stands.
      rollout_policy: who plays them; None without.
      stack_levels: levels of a lane's stack, S; 0: as many as can be needed, 255 at most.
      tape_cycles: cycles of tape; 0: see `cycles`.
    """

    width: int
    quota: int
    branches: int = 0
    max_depth: int = 0
    max_nodes: int = 0
    has_critic: bool = False
    rollouts: int = 0
    rollout_policy: RolloutPolicy | None = None
    stack_levels: int = 0
    tape_cycles: int = 0

    def levels(self, game: Game) -> int:
        """Levels of the stack; no path has more decisions of one player."""
        if self.branches < 2:
            return 0
        own = max(len(game.phases_of(player)) for player in (0, 1)) * game.max_cycles
        return self.stack_levels or min(own, self.max_depth or own, MOST_LEVELS)

    def cycles(self, game: Game) -> int:
        """Cycles of tape: enough without branching, since refill wastes one traversal's at most.

        With it, enough for every path that a few levels of branching can make; the rest of a
        longer traversal shows as unfinished.
        """
        path = game.max_cycles
        if self.max_depth and game.in_step:
            path = min(path, -(-self.max_depth // len(game.phases)))
        return self.tape_cycles or path * self._paths(game) * -(-self.quota // self.width)

    def contents(self, game: Game) -> Contents:
        """What the tape holds."""
        return Contents(self.has_critic, self.levels(game) > 0, self.rollouts > 0)

    def cuts(self, game: Game) -> int:
        """Cut paths at most."""
        ends = self.cycles(game) * self.width
        return ends if self.levels(game) else min(self.quota, ends)

    def _paths(self, game: Game) -> int:
        """Most paths of a traversal: every decision of the traverser splits one in k."""
        if self.branches < 2:
            return 1
        branches = min(self.branches, game.max_actions)
        paths = branches ** min(self.levels(game), _COUNTED_LEVELS)
        return min(paths, self.max_nodes * branches) if self.max_nodes else paths
