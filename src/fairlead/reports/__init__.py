"""Reports: runs in figures, as one page for the browser and as figures and tables for papers."""

from fairlead.reports.page import render_page as render_page
from fairlead.reports.page import write_page as write_page
from fairlead.reports.paper_files import write_figures as write_figures
from fairlead.reports.paper_files import write_tables as write_tables
from fairlead.results.comparison import Summary as Summary
from fairlead.results.comparison import summarize_runs as summarize_runs
from fairlead.results.comparison import summarize_settings as summarize_settings
