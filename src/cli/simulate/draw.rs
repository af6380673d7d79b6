//! Curves of a simulation as SVG.

use super::Measure;
use super::figure::{Axis, Figure};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

const SIZE: (u32, u32) = (1240, 640);
/// Width of the curves; the rest is for their names.
const CURVES: u32 = 920;
/// Colours that stay apart for most eyes (Okabe and Ito), then darker again.
const COLOURS: [RGBColor; 12] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(60, 60, 60),
    RGBColor(120, 80, 160),
    RGBColor(150, 30, 30),
    RGBColor(110, 130, 20),
    RGBColor(0, 60, 110),
    RGBColor(240, 140, 130),
];

type Drawing<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Failure = Box<dyn std::error::Error>;

/// The picture. An error if there is nothing to draw.
pub fn svg(figure: &Figure) -> Result<String, Failure> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (root, names) = root.split_horizontally(CURVES);
        key(&names, figure)?;
        let (low, high) = range(figure.points.iter().map(|p| p.y)).ok_or("no point has a time above 0")?;
        match figure.axis {
            Axis::Bytes => {
                // a vector of no bytes stands at half a byte
                let (first, last) = range(figure.points.iter().map(|p| p.x.max(0.5))).unwrap_or((1.0, 2.0));
                times(&root, figure, (first * 0.8..last * 1.25).log_scale().base(2.0), low, high)?;
            }
            Axis::Ranks | Axis::Steps | Axis::Imbalance => {
                let (first, last) = figure.points.iter().map(|p| p.x).fold((f64::INFINITY, 0.0), ends);
                let room = ((last - first) * 0.02).max(0.1);
                times(&root, figure, first - room..last + room, low, high)?;
            }
        }
        root.present()?;
    }
    Ok(text)
}

fn ends(so_far: (f64, f64), x: f64) -> (f64, f64) {
    (so_far.0.min(x), so_far.1.max(x))
}

/// A logarithmic axis of times, or an even one if they lie close together.
fn times<X>(root: &Drawing, figure: &Figure, x: X, low: f64, high: f64) -> Result<(), Failure>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    match high / low > 10.0 {
        true => chart(root, figure, x, (low * 0.8..high * 1.25).log_scale()),
        false => chart(root, figure, x, low * 0.9..high * 1.05),
    }
}

/// Smallest and largest of the positive values.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let positive = values.filter(|value| *value > 0.0);
    positive
        .fold(None, |ends: Option<(f64, f64)>, v| Some(ends.map_or((v, v), |(low, high)| (low.min(v), high.max(v)))))
}

fn chart<X, Y>(root: &Drawing, figure: &Figure, x: X, y: Y) -> Result<(), Failure>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(root)
        .caption(&figure.title, ("sans-serif", 20))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(84)
        .build_cartesian_2d(x, y)?;
    let x_name = match figure.axis {
        Axis::Bytes => "bytes",
        Axis::Ranks => "ranks",
        Axis::Steps => "latency-optimal steps r",
        Axis::Imbalance => "delay, in balanced times (MIF)",
    };
    let y_name = match (figure.relative, figure.measure) {
        (true, _) => "time, relative to the best",
        (false, Measure::Time) => "time in µs",
        (false, Measure::Tail) => "tail in µs",
    };
    let bytes = figure.axis == Axis::Bytes;
    chart
        .configure_mesh()
        .x_desc(x_name)
        .y_desc(y_name)
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .x_labels(14)
        .x_label_formatter(&|x| if bytes { in_bytes(*x) } else { format!("{x}") })
        .y_label_formatter(&|y| format!("{y}"))
        .axis_desc_style(("sans-serif", 15))
        .label_style(("sans-serif", 13))
        .draw()?;
    for (i, name) in figure.series().into_iter().enumerate() {
        let points: Vec<(f64, f64)> = figure
            .points
            .iter()
            .filter(|p| p.series == name && p.y > 0.0)
            .map(|p| (if bytes { p.x.max(0.5) } else { p.x }, p.y))
            .collect();
        let style = style(i);
        chart.draw_series(std::iter::once(PathElement::new(points.clone(), style)))?;
        let size = if points.len() > 40 { 2 } else { 3 };
        chart.draw_series(points.iter().map(|&at| Circle::new(at, size, style.color.filled())))?;
    }
    Ok(())
}

/// Later curves are thinner, so that one that lies on another is seen.
fn style(curve: usize) -> ShapeStyle {
    COLOURS[curve % COLOURS.len()].stroke_width(if curve == 0 { 5 } else { 2 })
}

/// The names of the curves, beside them.
fn key(area: &Drawing, figure: &Figure) -> Result<(), Failure> {
    for (i, name) in figure.series().into_iter().enumerate() {
        let y = 60 + 24 * i as i32;
        area.draw(&PathElement::new(vec![(4, y), (32, y)], style(i)))?;
        area.draw(&Text::new(name, (40, y - 7), ("sans-serif", 14)))?;
    }
    Ok(())
}

/// A number of bytes as users write it.
fn in_bytes(bytes: f64) -> String {
    for (name, unit) in [("Gi", 30), ("Mi", 20), ("Ki", 10)] {
        let unit = f64::from(1u32 << unit);
        if bytes >= unit {
            return format!("{}{name}", (bytes / unit * 100.0).round() / 100.0);
        }
    }
    format!("{bytes}")
}
