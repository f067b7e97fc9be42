"""Reports on runs, made from their folders alone: an HTML page, figures, and tables of results."""

from groupwise_look.report.figures import write_figures
from groupwise_look.report.page import write_page
from groupwise_look.report.results import Variant, group_runs
from groupwise_look.report.tables import write_tables

__all__ = ["Variant", "group_runs", "write_figures", "write_page", "write_tables"]
