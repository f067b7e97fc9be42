"""Reports on runs, made from their folders alone: an HTML page, figures, and tables of results."""

from groupwise.report.figures import write_figures
from groupwise.report.page import write_page
from groupwise.report.results import Variant, group_runs
from groupwise.report.tables import write_tables

__all__ = ["Variant", "group_runs", "write_figures", "write_page", "write_tables"]
