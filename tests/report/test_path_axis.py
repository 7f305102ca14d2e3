"""The picture of a lambda path: strong lambdas do not squeeze its axis."""

from lwd.report.surfaces import plot_path
from lwd.schedule.learned import Polynomial
from lwd.surfaces.lambda_path import LambdaPath, Point


def test_the_axis_belongs_to_the_flow_losses():
    curve = Polynomial(groups=("texture", "semantic")).freeze()
    flows = {0.001: 1.00, 0.01: 1.01, 0.1: 1.02, 10.0: 1.03}
    points = [Point(k, curve, flow + 2 * k, flow, 2.0, False) for k, flow in flows.items()]
    figure = plot_path(LambdaPath(points, None, points[0]))
    axes = next(axes for axes in figure.axes if "objective" in axes.get_title())
    low, high = axes.get_ylim()
    assert low < 1.00 < 1.03 < high < 1.2  # the objective of the strongest lambda is 21
