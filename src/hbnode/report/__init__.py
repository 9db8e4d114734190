"""The report: run folders in, one page and its figures out. Knows files only, never a model."""

from .build import Report as Report
from .build import write_report as write_report
from .load import Problem as Problem
