"""The 24 game: make 24 from four numbers."""

from whet.tasks.game24.task import Game24, Game24Config

__all__ = ["Game24", "Game24Config"]
