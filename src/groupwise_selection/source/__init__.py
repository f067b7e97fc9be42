"""The sources of queries and their pools, one a file; adding a file to this union is the whole registration."""

from typing import Annotated

from pydantic import Field

from groupwise_selection.source.digit_rules import DigitRules
from groupwise_selection.source.files import Files
from groupwise_selection.source.tickets import Tickets
from groupwise_selection.source.vqa import Vqa

SourceConfig = Annotated[DigitRules | Files | Tickets | Vqa, Field(discriminator="kind")]
"""Any source, distinguished by `kind`."""

__all__ = ["DigitRules", "Files", "SourceConfig", "Tickets", "Vqa"]
