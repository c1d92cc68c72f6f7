"""What is noted behind a compaction."""

from __future__ import annotations

from atrio.actors.account import with_totals
from atrio.runtime.ledger import Ledger
from atrio.runtime.messages import TextBlock, Usage, UserMessage
from atrio.runtime.prices import Catalogue
from atrio.runtime.records import UserRecord
from atrio.runtime.replay import replay
from atrio.runtime.rerecord import rerecord


def test_what_was_used_stands_behind_a_compaction_once_and_behind_nothing_else() -> None:
    ledger = Ledger(Catalogue.load())
    ledger.record("m1", "some-model", Usage(output_tokens=3, reported=True))
    message = UserMessage(uuid="u", content=(TextBlock("x"),))
    _, compaction = rerecord([message], run_id="r", number=1, data={}, used=())
    noted = with_totals(compaction, ledger)

    assert ledger.totals() == replay(noted).usage_before
    assert replay(compaction).messages == replay(noted).messages
    assert list(noted) == list(with_totals(noted, ledger))
    for records in ((), (UserRecord(message=message),)):
        assert records == with_totals(records, ledger)
