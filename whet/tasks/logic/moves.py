"""What a made grid puzzle may do to a grid: a dozen plain moves, and all results of a few of them
in a row."""

from collections.abc import Callable, Sequence

Grid = tuple[tuple[int, ...], ...]

MAX_SIDE = 30


def flipped(grid: Grid) -> Grid:
    """Swap left and right."""
    return tuple(row[::-1] for row in grid)


def upended(grid: Grid) -> Grid:
    """Swap top and bottom."""
    return grid[::-1]


def transposed(grid: Grid) -> Grid:
    return tuple(zip(*grid, strict=True))


def turned(grid: Grid) -> Grid:
    """Turn a quarter, clockwise."""
    return tuple(zip(*grid[::-1], strict=True))


def half_turned(grid: Grid) -> Grid:
    return tuple(row[::-1] for row in grid[::-1])


def cropped(grid: Grid) -> Grid:
    """Cut away the empty rows and columns around what is there."""
    rows = [place for place, row in enumerate(grid) if any(row)]
    columns = [place for place, column in enumerate(zip(*grid, strict=True)) if any(column)]
    if not rows:
        return grid
    return tuple(row[columns[0] : columns[-1] + 1] for row in grid[rows[0] : rows[-1] + 1])


def fallen(grid: Grid) -> Grid:
    """Let every colour fall to the bottom of its column."""
    return transposed(tuple(_slid(column) for column in zip(*grid, strict=True)))


def pushed(grid: Grid) -> Grid:
    """Push every colour to the right end of its row."""
    return tuple(_slid(row) for row in grid)


def doubled(grid: Grid) -> Grid:
    """Make every cell two by two."""
    return tuple(
        row for thin in grid for row in [tuple(cell for cell in thin for _ in range(2))] * 2
    )


def mirrored(grid: Grid) -> Grid:
    """Put the mirror image to the right."""
    return tuple(row + row[::-1] for row in grid)


def reflected(grid: Grid) -> Grid:
    """Put the mirror image below."""
    return grid + grid[::-1]


def painted(grid: Grid) -> Grid:
    """Paint everything in the commonest colour, the lowest of those that tie."""
    cells = [cell for row in grid for cell in row if cell]
    if not cells:
        return grid
    colour = min(set(cells), key=lambda cell: (-cells.count(cell), cell))
    return tuple(tuple(colour if cell else 0 for cell in row) for row in grid)


def _slid(cells: tuple[int, ...]) -> tuple[int, ...]:
    kept = tuple(cell for cell in cells if cell)
    return (0,) * (len(cells) - len(kept)) + kept


Move = Callable[[Grid], Grid]
TURNS: tuple[Move, ...] = (flipped, upended, transposed, turned, half_turned)
MOVES: tuple[Move, ...] = (*TURNS, cropped, fallen, pushed, doubled, mirrored, reflected, painted)


def results(grids: Sequence[Grid], depth: int) -> set[tuple[Grid, ...]]:
    """List what up to `depth` moves in a row can make of the grids, the same moves on all of
    them."""
    layer = seen = {tuple(grids)}
    for _ in range(depth):
        made = {tuple(map(move, state)) for state in layer for move in MOVES}
        layer = {state for state in made - seen if all(is_small(grid) for grid in state)}
        seen = seen | layer
    return seen


def is_small(grid: Grid) -> bool:
    return len(grid) <= MAX_SIDE and len(grid[0]) <= MAX_SIDE
