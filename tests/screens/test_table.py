"""The table of the screens: its widths and heights are those of its rows, in each frame."""

from __future__ import annotations

from rich.text import Text
from textual.app import App, ComposeResult

from tests.support.screens import until
from tui.tables import TableRow
from tui.widgets.table import Table

TITLES = ("state", "note")


class Shown(App[int]):
    """A table, and nothing else."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.table = table

    def compose(self) -> ComposeResult:
        yield self.table


def row(key: str, state: str, note: str) -> TableRow:
    return TableRow(key, [Text(state), Text(note)])


def lines(table: Table) -> list[str]:
    """Its rows as a frame that is drawn now would show them, the titles first."""
    return [table.render_line(y).text.rstrip() for y in range(table.size.height)]


async def test_the_next_frame_has_the_widths_of_the_new_rows() -> None:
    """Whether rows come, go or change; Textual measures only when nothing else is to be done."""
    async with Shown(Table("t")).run_test(size=(40, 8)) as pilot:
        table = pilot.app.query_one(Table)
        await until(pilot, lambda: table.size.height > 0)
        table.show(TITLES, [row("a", "✗ failed", "worker:1 @tf3 exit 1")])
        assert lines(table)[1] == " ✗ failed  worker:1 @tf3 exit 1"
        table.show(TITLES, [row("a", "? unreachable", "no answer from tf3")])
        assert lines(table)[:2] == [" state          note", " ? unreachable  no answer from tf3"]
        table.show(TITLES, [row("a", "ended", "–"), row("b", "✗ failed", "worker:1 @tf3 exit 1")])
        assert lines(table)[2] == " ✗ failed  worker:1 @tf3 exit 1"
        table.show(TITLES, [row("a", "ended", "all of it")])
        assert lines(table)[1] == " ended  all of it"


async def test_the_first_frame_has_the_width_of_the_screen() -> None:
    """Given rows that are shown before the table has been laid out, then the column that takes the
    rest of the width has it at once."""
    widths: list[int] = []

    class Early(Shown):
        def on_mount(self) -> None:
            self.table.show(TITLES, [row("a", "ended", "a note")])
            widths.append(self.table.ordered_columns[1].width)

    async with Early(Table("t", fills=1)).run_test(size=(80, 8)) as pilot:
        await until(pilot, lambda: pilot.app.query_one(Table).size.height > 0)
        assert widths[0] > 60


async def test_a_click_on_a_title_orders_the_rows() -> None:
    """First the smallest on top, then the largest, then as they were; the title says which."""
    words = ["b", "c", "a"]

    def shown() -> None:
        ordered = table.ordered(words, [str])
        table.show(TITLES, [row(word, word, "–") for word in ordered])

    class Ordering(Shown):
        def on_table_ordered(self) -> None:
            shown()

    table = Table("t")
    async with Ordering(table).run_test(size=(40, 8)) as pilot:
        await until(pilot, lambda: table.size.height > 0)
        shown()
        seen = []
        for _ in range(3):
            before = lines(table)
            await pilot.click(Table, offset=(3, 0))
            await until(pilot, lambda: lines(table) != before)  # noqa: B023
            seen.append([line.split("note")[0].strip(" –") for line in lines(table)[:4]])
        assert seen == [
            ["state ▴", "a", "b", "c"],
            ["state ▾", "c", "b", "a"],
            ["state", "b", "c", "a"],
        ]


async def test_a_text_that_has_no_room_ends_in_an_ellipsis() -> None:
    """Its row stays one line, also when the text grows; more room shows more of it."""
    async with Shown(Table("t", fills=1)).run_test(size=(40, 8)) as pilot:
        table = pilot.app.query_one(Table)
        await until(pilot, lambda: table.size.height > 0)
        table.show(TITLES, [row("a", "up", "well"), row("b", "up", "last")])
        await until(pilot, lambda: lines(table)[2].endswith("last"))
        grown = "the gateway closes a connection that is new"
        table.show(TITLES, [row("a", "up", grown), row("b", "up", "last")])
        await until(pilot, lambda: lines(table)[1] == f" up     {grown[:30]}…")
        assert lines(table)[2].endswith("last")
        await pilot.resize_terminal(60, 8)
        await until(pilot, lambda: lines(table)[1] == f" up     {grown}")


async def test_a_table_of_a_thousand_rows_makes_those_in_sight() -> None:
    """Others are made when one scrolls to them, and are as wide as they need to be."""
    made = set()

    def lazy(number: int) -> TableRow:
        def cells() -> list[Text]:
            made.add(number)
            return [Text("x" * (4 if number < 500 else 9)), Text(f"row {number}")]

        return TableRow(str(number), cells)

    async with Shown(Table("t")).run_test(size=(40, 8)) as pilot:
        table = pilot.app.query_one(Table)
        await until(pilot, lambda: table.size.height > 0)
        table.show(TITLES, [lazy(number) for number in range(1000)])
        assert lines(table)[1] == " xxxx   row 0"
        table.focus()
        await pilot.press("G")
        await until(pilot, lambda: lines(table)[-1] == " xxxxxxxxx  row 999")
        assert len(made) < 100
