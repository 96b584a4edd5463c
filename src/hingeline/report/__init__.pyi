# The public names: __init__.py reads them here, and imports each when it is first used.

from hingeline.report.figures import label_affinities as label_affinities
from hingeline.report.figures import plot_affinities as plot_affinities
from hingeline.report.figures import plot_curve as plot_curve
from hingeline.report.figures import plot_path as plot_path
from hingeline.report.figures import plot_reliability as plot_reliability
from hingeline.report.figures import plot_segmentation as plot_segmentation
from hingeline.report.page import render_report as render_report
from hingeline.report.page import write_report as write_report
from hingeline.report.parses import draw_parse as draw_parse
